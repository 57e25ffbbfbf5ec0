"""A series of bookings is made in one plan, and comes out as if each of its occurrences had been booked after the other."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from egs.errors import BookingDoesNotFit
from gpr import witness
from gpr.models import BookingSeries, Gpr, GprState, Promise, RepeatRule
from gpr.planner.engine import plan
from gpr.planner.plan import Plan
from gpr.planner.snapshot import Snapshot
from gpr.services.bookings import SeriesAsk, series_create
from journal.models import Event
from tests.builders import make_slice, spec
from tests.lifecycle.stage import Stage

pytestmark = pytest.mark.django_db

DAY, COUNT = timedelta(days=1), 6
# Of an occurrence: its time, whether it is booked, and the nearest times where not.
Outcome = tuple[datetime, bool, datetime | None, datetime | None]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def starts(stage: Stage) -> list[datetime]:
    return [stage.now + n * DAY for n in range(1, COUNT + 1)]


def taken(stage: Stage, days: Iterable[int]) -> None:
    """By another workspace, which has booked both nodes at these times."""
    for day in days:
        stage.submit(make_slice(stage.cluster, owner=stage.owner), nodes=2, earliest_start_at=starts(stage)[day], is_booking=True)


def series_of(stage: Stage, **asked: Any) -> BookingSeries:
    first_start_at = starts(stage)[0]
    ask = SeriesAsk(spec=spec(stage.slice, **asked), first_start_at=first_start_at, rule=RepeatRule.DAILY, zone="UTC", count=COUNT)
    return series_create(actor=stage.owner, ask=ask, now=stage.now)


def at_once(stage: Stage, **asked: Any) -> list[Outcome]:
    rows = series_of(stage, **asked).occurrences.all()
    return [(row.starts_at, row.gpr is not None, row.nearest_before_at, row.nearest_after_at) for row in rows]


def one_by_one(stage: Stage, **asked: Any) -> list[Outcome]:
    return [booked(stage, starts_at, **asked) for starts_at in starts(stage)]


def booked(stage: Stage, starts_at: datetime, **asked: Any) -> Outcome:
    try:
        stage.submit(earliest_start_at=starts_at, is_booking=True, **asked)
    except BookingDoesNotFit as refused:
        return starts_at, False, refused.extra["nearest_before_at"], refused.extra["nearest_after_at"]
    return starts_at, True, None, None


@pytest.mark.parametrize("days", [[], [0], [3], [1, 2], [0, 1, 3, 4, 5]])
@pytest.mark.parametrize("nodes", [1, 2])
def test_it_comes_out_as_one_after_the_other_would(nodes: int, days: list[int], stage: Stage) -> None:
    """On two clusters alike, each with its own tenants."""
    twin = Stage()
    for each in (stage, twin):
        taken(each, days)

    made = at_once(stage, nodes=nodes)

    assert made == one_by_one(twin, nodes=nodes)
    assert [is_booked for _, is_booked, _, _ in made] == [day not in days for day in range(COUNT)]


def test_however_many_they_are_there_is_one_plan(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Snapshot] = []

    def planned(snapshot: Snapshot, **how: Any) -> Plan:
        plans.append(snapshot)
        return plan(snapshot, **how)

    taken(stage, [2])
    monkeypatch.setattr(witness, "plan", planned)

    series_of(stage, nodes=2)

    assert len(plans) == 1


def test_of_those_without_a_place_nothing_is_stored_but_that_they_were_refused(stage: Stage) -> None:
    taken(stage, [1, 2])

    series = series_of(stage, nodes=2)

    booked = Gpr.objects.filter(slice=stage.slice)
    assert set(booked) == {row.gpr for row in series.occurrences.all() if row.gpr}
    assert Promise.objects.filter(gpr__in=booked).count() == booked.count() == COUNT - 2
    assert [Event.objects.filter(kind=kind, slice_id=stage.slice.pk).count() for kind in ("gpr.created", "booking_series.refused")] == [
        COUNT - 2,
        2,
    ]


def test_occurrences_that_need_approval_wait_for_it_and_those_without_a_place_are_refused_all_the_same(stage: Stage) -> None:
    taken(stage, [4])

    series = series_of(stage, nodes=2, priority=250)

    states = [row.gpr.state if row.gpr else None for row in series.occurrences.all()]
    assert states == [GprState.PENDING_APPROVAL] * 4 + [None] + [GprState.PENDING_APPROVAL]
    assert not Promise.objects.filter(gpr__slice=stage.slice).exists()
