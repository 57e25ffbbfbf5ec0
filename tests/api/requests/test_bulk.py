from __future__ import annotations

from gpr.models import GprState
from tests import factories
from tests.api.conftest import Caller, World


def test_each_of_many_gets_its_own_verdict_and_one_that_is_refused_stops_none(owner: Caller, world: World) -> None:
    waits, other = (factories.gpr(world.slice, world.people.owner, name=name) for name in ("waits", "other"))
    foreign = factories.gpr(world.foreign_slice, world.people.outsider)

    verdicts = owner.post("gprs/bulk/", {"act": "cancel", "ids": [str(row.pk) for row in (waits, foreign, other, waits)]}).json()["results"]

    assert [(row["is_done"], row["code"]) for row in verdicts] == [(True, ""), (False, "not_found"), (True, ""), (False, "wrong_state")]
    for row, state in ((waits, GprState.CANCELED), (other, GprState.CANCELED), (foreign, GprState.QUEUED)):
        row.refresh_from_db()
        assert row.state == state


def test_an_administrator_decides_on_many_at_once_and_a_member_on_none(owner: Caller, admin: Caller, world: World) -> None:
    asking = [factories.gpr(world.slice, world.people.owner, priority=300) for _ in range(2)]
    ids = [str(row.pk) for row in asking]

    assert {row["code"] for row in owner.post("gprs/bulk/", {"act": "approve", "ids": ids}).json()["results"]} == {"not_allowed"}
    assert admin.post("gprs/bulk/", {"act": "reject", "ids": ids}).status_code == 400
    assert admin.post("gprs/bulk/", {"act": "cancel", "ids": ids, "why": "x"}).status_code == 400
    verdicts = admin.post("gprs/bulk/", {"act": "reject", "ids": ids, "why": "No room."}, key="once").json()["results"]

    assert all(row["is_done"] for row in verdicts)
    assert {row["state"] for row in owner.get("gprs/").json()["results"]} == {"REJECTED"}
