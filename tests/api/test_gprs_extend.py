from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pytest

from gpr.models import Gpr, Promise
from slices.models import Slice
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults


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


def test_not_if_somebody_was_promised_these_gpus(owner: Caller, world: World, gpr: Gpr) -> None:
    factories.gpr(world.foreign_slice, world.people.outsider, nodes=2)

    body = assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 3600}), 409, "conflict")

    assert "outsider" not in str(body)
    assert owner.get(f"gprs/{gpr.pk}/").json()["duration_s"] == 3600


def test_not_beyond_what_the_policy_allows_in_all(owner: Caller, world: World, gpr: Gpr) -> None:
    Slice.objects.update(duration_max_s=4000, duration_approval_s=4000)

    body = assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 401}), 400, "over_policy")

    assert body["most"] == 400
    assert owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 400}).status_code == 200


def test_what_would_have_needed_approval_needs_an_administrator(owner: Caller, admin: Caller, world: World, gpr: Gpr) -> None:
    Slice.objects.update(duration_approval_s=3700)

    assert_problem(owner.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 200}), 400, "over_policy")

    assert admin.post(f"gprs/{gpr.pk}/extend/", {"extra_s": 200}).json()["duration_s"] == 3800


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
