"""Programs of a workspace, from the terminal: their accounts and the tokens by which they act."""

from __future__ import annotations

import pytest

from tests.e2e.client.hub import Egs, Hub

pytestmark = pytest.mark.rotates(2)


def test_an_owner_gives_a_pipeline_an_account_a_token_and_takes_both_away(hub: Hub, egs: Egs, admin: Egs) -> None:
    assert "would be editor of workspace vision" in egs.run("service-account", "create", "nightly", "--dry-run")
    assert "Name:      vision:nightly" in egs.run("service-account", "create", "nightly")
    token = egs.run("sa", "token", "create", "nightly", "pipeline", "--days", "7").splitlines()[0]
    program = Egs(egs.home, {"EGS_URL": hub.url, "EGS_TOKEN": token})
    assert "vision:nightly" in program.run("whoami")
    program.run("sa", "edit", "nightly", "--role", "viewer", code=4)

    assert "gpr:write" in egs.run("sa", "token", "list", "vision:nightly")
    second = egs.run("sa", "token", "rotate", "nightly", "pipeline", "--overlap", "0").splitlines()[0]
    program.run("whoami", code=3)
    program.env["EGS_TOKEN"] = second
    assert "--yes" in egs.run("sa", "token", "revoke", "nightly", "pipeline", code=2)
    egs.run("sa", "token", "revoke", "nightly", "pipeline", "--yes")
    program.run("whoami", code=3)
    assert "has no token other" in egs.run("sa", "token", "rotate", "nightly", "other", code=5)
    program.env["EGS_TOKEN"] = egs.run("sa", "token", "create", "nightly", "pipeline", "--scope", "read").splitlines()[0]
    program.run("whoami")

    assert "add --yes" in egs.run("sa", "edit", "nightly", "--disable", code=2)
    assert "vision:nightly is viewer, disabled." in egs.run("sa", "edit", "nightly", "--role", "viewer", "--disable", "--yes")
    program.run("whoami", code=3)
    assert "role: viewer" in egs.run("get", "sa", "-o", "yaml")
    row = admin.run("sa", "list", "-n", "vision").splitlines()[1].split()
    assert row == ["vision:nightly", "viewer", "disabled", "EGS"]
    assert "no such service account" in egs.run("sa", "show", "nobody", code=5)
    egs.run("sa", "edit", "nightly", code=2)
    assert "vision:nightly is deleted." in egs.run("sa", "delete", "nightly", "--yes")
