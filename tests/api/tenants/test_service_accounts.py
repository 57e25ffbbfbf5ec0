"""Programs of a workspace: who manages them, what their tokens may do, and what counts as theirs."""

from __future__ import annotations

from functools import partial

import pytest
from django.test import Client

from accounts.models import User
from core.clock import db_now
from gpr.closing.services import closing_advance
from gpr.models import Gpr
from journal.models import Event
from slices.closing.services import slice_close
from slices.models import Life, ProjectAdmin, Role
from slices.service_accounts import services
from slices.service_accounts.services import service_account_met
from slices.services import member_set
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.builders import SHAPE

pytestmark = pytest.mark.django_db

ACCOUNTS = "slices/vision/service-accounts/"
ASK = {"name": "nightly-run", "slice": "vision", "shape": SHAPE, "nodes": 1, "duration_s": 3600}


def program_of(owner: Caller, *, name: str = "nightly", role: str = "editor") -> tuple[str, Caller]:
    made = owner.post(ACCOUNTS, {"name": name, "role": role}).json()
    token = owner.post(f"{ACCOUNTS}{made['name']}/tokens/", {"name": "pipeline", "scopes": ["gpr:write"]}).json()
    return str(made["id"]), Caller(token["token"])


def test_what_a_service_account_files_is_its_own_in_lists_usage_events_and_audit(owner: Caller, admin: Caller, world: World) -> None:
    pk, program = program_of(owner)

    filed = program.post("gprs/", ASK).json()
    assert (filed["owner"], program.get("me/").json()["name"]) == ("vision:nightly", "vision:nightly")
    assert [row["name"] for row in owner.get(f"gprs/?owner={pk}").json()["results"]] == ["nightly-run"]
    assert Event.objects.get(kind="gpr.created", gpr_id=filed["id"]).actor == User.objects.get(pk=pk)
    trail = admin.get(f"audit/?actor={pk}").json()["results"]
    assert "gpr.created" in {row["kind"] for row in trail}
    assert program.call("DELETE", f"gprs/{filed['id']}/").status_code == 204


def test_a_service_account_changes_only_its_own_requests_and_sees_only_its_workspace(owner: Caller, world: World) -> None:
    _, program = program_of(owner)
    gpr = factories.gpr(world.slice, world.people.owner)

    assert_problem(program.call("DELETE", f"gprs/{gpr.pk}/"), 403, "not_allowed")
    assert [row["name"] for row in program.get("slices/").json()["results"]] == ["vision"]
    assert program.get(f"slices/{world.foreign_slice.name}/").status_code == 404
    assert program.post(f"{ACCOUNTS}", {"name": "more", "role": "editor"}).status_code == 403
    _, viewer = program_of(owner, name="dashboard", role="viewer")
    assert_problem(viewer.post("gprs/", ASK), 403, "not_allowed")


def test_a_disabled_service_account_is_out_at_once_and_gets_no_token_until_it_is_enabled(owner: Caller, world: World) -> None:
    pk, program = program_of(owner)

    assert owner.patch(f"{ACCOUNTS}{pk}/", {"is_active": False}).json()["is_active"] is False
    assert program.get("me/").status_code == 401
    assert_problem(owner.post(f"{ACCOUNTS}{pk}/tokens/", {"name": "t", "scopes": ["read"]}), 409, "conflict")
    assert owner.patch(f"{ACCOUNTS}{pk}/", {"is_active": True, "role": "viewer"}).json()["role"] == "viewer"
    assert program.get("me/").status_code == 200
    (token,) = owner.get(f"{ACCOUNTS}{pk}/tokens/").json()["results"]
    assert owner.post(f"{ACCOUNTS}{pk}/tokens/{token['id']}/rotate/", {"overlap_s": 0}).status_code == 201
    assert program.get("me/").status_code == 401


def test_a_deleted_service_account_is_out_for_good_gives_its_place_back_and_stays_in_records(
    owner: Caller, teammate: Caller, admin: Caller, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "MOST", 1)
    pk, program = program_of(owner)
    filed = program.post("gprs/", ASK).json()
    assert_problem(owner.post(ACCOUNTS, {"name": "more", "role": "editor"}), 409, "conflict")
    assert_problem(teammate.call("DELETE", f"{ACCOUNTS}{pk}/"), 403, "not_allowed")

    assert owner.call("DELETE", f"{ACCOUNTS}{pk}/").status_code == 204

    assert owner.get(ACCOUNTS).json()["results"] == []
    assert (owner.call("DELETE", f"{ACCOUNTS}{pk}/").status_code, program.get("me/").status_code) == (404, 401)
    assert owner.get(f"gprs/{filed['id']}/").json()["owner"] == "vision:nightly"
    assert "slice.service_account_deleted" in {row["kind"] for row in admin.get("audit/?slice=vision").json()["results"]}
    again = owner.post(ACCOUNTS, {"name": "nightly", "role": "viewer"}).json()
    assert (again["id"], again["role"], again["is_active"]) == (pk, "viewer", True)
    assert program.get("me/").status_code == 401  # its old tokens stay revoked


def test_a_service_account_of_a_cluster_that_is_kept_out_is_not_deleted_and_another_comes_back(owner: Caller, world: World) -> None:
    meet = partial(service_account_met, slice_=world.slice, cluster=world.cluster, cluster_user="system:serviceaccount:train:bot")
    pk = meet(now=db_now()).pk
    assert owner.call("DELETE", f"{ACCOUNTS}{pk}/").status_code == 204
    assert meet(now=db_now()).pk == pk

    owner.patch(f"{ACCOUNTS}{pk}/", {"is_active": False})

    assert "Leave it disabled" in assert_problem(owner.call("DELETE", f"{ACCOUNTS}{pk}/"), 409, "conflict")["detail"]


def test_a_service_account_is_no_person(owner: Caller, admin: Caller, world: World) -> None:
    """It is in no list of people, joins no other workspace, runs no project, decides for nobody, and opens no page."""
    pk, _ = program_of(owner)
    second = factories.make_slice(world.cluster, name="second", owner=world.people.owner)

    assert "vision:nightly" not in {row["name"] for row in owner.get("slices/vision/members/").json()["results"]}
    for caller in (owner, admin):
        caller.post("slices/second/members/", {"user": pk, "role": "owner"})
    assert not second.memberships.filter(user=pk).exists()
    assert admin.post(f"projects/{world.slice.project.pk}/admins/", {"user": pk}).status_code == 404
    assert not ProjectAdmin.objects.filter(user=pk).exists()
    assert_problem(admin.patch(f"users/{pk}/", {"role": "admin"}), 409, "conflict")
    assert_problem(owner.post(ACCOUNTS, {"name": "boss", "role": "owner"}), 400, "invalid_input")
    assert_problem(owner.post(f"{ACCOUNTS}{pk}/tokens/", {"name": "t", "scopes": ["admin"]}), 400, "invalid_input")
    secret = owner.post(f"{ACCOUNTS}{pk}/tokens/", {"name": "t", "scopes": ["write"]}).json()["token"]
    assert Client().post("/login/", {"token": secret}).status_code == 400


def test_names_of_service_accounts_tell_nothing_of_other_workspaces(owner: Caller, outsider: Caller, world: World) -> None:
    program_of(owner)

    theirs = outsider.post(f"slices/{world.foreign_slice.name}/service-accounts/", {"name": "nightly", "role": "editor"})
    assert theirs.json()["name"] == f"{world.foreign_slice.name}:nightly"
    assert outsider.get(ACCOUNTS).status_code == 404
    assert_problem(owner.post(ACCOUNTS, {"name": "nightly", "role": "viewer"}), 409, "conflict")
    assert_problem(owner.post(ACCOUNTS, {"name": "x" * 60, "role": "viewer"}), 400, "invalid_input")


def test_a_token_with_fewer_rights_makes_none_with_more_for_a_service_account(owner: Caller, world: World) -> None:
    pk, _ = program_of(owner)
    bound = Caller(factories.token(world.people.owner, *("read", "write"), slices=[str(world.slice.pk)]))  # type: ignore[arg-type]

    assert bound.post(f"{ACCOUNTS}{pk}/tokens/", {"name": "t", "scopes": ["write"]}).status_code == 201
    reader = Caller(factories.token(world.people.owner, "read"))  # type: ignore[arg-type]
    assert reader.post(f"{ACCOUNTS}{pk}/tokens/", {"name": "t", "scopes": ["read"]}).status_code == 403


def test_the_service_accounts_of_a_removed_workspace_end_with_it(owner: Caller, world: World) -> None:
    pk, program = program_of(owner)
    member_set(slice_=world.slice, user=world.people.teammate, role=Role.VIEWER, actor=None, now=db_now())
    filed = program.post("gprs/", ASK).json()

    slice_close(slice_=world.slice, to=Life.REMOVED, drain=True, actor=world.people.admin, now=db_now())
    for _ in range(2):
        closing_advance(now=db_now())
    world.slice.refresh_from_db()
    assert (Gpr.objects.get(pk=filed["id"]).owner_id is not None, world.slice.settled_at is not None) == (True, True)
    assert not User.objects.get(pk=pk).is_active
