"""Bookings by the API: exactly then, or refused with the nearest times."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.models import Gpr, GprState
from gpr.queue.decisions import gpr_evict
from protocol.assignments import Phase
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import agent_heard

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def start() -> datetime:
    return db_now().replace(second=0, microsecond=0) + timedelta(days=1)


@pytest.fixture
def booking(ask: dict[str, Any], start: datetime) -> dict[str, Any]:
    return {**ask, "nodes": 2, "earliest_start_at": start.isoformat(), "is_booking": True}


def starts_at(row: dict[str, Any], name: str) -> datetime:
    return datetime.fromisoformat(row[name])


def test_it_is_promised_its_very_time(owner: Caller, booking: dict[str, Any], start: datetime) -> None:
    (offer,) = owner.post("gprs/estimate/", booking).json()["offers"]
    made = owner.post("gprs/", booking).json()

    assert (made["state"], made["is_booking"]) == ("QUEUED", True)
    assert starts_at(made, "promised_start_at") == starts_at(made["estimate"], "p90_at") == start
    assert starts_at(offer, "start_at") == starts_at(offer, "promised_start_at") == start
    assert offer["p50_s"] == offer["p90_s"] == offer["wait_s"]
    assert offer["alternatives"] == []
    assert made["estimate"]["basis"].startswith("Booked")


def test_it_starts_when_its_time_has_come_and_the_gap_before_is_used(world: World, owner: Caller, booking: dict[str, Any]) -> None:
    soon = db_now() + timedelta(minutes=90)
    made = owner.post("gprs/", {**booking, "earliest_start_at": soon.isoformat()}).json()

    short = factories.started(world.foreign_slice, world.people.outsider, duration_s=1800)
    long = factories.started(world.foreign_slice, world.people.outsider, duration_s=2 * 3600)

    gpr = Gpr.objects.get(pk=made["id"])
    assert (short.state, long.state, gpr.state) == (GprState.PROVISIONING, GprState.QUEUED, GprState.QUEUED)


@pytest.mark.parametrize("persona", ["owner", "outsider"])
def test_a_taken_time_is_refused_with_the_nearest_ones_and_names_nobody(
    persona: str, world: World, owner: Caller, as_user: Any, booking: dict[str, Any], start: datetime
) -> None:
    owner.post("gprs/", {**booking, "name": "canary"})
    own = "vision" if persona == "owner" else "canary-slice"
    asked = {**booking, "slice": own, "earliest_start_at": (start + timedelta(minutes=30)).isoformat()}
    caller = as_user(getattr(world.people, persona))

    for path in ("gprs/", "gprs/estimate/"):
        body = assert_problem(caller.post(path, asked), 409, "booking_does_not_fit")
        before_at, after_at = (starts_at(body, name) for name in ("nearest_before_at", "nearest_after_at"))
        assert before_at < start < start + HOUR <= after_at
        assert "canary," not in str(body)
        assert "vision" not in str(body)

    assert Gpr.objects.count() == 1
    for near_at in (before_at, after_at):
        assert caller.post("gprs/estimate/", {**asked, "earliest_start_at": near_at.isoformat()}).status_code == 200


@pytest.mark.parametrize("change", [{"earliest_start_at": None}, {"earliest_start_at": "soon"}])
def test_it_says_when_and_some_minutes_ahead(change: dict[str, Any], owner: Caller, booking: dict[str, Any]) -> None:
    if change["earliest_start_at"] == "soon":
        change = {"earliest_start_at": (db_now() + timedelta(minutes=2)).isoformat()}

    assert faults(owner.post("gprs/", {**booking, **change})) == ["earliest_start_at"]


def test_moved_by_hand_it_gets_the_new_time_or_keeps_the_old_one(world: World, owner: Caller, booking: Any, start: datetime) -> None:
    made = owner.post("gprs/", booking).json()
    factories.gpr(world.foreign_slice, world.people.outsider, nodes=2, earliest_start_at=start + 4 * HOUR, is_booking=True)

    refused = owner.patch(f"gprs/{made['id']}/", {"earliest_start_at": (start + 4 * HOUR).isoformat()})
    assert_problem(refused, 409, "booking_does_not_fit")
    assert starts_at(owner.get(f"gprs/{made['id']}/").json(), "promised_start_at") == start

    for moved_at in (start - HOUR, start + HOUR):
        moved = owner.patch(f"gprs/{made['id']}/", {"earliest_start_at": moved_at.isoformat()}).json()
        assert starts_at(moved, "promised_start_at") == moved_at


def test_what_waits_for_approval_holds_no_time_and_is_refused_when_it_is_gone(
    world: World, owner: Caller, admin: Caller, booking: dict[str, Any], start: datetime
) -> None:
    asked = owner.post("gprs/", {**booking, "priority": 300}).json()
    factories.gpr(world.foreign_slice, world.people.outsider, nodes=2, earliest_start_at=start, is_booking=True)

    assert asked["state"] == "PENDING_APPROVAL"
    assert_problem(admin.post(f"gprs/{asked['id']}/approve/"), 409, "booking_does_not_fit")
    assert_problem(owner.post("gprs/", {**booking, "priority": 300}), 409, "booking_does_not_fit")


def test_what_is_left_of_one_that_ran_is_a_request_as_any_other(world: World, admin: Caller, owner: Caller, booking: Any) -> None:
    made = owner.post("gprs/", {**booking, "nodes": 1}).json()
    start_at = starts_at(made, "promised_start_at")
    agent_heard(world.cluster, start_at)
    tick(now=start_at)
    gpr = Gpr.objects.get(pk=made["id"])
    gpr_evict(gpr=gpr, actor=world.people.admin, why="A disk.", now=start_at)

    factories.observe(gpr, Phase.RELEASED, at=start_at + HOUR)
    agent_heard(world.cluster, start_at + HOUR)
    tick(now=start_at + HOUR)

    gpr.refresh_from_db()
    assert (gpr.run, gpr.state) == (2, GprState.PROVISIONING)
