"""The published figures of promises cover the right promises, and each reader sees a fitting part."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.models import Gpr, Promise
from gpr.promises import calibration
from gpr.promises.calibration import Calibration, calibration_for
from planner.causes import Cause
from slices.models import Slice
from tests import factories
from tests.calibration.outcomes import moved, settled, waited
from tests.factories import People
from tests.pages.user_world import World, make_world

pytestmark = pytest.mark.django_db
MINUTE = 60


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def now() -> datetime:
    """Late enough in the day that a few hours ago is today, and early enough that a few minutes on is, by UTC."""
    return db_now().replace(hour=23, minute=0)


@pytest.fixture
def theirs(world: World) -> list[Slice]:
    """Workspaces of three projects, which only the outsider sees."""
    more = [factories.make_slice(world.cluster, owner=world.people.outsider, of=factories.project()) for _ in range(2)]
    return [world.foreign, *more]


def for_owner(world: World, now: datetime) -> Calibration:
    return calibration_for(world.people.owner, days=7, now=now)


def for_admin(people: People, now: datetime, days: int = 30) -> Calibration:
    return calibration_for(people.admin, days=days, now=now)


def test_a_promise_is_kept_by_a_start_no_later_than_a_minute_after_it(world: World, now: datetime) -> None:
    for margin_s in (600, 0, -60, -61, -900):
        settled(world.slice, world.people.owner, now, margin_s=margin_s)

    found = for_admin(world.people, now)

    assert (found.total.due_count, found.total.kept_count, found.total.kept_share) == (5, 3, 0.6)
    assert [row.margin_s for row in found.worst] == [-900, -61]


def test_what_is_overdue_and_waits_still_counts_as_due_and_not_kept(world: World, now: datetime) -> None:
    settled(world.slice, world.people.owner, now)
    waiting = factories.gpr(world.slice, world.people.owner)
    Promise.objects.filter(gpr=waiting).update(first_promised_start_at=now - timedelta(seconds=60.5))

    total = for_admin(world.people, now).total

    assert (total.due_count, total.kept_count) == (2, 1)


@pytest.mark.both_databases
def test_the_figures_are_over_those_that_they_speak_of(world: World, now: datetime) -> None:
    """Margin and accuracy: who had to wait. Coverage and width: who was told a range that was learned."""
    slice_, owner = world.slice, world.people.owner
    settled(slice_, owner, now, 5)
    waited(slice_, owner, now, [500, 590, 620, 1_900, 3_000])
    for outcome in waited(slice_, owner, now, [3_600]):
        outcome.is_learned = False
        outcome.save()

    total = for_admin(world.people, now).total

    assert (total.due_count, total.waited_count, total.ranged_count) == (11, 6, 5)
    assert (total.p50_coverage, total.p90_coverage, total.width_p50_s) == (0.4, 0.6, 1_200)
    assert (total.margin_p50_s, total.margin_p90_s) == ((2_980 + 1_700) / 2, (3_100 + 3_010) / 2)
    # Told were 600 s by the queue as it stood, and 3,600 s at the latest.
    assert total.expected.median_error_s == (100 + 1_300) / 2
    assert (total.expected.within_1min, total.expected.within_10min) == (2 / 6, 3 / 6)
    assert (total.promise.within_1min, total.promise.within_10min) == (1 / 6, 2 / 6)


@pytest.mark.both_databases
def test_each_cause_counts_the_promises_that_it_moved_and_moves_of_other_promises_of_a_gpr_do_not(world: World, now: datetime) -> None:
    twice, once, never = waited(world.slice, world.people.owner, now, [600, 600, 600])
    moved(twice, Cause.OVERRUN)
    moved(twice, Cause.OVERRUN)
    moved(twice, Cause.NODE_FAILURE)
    moved(once, Cause.OVERRUN)
    earlier = moved(never, Cause.ADMIN)
    earlier.at = never.made_at - timedelta(days=1)
    earlier.save()

    found = for_admin(world.people, now)

    assert [(cause.cause, cause.count) for cause in found.causes] == [("overrun", 2), ("node_failure", 1)]
    assert {row.gpr_id: len(row.moves) for row in found.last} == {twice.gpr_id: 3, once.gpr_id: 1, never.gpr_id: 0}


def test_classes_with_twenty_outcomes_are_told_and_smaller_ones_are_not(world: World, now: datetime) -> None:
    slice_, owner = world.slice, world.people.owner
    settled(slice_, owner, now, 20, length_s=899)
    settled(slice_, owner, now, 20, length_s=900, is_gang=True)
    settled(slice_, owner, now, 21, length_s=10**6)
    settled(slice_, owner, now, 19, length_s=3_600)

    classes = for_admin(world.people, now).classes
    assert [(one.length_from_s, one.length_below_s, one.is_gang, one.score.due_count) for one in classes] == [
        (0, 900, False, 20),
        (57_600, None, False, 21),
        (900, 3_600, True, 20),
    ]


@pytest.mark.both_databases
@pytest.mark.parametrize(("days", "count", "first"), [(7, 7, 6), (30, 30, 29), (90, 13, 89)])
def test_time_is_cut_into_days_and_a_quarter_into_weeks(days: int, count: int, first: int, world: World, now: datetime) -> None:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    slice_, owner = world.slice, world.people.owner
    settled(slice_, owner, now - timedelta(minutes=1), 2)
    settled(slice_, owner, today - timedelta(days=first), 3)
    settled(slice_, owner, today - timedelta(days=first, seconds=1), 4)  # before

    found = for_admin(world.people, now, days)

    assert (len(found.spans), found.spans[0].from_at, found.spans[-1].until_at) == (count, today - timedelta(days=first), now)
    assert (found.spans[0].score.due_count, found.spans[-1].score.due_count, found.total.due_count) == (3, 2, 5)


def test_a_start_today_changes_nothing_that_strangers_read(world: World, theirs: list[Slice], now: datetime) -> None:
    outsider = world.people.outsider
    for slice_ in theirs:
        waited(slice_, outsider, now - timedelta(days=1), [600] * 20)
    before = for_owner(world, now)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    assert (before.total.due_count, before.since_at, before.until_at) == (60, today - timedelta(days=7), today)
    assert before.spans[-1].until_at == today

    moved(waited(world.foreign, outsider, now, [9_000])[0], Cause.OVERRUN)
    overdue = factories.gpr(world.foreign, outsider)
    Promise.objects.filter(gpr=overdue).update(first_promised_start_at=now - timedelta(hours=1))

    assert repr(for_owner(world, now + timedelta(minutes=10))) == repr(before)
    assert for_admin(world.people, now).total.due_count == 62


@pytest.mark.parametrize(
    ("own", "of_strangers", "due_count"),
    [(0, (7, 7, 6), 20), (9, (7, 7, 6), 20), (10, (7, 7, 6), 30), (50, (7, 7, 5), None), (0, (99, 99, 0), None), (99, (0, 0, 0), None)],
)
def test_members_read_what_rests_on_twenty_outcomes_of_three_projects_that_they_cannot_see(
    own: int, of_strangers: tuple[int, ...], due_count: int | None, world: World, theirs: list[Slice], now: datetime
) -> None:
    yesterday = now - timedelta(days=1)
    settled(world.slice, world.people.owner, yesterday, own)
    for slice_, count in zip(theirs, of_strangers, strict=True):
        for outcome in settled(slice_, world.people.outsider, yesterday, count):
            moved(outcome, Cause.OVERRUN)

    found = for_owner(world, now)

    expected = [due_count] if due_count else []
    assert (found.total == calibration.Score()) == (due_count is None)
    assert found.total.due_count == due_count
    assert [span.score.due_count for span in found.spans if span.score != calibration.Score()] == expected
    assert [one.score.due_count for one in found.classes] == expected
    assert [(cause.cause, cause.count) for cause in found.causes] == ([("overrun", None)] if due_count else [])
    assert for_admin(world.people, now).total.due_count == own + sum(of_strangers)


@pytest.mark.both_databases
def test_members_read_round_figures(world: World, theirs: list[Slice], now: datetime) -> None:
    """Whole percents, tens and minutes; nothing of the few that had to wait, until they are enough."""
    people, yesterday = world.people, now - timedelta(days=1)
    for slice_ in theirs:
        settled(slice_, people.outsider, yesterday, 21)
    late = settled(world.foreign, people.outsider, yesterday, 2, margin_s=-900, name="canary")
    moved(late[0], Cause.OVERRUN)
    waited(world.foreign, people.outsider, yesterday, [605] * 19)

    for person in (people.owner, people.teammate):
        found = calibration_for(person, days=7, now=now)
        total = found.total
        assert (total.due_count, total.kept_share, total.moved_share) == (80, 0.97, 0.01)
        assert (total.kept_count, total.moved_count, total.waited_count, total.ranged_count) == (None, None, None, None)
        assert (total.margin_p50_s, total.expected.median_error_s, total.p90_coverage, total.width_p50_s) == (None,) * 4
        assert (found.causes, found.worst) == ((), ())

    for slice_ in theirs:
        waited(slice_, people.outsider, yesterday, [605], range_s=(600, 1_790))
    total = for_owner(world, now).total
    assert (total.waited_count, total.ranged_count) == (20, 20)
    assert (total.margin_p50_s, total.expected.median_error_s, total.p90_coverage, total.width_p50_s) == (3_000, 0, 1.0, 1_200)


def test_each_reads_the_last_promises_of_his_own_workspaces(world: World, now: datetime) -> None:
    people = world.people
    settled(world.slice, people.owner, now, 25, name="mine")
    settled(world.foreign, people.outsider, now, 2, name="canary")

    names = {name: [row.gpr for row in calibration_for(getattr(people, name), days=7, now=now).last] for name in ("teammate", "outsider")}

    assert names == {"teammate": ["mine"] * calibration.LAST_SHOWN, "outsider": ["canary"] * 2}


@pytest.mark.both_databases
def test_the_newest_are_read_where_there_are_too_many_and_it_says_so(world: World, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "OUTCOMES_MAX", 30)
    settled(world.slice, world.people.owner, now - timedelta(days=1), 30)
    assert not for_admin(world.people, now).is_cut

    settled(world.slice, world.people.owner, now - timedelta(days=2), 10, margin_s=-900)
    found = for_admin(world.people, now)
    assert (found.is_cut, found.since_at, found.total.due_count, found.total.kept_share) == (True, now - timedelta(days=1), 30, 1.0)

    waiting = factories.gpr(world.slice, world.people.owner)
    Promise.objects.filter(gpr=waiting).update(first_promised_start_at=now - timedelta(hours=1))
    found = for_admin(world.people, now)
    assert (found.is_cut, found.total.due_count, found.total.kept_count) == (True, 30, 29)


@pytest.mark.parametrize(("persona", "most"), [("owner", 5), ("admin", 7)])
def test_ten_and_a_hundred_outcomes_cost_the_same_queries(persona: str, most: int, world: World, now: datetime) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as made:
            calibration_for(getattr(world.people, persona), days=30, now=now)
        return len(made)

    def fill(count: int) -> None:
        for outcome in waited(world.slice, world.people.owner, now, [3_700] * count):
            moved(outcome, Cause.OVERRUN)

    fill(10)
    few = cost()
    fill(90)

    assert Gpr.objects.count() == 100
    assert few == cost() <= most
