from __future__ import annotations

from typing import Any

import pytest
from django.db.models import F

from accounts.models import User
from gpr.models import EndReason, Gpr, GprState
from gpr.requests import api as requests_api
from gpr.requests import selectors
from journal.models import Event
from protocol.assignments import Desired
from slices.models import Role
from slices.services import member_set
from tests import factories
from tests.api.conftest import Caller, World, assert_problem


@pytest.fixture
def gpr(world: World) -> Gpr:
    return factories.active(world.slice, world.people.owner)


@pytest.mark.parametrize(
    ("persona", "status", "state"),
    [
        ("owner", 200, GprState.EXITING),
        ("teammate", 403, GprState.ACTIVE),
        ("outsider", 404, GprState.ACTIVE),
        ("admin", 200, GprState.EXITING),
        ("reader", 403, GprState.ACTIVE),
        ("anonymous", 401, GprState.ACTIVE),
    ],
)
def test_only_its_owner_and_an_administrator_may_release_it(
    persona: str, status: int, state: GprState, gpr: Gpr, request: pytest.FixtureRequest
) -> None:
    response = request.getfixturevalue(persona).post(f"gprs/{gpr.pk}/release/")

    assert response.status_code == status, response.content
    gpr.refresh_from_db()
    assert gpr.state == state


def test_its_agent_is_told_at_once(owner: Caller, gpr: Gpr) -> None:
    body = owner.post(f"gprs/{gpr.pk}/release/").json()

    assert (body["state"], body["end_reason"]) == ("EXITING", EndReason.EARLY_RELEASE)
    assert [row.desired for row in factories.held(gpr)] == [Desired.ABSENT]


def test_an_administrator_s_release_of_another_s_says_so(admin: Caller, gpr: Gpr) -> None:
    assert admin.post(f"gprs/{gpr.pk}/release/").json()["end_reason"] == EndReason.ADMIN
    assert Event.objects.get(new="EXITING").actor_id == User.objects.get(name="admin").pk


def test_an_owner_of_the_slice_may_release_a_teammate_s(owner: Caller, world: World) -> None:
    member_set(slice_=world.slice, user=world.people.teammate, role=Role.EDITOR, actor=None, now=world.slice.created_at)
    gpr = factories.active(world.slice, world.people.teammate)

    assert owner.post(f"gprs/{gpr.pk}/release/").status_code == 200


def test_who_was_demoted_to_a_viewer_cannot_release_even_his_own(teammate: Caller, world: World) -> None:
    now = world.slice.created_at
    member_set(slice_=world.slice, user=world.people.teammate, role=Role.EDITOR, actor=None, now=now)
    gpr = factories.active(world.slice, world.people.teammate)
    member_set(slice_=world.slice, user=world.people.teammate, role=Role.VIEWER, actor=None, now=now)

    assert_problem(teammate.post(f"gprs/{gpr.pk}/release/"), 403, "not_allowed")


def test_one_that_holds_nothing_cannot_be_released(owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    assert_problem(owner.post(f"gprs/{gpr.pk}/release/"), 409, "wrong_state")


def test_a_second_release_is_a_conflict(owner: Caller, gpr: Gpr) -> None:
    owner.post(f"gprs/{gpr.pk}/release/")

    assert_problem(owner.post(f"gprs/{gpr.pk}/release/"), 409, "wrong_state")


def test_a_stale_version_releases_nothing(owner: Caller, gpr: Gpr) -> None:
    assert_problem(owner.post(f"gprs/{gpr.pk}/release/", {"version": gpr.version - 1}), 409, "stale_version")
    assert owner.post(f"gprs/{gpr.pk}/release/", {"version": gpr.version}).status_code == 200


def test_a_request_that_changes_in_between_is_released_unless_a_version_was_named(
    owner: Caller, gpr: Gpr, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[Gpr] = []

    def read_before_a_tick(*args: Any, **kwargs: Any) -> Gpr:
        reads.append(selectors.gpr_for(*args, **kwargs))
        if len(reads) == 1:
            Gpr.objects.filter(pk=gpr.pk).update(version=F("version") + 1)
        return reads[-1]

    monkeypatch.setattr(requests_api, "gpr_for", read_before_a_tick)

    assert_problem(owner.post(f"gprs/{gpr.pk}/release/", {"version": gpr.version}), 409, "stale_version")
    reads.clear()
    assert owner.post(f"gprs/{gpr.pk}/release/").status_code == 200


def test_a_body_that_says_something_else_releases_nothing(owner: Caller, gpr: Gpr) -> None:
    for body in [{"why": "x"}, {"version": "1"}, {"version": None}, {"version": 1.5}, {"force": True}, [], "x"]:
        assert_problem(owner.post(f"gprs/{gpr.pk}/release/", body), 400, "invalid_input")
