from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import pytest

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.models import Gpr, Promise
from slices.models import ProjectAdmin, Slice
from slices.quotas.services import quota_create
from tests import factories
from tests.api.conftest import Answer, Caller, World, assert_problem, faults
from tests.builders import SHAPE


@pytest.fixture
def gpr(world: World) -> Gpr:
    return factories.active(world.slice, world.people.owner)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize("extra", [600, "600", "10m", "PT10M"])
def test_it_ends_later_by_what_was_asked(extra: Any, owner: Caller, gpr: Gpr) -> None:
    before = owner.get(f"gprs/{gpr.pk}/").json()

    after = owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": extra}).json()

    assert (moment(after["ends_at"]) - moment(before["ends_at"])).total_seconds() == 600
    assert after["duration_s"] == before["duration_s"] + 600
    assert after["version"] == before["version"] + 1
    assert [row.not_after_at for row in factories.held(gpr)] == [moment(after["ends_at"])]


def test_what_is_only_tried_changes_nothing(owner: Caller, gpr: Gpr) -> None:
    before = owner.get(f"gprs/{gpr.pk}/").json()

    after = owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": "10m", "is_dry": True}).json()

    assert (after["ends_at"], after["version"]) == (before["ends_at"], before["version"])
    assert [row.not_after_at for row in factories.held(gpr)] == [moment(before["ends_at"])]


def test_not_if_somebody_was_promised_these_gpus(owner: Caller, world: World, gpr: Gpr) -> None:
    factories.gpr(world.foreign_slice, world.people.outsider, nodes=2)

    for is_dry in (True, False):
        body = assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 3600, "is_dry": is_dry}), 409, "conflict")
        assert "outsider" not in str(body)

    assert owner.get(f"gprs/{gpr.pk}/").json()["duration_s"] == 3600


def longer(caller: Caller, gpr: Gpr, ends_at: str, more_s: int = 0) -> Answer:
    before = caller.get(f"gprs/{gpr.pk}/").json()["ends_at"]
    return caller.post(f"gprs/{gpr.pk}/extend/", {"extra_s": int((moment(ends_at) - moment(before)).total_seconds()) + more_s})


@pytest.mark.parametrize("is_own", [True, False], ids=["of its workspace", "a stranger"])
def test_a_refusal_says_the_latest_end_which_is_accepted_to_the_second_and_who_is_next(is_own: bool, owner: Caller, world: World) -> None:
    """It holds one of two nodes for 1 h, a stranger the other for 3 h; whoever waits for both starts after that."""
    runs = factories.active(world.slice, world.people.owner, name="short")
    factories.active(world.foreign_slice, world.people.outsider, duration_s=10_800)
    third = factories.make_slice(world.cluster, name="third", owner=world.people.owner if is_own else world.people.outsider)
    waits = factories.gpr(third, third.memberships.get().user, name="next-one", nodes=2)

    body = assert_problem(owner.post(f"gprs/{runs.pk}/extend/", {"extra_s": 20_000}), 409, "conflict")

    assert body["next_id"] == (str(waits.pk) if is_own else None)
    assert ("next-one" in body["detail"]) is is_own
    ends_at = owner.get(f"gprs/{runs.pk}/").json()["ends_at"]
    assert 6_000 < (moment(body["max_ends_at"]) - moment(ends_at)).total_seconds() < 7_400
    assert longer(owner, runs, body["max_ends_at"], 1).status_code == 409
    assert longer(owner, runs, body["max_ends_at"]).json()["ends_at"] == body["max_ends_at"]
    again = assert_problem(owner.post(f"gprs/{runs.pk}/extend/", {"extra_s": 60}), 409, "conflict")
    assert again["max_ends_at"] == body["max_ends_at"]
    assert "cannot end later" in again["detail"]


def test_a_follower_of_its_own_is_named_with_what_to_do(owner: Caller, world: World, ask: dict[str, Any]) -> None:
    """Nobody else is promised these nodes, so the owner can extend once they have withdrawn what they filed themselves."""
    runs = factories.active(world.slice, world.people.owner, name="prep")
    first = owner.post("gprs/", {**ask, "name": "train", "after": "prep"}).json()
    last = owner.post("gprs/", {**ask, "name": "evaluate", "after": "train"}).json()
    tick()

    body = assert_problem(owner.post(f"gprs/{runs.pk}/extend/", {"extra_s": 7200}), 409, "conflict")

    assert "train starts after it and has been promised a start." in body["detail"]
    assert "ancel train and file it again afterwards" in body["detail"]
    assert body["next_id"] == first["id"]
    for each in (last, first):
        assert owner.delete(f"gprs/{each['id']}/").status_code == 204
    assert owner.post(f"gprs/{runs.pk}/extend/", {"extra_s": 7200}).status_code == 200


def test_somebody_else_who_is_promised_the_nodes_comes_before_a_follower_of_its_own(
    owner: Caller, world: World, ask: dict[str, Any]
) -> None:
    runs = factories.active(world.slice, world.people.owner, name="prep")
    factories.gpr(world.foreign_slice, world.people.outsider, nodes=2)
    owner.post("gprs/", {**ask, "name": "train", "after": "prep"})
    tick()

    body = assert_problem(owner.post(f"gprs/{runs.pk}/extend/", {"extra_s": 7200}), 409, "conflict")

    assert body["detail"].startswith("Others have been promised these GPUs")


def test_the_latest_end_heeds_a_quota_that_both_share_and_a_maintenance(owner: Caller, world: World, admin: Caller) -> None:
    """The other node is free, but the project may hold one node at once."""
    runs = factories.active(world.slice, world.people.owner, gpus_per_node=4)
    second = factories.make_slice(world.cluster, name="second", owner=world.people.owner, of=world.slice.project)
    quota_create(owner=world.slice.project, shape=SHAPE, change={"most_gpus": 8}, actor=world.people.admin, now=db_now())
    factories.gpr(second, world.people.owner, name="by-quota", gpus_per_node=8)

    body = assert_problem(owner.post(f"gprs/{runs.pk}/extend/", {"extra_s": 7200}), 409, "conflict")
    assert "by-quota" in body["detail"]

    Gpr.objects.filter(name="by-quota").update(state="CANCELED")
    starts_at = db_now() + timedelta(hours=2)
    closed = {"cluster": "aurora", "starts_at": starts_at.isoformat(), "ends_at": (starts_at + timedelta(hours=1)).isoformat()}
    assert admin.post("maintenance/", {**closed, "reason": "Cables."}).status_code == 201
    body = assert_problem(owner.post(f"gprs/{runs.pk}/extend/", {"extra_s": 90_000}), 409, "conflict")
    assert ("maintenance" in body["detail"], body["next_id"]) == (True, None)
    assert longer(owner, runs, body["max_ends_at"], 1).status_code == 409
    assert longer(owner, runs, body["max_ends_at"]).status_code == 200


def test_not_beyond_what_the_policy_allows_in_all(owner: Caller, world: World, gpr: Gpr) -> None:
    Slice.objects.update(duration_max_s=4000, duration_approval_s=4000)

    body = assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 401}), 400, "over_policy")

    assert body["most"] == 400
    assert owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 400}).status_code == 200


def test_what_would_have_needed_approval_needs_an_administrator(owner: Caller, admin: Caller, world: World, gpr: Gpr) -> None:
    Slice.objects.update(duration_approval_s=3700)

    assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 200}), 400, "over_policy")

    assert admin.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 200}).json()["duration_s"] == 3800


def test_an_administrator_of_the_project_extends_others_boxes_beyond_it_and_not_his_own(
    owner: Caller, teammate: Caller, world: World, gpr: Gpr
) -> None:
    Slice.objects.update(duration_approval_s=3700)
    for user in (world.people.owner, world.people.teammate):
        ProjectAdmin.objects.create(project=world.slice.project, user=user, created_at=db_now())

    assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 200}), 400, "over_policy")
    assert teammate.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 200}).json()["duration_s"] == 3800


@pytest.mark.parametrize("extra_s", [1, 59])
def test_not_even_a_little_of_anothers_promise_is_given_away(extra_s: int, owner: Caller, world: World, gpr: Gpr) -> None:
    waiting = factories.gpr(world.foreign_slice, world.people.outsider, nodes=2)
    room = Promise.objects.get(gpr=waiting).slot_start_at - max(row.ends_at for row in factories.held(gpr))
    room_s = math.floor(room.total_seconds())

    assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": room_s + extra_s}), 409, "conflict")

    promise = Promise.objects.get(gpr=waiting)
    assert promise.slot_start_at <= promise.promised_start_at


def test_a_time_that_is_none_is_refused(owner: Caller, gpr: Gpr) -> None:
    for body in [{}, {"extra_s": 0}, {"extra_s": -5}, {"extra_s": True}, {"extra_s": "soon"}, {"extra_s": 2**60}, {"extra_s": None}]:
        assert faults(owner.post(f"gprs/{gpr.pk}/extend/", body)) == ["extra_s"]


@pytest.mark.parametrize("make", [factories.gpr, factories.started], ids=["queued", "provisioning"])
def test_only_an_active_one_can_be_extended(make: Any, owner: Caller, world: World) -> None:
    gpr = make(world.slice, world.people.owner)

    assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 60}), 409, "wrong_state")


def test_a_stale_version_extends_nothing(owner: Caller, gpr: Gpr) -> None:
    assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 60, "version": 1}), 409, "stale_version")


@pytest.mark.parametrize(("persona", "status"), [("teammate", 403), ("outsider", 404), ("admin", 200), ("reader", 403), ("anonymous", 401)])
def test_who_may_extend_it(persona: str, status: int, gpr: Gpr, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(persona).post(f"gprs/{gpr.pk}/extend/", {"extra_s": 60}).status_code == status
