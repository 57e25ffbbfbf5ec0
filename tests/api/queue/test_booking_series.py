"""`booking-series/` repeats a booking; each occurrence is a GPR of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.bookings.recurrence import Recurrence, shortest_gap
from gpr.models import BookingSeries, Gpr, GprState, RepeatRule
from journal.models import Event
from slices.models import Role
from slices.services import member_set
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BERLIN = ZoneInfo("Europe/Berlin")


def local(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=BERLIN)  # type: ignore[arg-type]


@pytest.fixture
def start() -> datetime:
    return db_now().replace(second=0, microsecond=0) + DAY


@pytest.fixture
def series(ask: dict[str, Any], start: datetime) -> dict[str, Any]:
    return {**ask, "nodes": 2, "first_start_at": start.isoformat(), "rule": "daily", "count": 3}


def test_each_starts_at_the_same_time_of_day_whatever_daylight_saving_does() -> None:
    spring = Recurrence(local(2027, 3, 26, 18), RepeatRule.DAILY, BERLIN, count=4).starts()
    skipped = Recurrence(local(2027, 3, 27, 2, 30), RepeatRule.DAILY, BERLIN, count=3).starts()

    assert [at.astimezone(BERLIN).hour for at in spring] == [18, 18, 18, 18]
    assert [at.astimezone(UTC).hour for at in spring] == [17, 17, 16, 16]
    assert shortest_gap(spring) == timedelta(hours=23)
    assert [f"{at.astimezone(BERLIN):%d %H:%M}" for at in skipped] == ["27 02:30", "28 03:30", "29 02:30"]


@pytest.mark.parametrize(
    ("rule", "days"),
    [(RepeatRule.DAILY, [20, 21, 22, 23]), (RepeatRule.WEEKDAYS, [20, 23, 24, 25]), (RepeatRule.WEEKLY, [20, 27])],
)
def test_the_rule_says_on_which_days_and_the_end_is_the_last(rule: RepeatRule, days: list[int]) -> None:
    """20 November 2026 is a Friday."""
    friday = datetime(2026, 11, 20, 12, tzinfo=UTC)
    until_at = datetime(2026, 11, days[-1], 12, tzinfo=UTC)

    assert [at.day for at in Recurrence(friday, rule, ZoneInfo("UTC"), until_at=until_at).starts()] == days


@pytest.mark.django_db
def test_each_occurrence_within_four_weeks_is_a_booking_with_its_own_promise(
    owner: Caller, series: dict[str, Any], start: datetime
) -> None:
    made = owner.post("booking-series/", {**series, "count": 40}).json()

    rows = [owner.get(f"gprs/{row['gpr_id']}/").json() for row in made["occurrences"]]
    assert len(rows) == 27 or len(rows) == 28
    assert [datetime.fromisoformat(row["promised_start_at"]) for row in rows] == [start + n * DAY for n in range(len(rows))]
    assert all(row["is_booking"] for row in rows)
    assert datetime.fromisoformat(made["next_start_at"]) == start + len(rows) * DAY


@pytest.mark.django_db
def test_the_tick_books_what_comes_within_four_weeks_once(world: World, owner: Caller, series: dict[str, Any], start: datetime) -> None:
    made = owner.post("booking-series/", {**series, "count": 40, "idle_timeout_s": "30m"}).json()
    booked = len(made["occurrences"])

    for _ in range(2):
        tick(now=start + 2 * DAY)

    told = owner.get(f"booking-series/{made['id']}/").json()["occurrences"]
    assert [datetime.fromisoformat(row["starts_at"]) for row in told] == [start + n * DAY for n in range(31)]
    assert not [row["refusal"] for row in told if row["refusal"]]
    assert booked < 31


@pytest.mark.django_db
def test_one_that_does_not_fit_is_told_with_the_nearest_times_and_the_others_stand(
    world: World, owner: Caller, series: dict[str, Any], start: datetime
) -> None:
    factories.gpr(world.foreign_slice, world.people.outsider, earliest_start_at=start + DAY, is_booking=True)

    made = owner.post("booking-series/", series).json()

    first, second, third = made["occurrences"]
    assert (first["state"], second["state"], third["state"]) == ("QUEUED", None, "QUEUED")
    assert "does not fit" in second["refusal"]
    assert datetime.fromisoformat(second["nearest_before_at"]) < start + DAY < datetime.fromisoformat(second["nearest_after_at"])
    (event,) = Event.objects.filter(kind="booking_series.refused", slice_id=world.slice.pk)
    assert world.people.outsider.name not in event.message


@pytest.mark.django_db
def test_where_none_fits_there_is_no_series(world: World, owner: Caller, series: dict[str, Any], start: datetime) -> None:
    factories.gpr(world.foreign_slice, world.people.outsider, earliest_start_at=start, is_booking=True)

    assert_problem(owner.post("booking-series/", {**series, "count": 1}), 409, "booking_does_not_fit")
    assert faults(owner.post("booking-series/", {**series, "idle_timeout_s": 60})) == ["idle_timeout_s"]
    assert not BookingSeries.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"duration_s": 24 * 3600}, "duration_s"),
        ({"rule": "weekly", "duration_s": 7 * 24 * 3600}, "duration_s"),
        ({"count": 201}, "count"),
        ({"count": None, "until_at": "2099-01-01T00:00:00Z"}, "until_at"),
        ({"count": None}, "until_at"),
        ({"until_at": "2099-01-01T00:00:00Z"}, "until_at"),
        ({"count": None, "until_at": "2020-01-01T00:00:00Z"}, "until_at"),
        ({"count": 0}, "count"),
        ({"zone": "Nowhere/Town"}, "zone"),
        ({"zone": "../etc"}, "zone"),
        ({"rule": "monthly"}, "rule"),
        ({"first_start_at": "2020-01-01T00:00:00Z"}, "first_start_at"),
        ({"shape": "Z1"}, "shape"),
        ({"is_booking": True}, "is_booking"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(change: dict[str, Any], field: str, owner: Caller, series: dict[str, Any]) -> None:
    assert faults(owner.post("booking-series/", {**series, **change})) == [field]
    assert not BookingSeries.objects.exists()


@pytest.mark.django_db
def test_canceled_it_books_no_more_and_what_waits_is_canceled(owner: Caller, series: dict[str, Any], start: datetime) -> None:
    made = owner.post("booking-series/", {**series, "count": 40}).json()

    assert owner.delete(f"booking-series/{made['id']}/").status_code == 204
    tick(now=start + 3 * DAY)

    assert set(Gpr.objects.filter(earliest_start_at__gt=start + 4 * DAY).values_list("state", flat=True)) == {GprState.CANCELED}
    assert_problem(owner.delete(f"booking-series/{made['id']}/"), 409, "wrong_state")


@pytest.mark.django_db
def test_when_its_owner_may_not_book_any_more_that_is_told_and_the_tick_goes_on(
    world: World, owner: Caller, series: dict[str, Any], start: datetime
) -> None:
    made = owner.post("booking-series/", {**series, "count": 40}).json()
    for user, role in ((world.people.teammate, Role.OWNER), (world.people.owner, Role.VIEWER)):
        member_set(slice_=world.slice, user=user, role=role, actor=world.people.admin, now=db_now())

    assert tick(now=start + 2 * DAY) is not None

    last = BookingSeries.objects.get(pk=made["id"]).occurrences.last()
    assert last is not None
    assert "role editor" in last.refusal
