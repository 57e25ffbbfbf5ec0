"""A series of bookings is made in one plan, and comes out as if each of its occurrences had been booked after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import pytest

from core.errors import BookingDoesNotFit
from core.words import utc
from gpr.allocation import stored_plan
from gpr.bookings import services as bookings
from gpr.bookings.services import RETRIED_AFTER, SeriesTerms, occurrences_retry, series_cancel, series_create
from gpr.models import BookingSeries, Gpr, GprState, Promise, RepeatRule
from gpr.requests import planning
from gpr.requests.editing import gpr_cancel
from gpr.requests.planning import bookings_fitting
from gpr.requests.spec import BOOKING_AHEAD
from journal.models import Event
from planner.sharing.bookings import NearestTimes
from planner.snapshot import Snapshot
from slices.models import Slice
from tests import factories
from tests.builders import make_slice, spec
from tests.lifecycle.stage import Stage

# Each day: tests/api/queue/test_booking_series.py, and tests/planner/sharing/test_bookings.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

DAY, COUNT = timedelta(days=1), 6
# Of an occurrence: its time, whether it is booked, and the nearest times where not.
Outcome = tuple[datetime, bool, datetime | None, datetime | None]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def starts(stage: Stage) -> list[datetime]:
    return [stage.now + n * DAY for n in range(1, COUNT + 1)]


def taken(stage: Stage, days: Iterable[int]) -> None:
    """Books both nodes at these times for another workspace."""
    for day in days:
        stage.submit(make_slice(stage.cluster, owner=stage.owner), nodes=2, earliest_start_at=starts(stage)[day], is_booking=True)


def series_of(stage: Stage, slice_: Slice | None = None, **asked: Any) -> BookingSeries:
    once = spec(slice_ or stage.slice, **asked)
    ask = SeriesTerms(spec=once, first_start_at=starts(stage)[0], rule=RepeatRule.DAILY, zone="UTC", count=COUNT)
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


@pytest.mark.parametrize(
    ("nodes", "days"),
    [
        (1, [0, 1, 3, 4, 5]),
        (2, []),
        (2, [1, 2]),
        # These have other numbers of nodes and of taken days than the cases above.
        *(
            pytest.param(*other, marks=pytest.mark.soak)
            for other in ((1, []), (1, [0]), (1, [3]), (1, [1, 2]), (2, [0]), (2, [3]), (2, [0, 1, 3, 4, 5]))
        ),
    ],
)
def test_it_comes_out_as_one_after_the_other_would(nodes: int, days: list[int], stage: Stage) -> None:
    """This compares two clusters that are alike, each with its own tenants."""
    twin = Stage()
    for each in (stage, twin):
        taken(each, days)

    made = at_once(stage, nodes=nodes)

    assert made == one_by_one(twin, nodes=nodes)
    assert [is_booked for _, is_booked, _, _ in made] == [day not in days for day in range(COUNT)]


def test_however_many_they_are_there_is_one_plan(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Snapshot] = []

    def counting(planner: Callable[..., Any]) -> Callable[..., Any]:
        def planned(snapshot: Snapshot, *args: Any, **how: Any) -> Any:
            plans.append(snapshot)
            return planner(snapshot, *args, **how)

        return planned

    taken(stage, [2])
    for name in ("plan", "plan_newcomers"):
        monkeypatch.setattr(stored_plan, name, counting(getattr(stored_plan, name)))

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


def test_a_booking_that_the_plan_has_no_place_for_is_refused_also_where_it_would_fit_a_moment_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would wait for ever, as a booking without a promise."""
    taken(stage, [1])
    monkeypatch.setattr(planning, "nearest", lambda *args, **how: NearestTimes(fits=True, before_s=None, after_s=None))

    with pytest.raises(BookingDoesNotFit, match="Try again"):
        stage.submit(nodes=2, earliest_start_at=starts(stage)[1], is_booking=True)
    assert not Gpr.objects.filter(slice=stage.slice).exists()


def refused_on(stage: Stage, days: Iterable[int]) -> BookingSeries:
    """A series of which these have no place, for others have booked both nodes."""
    taken(stage, days)
    return series_of(stage, nodes=2)


def others(stage: Stage) -> list[Gpr]:
    return list(Gpr.objects.exclude(slice=stage.slice).order_by("earliest_start_at").select_related("slice"))


def refusals(series: BookingSeries) -> list[bool]:
    return [bool(row.refusal) for row in series.occurrences.all()]


def told(kind: str) -> int:
    return Event.objects.filter(kind=kind).count()


def test_one_that_was_refused_is_booked_when_there_is_room_after_all_and_its_owner_is_told_once(stage: Stage) -> None:
    series = refused_on(stage, [1, 2])
    first, _ = others(stage)
    gpr_cancel(gpr=first, actor=stage.owner, now=stage.after(60))

    for _ in range(3):
        stage.now += RETRIED_AFTER
        stage.tick()

    row = series.occurrences.get(starts_at=first.earliest_start_at)
    assert refusals(series) == [False, False, True, False, False, False]
    assert row.gpr is not None
    assert (row.gpr.state, row.gpr.promise.promised_start_at) == (GprState.QUEUED, first.earliest_start_at)
    assert (row.nearest_before_at, row.nearest_after_at) == (None, None)
    assert (told("booking_series.taken_up"), told("booking_series.refused")) == (1, 2)
    assert series.slice_id == Event.objects.get(kind="booking_series.taken_up").slice_id


def test_where_there_is_no_room_nothing_is_planned_and_it_is_looked_at_now_and_then_only(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_on(stage, [1, 2])
    looks: list[int] = []

    def looked(specs: Any, **how: Any) -> list[bool]:
        looks.append(len(specs))
        return bookings_fitting(specs, **how)

    monkeypatch.setattr(bookings, "bookings_fitting", looked)
    monkeypatch.setattr(bookings, "gprs_submit", None)

    for _ in range(5):
        stage.after(60)
        stage.tick()
    assert looks == []
    stage.now += RETRIED_AFTER
    for _ in range(3):
        stage.after(1)
        stage.tick()
    assert len(looks) == 1


def test_few_are_looked_at_in_one_tick_and_the_others_in_the_next(stage: Stage) -> None:
    series = refused_on(stage, [1, 2, 3])
    stage.now += RETRIED_AFTER

    for counts in (2, 3):
        occurrences_retry(now=stage.now)
        assert series.occurrences.filter(gpr=None, tried_at=stage.now).count() == counts


def test_nearest_times_that_have_no_room_any_more_are_told_no_longer(stage: Stage) -> None:
    series = refused_on(stage, [1])
    row = series.occurrences.get(gpr=None)
    before_at, after_at = row.nearest_before_at, row.nearest_after_at
    assert before_at is not None
    assert after_at is not None
    stage.submit(make_slice(stage.cluster, owner=stage.owner), nodes=2, earliest_start_at=after_at, is_booking=True)

    occurrences_retry(now=stage.now + RETRIED_AFTER)
    row.refresh_from_db()
    assert (row.nearest_before_at, row.nearest_after_at) == (before_at, None)
    assert utc(before_at) in row.refusal
    assert utc(after_at) not in row.refusal

    occurrences_retry(now=before_at + timedelta(minutes=1))
    row.refresh_from_db()
    assert row.nearest_before_at is None


def test_of_one_that_has_room_and_needs_approval_nobody_is_told_that_it_is_booked(stage: Stage) -> None:
    taken(stage, [1])
    series_of(stage, nodes=2, priority=250)
    gpr_cancel(gpr=others(stage)[0], actor=stage.owner, now=stage.after(60))

    occurrences_retry(now=stage.now + RETRIED_AFTER)

    text = Event.objects.get(kind="booking_series.taken_up").message
    assert text.endswith("waits for approval.")


def test_it_is_tried_no_more_when_its_start_is_too_near_or_its_series_is_canceled(stage: Stage) -> None:
    near_at = starts(stage)[1]
    series = refused_on(stage, [1])
    gpr_cancel(gpr=others(stage)[0], actor=stage.owner, now=stage.after(60))
    occurrences_retry(now=near_at - BOOKING_AHEAD + timedelta(seconds=1))
    assert refusals(series)[1]

    series_cancel(series=series, actor=stage.owner, now=stage.after(60))
    occurrences_retry(now=stage.now + RETRIED_AFTER)
    assert refusals(series)[1]


def test_a_series_that_cannot_be_tried_again_stops_no_other_for_long(stage: Stage) -> None:
    taken(stage, [1])
    (other,) = others(stage)
    spoiled, sound = (series_of(stage, slice_, nodes=1) for slice_ in (stage.slice, make_slice(stage.cluster, owner=stage.owner)))
    BookingSeries.objects.filter(pk=spoiled.pk).update(asked={})
    gpr_cancel(gpr=other, actor=stage.owner, now=stage.after(60))

    stage.now += RETRIED_AFTER
    for _ in range(2):
        stage.after(1)
        stage.tick()

    assert (refusals(spoiled)[1], refusals(sound)[1]) == (True, False)


def test_new_nodes_give_room_as_well(stage: Stage) -> None:
    series = refused_on(stage, [1])
    factories.add_nodes(stage.cluster, 2, gpus=4)

    stage.now += RETRIED_AFTER
    stage.tick()

    assert refusals(series) == [False] * COUNT
