"""An administrator's order of the queue: who stands where, what it does to promises, and that it lasts."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta

import pytest

from core.errors import Conflict, IllegalTransition
from gpr.models import Gpr, GprState, ProjectUsage
from gpr.queue.decisions import gpr_set_priority
from gpr.queue.moves import MoveTo, gpr_move
from gpr.queue.previews import preview_move, preview_priority
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.selectors import QUEUE_ORDER, start_positions
from journal.models import Event
from planner.causes import Cause
from tests.builders import make_slice
from tests.lifecycle.stage import Stage, fresh

# Each day: tests/planner/sharing/test_moving.py, and tests/api/requests/test_decisions.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
HOUR_S = 3600


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> Stage:
    """Its only node is taken for a day."""
    made = Stage(nodes=1)
    made.active(duration_s=24 * HOUR_S, evictable=False)
    return made


@pytest.fixture
def stage(built_stage: Stage, db: None) -> Stage:
    return deepcopy(built_stage)


def queued(stage: Stage, *hours: float, priority: int = 101) -> list[Gpr]:
    """Files a request for each of these hours; each has a workspace and a moment of its own."""
    slices = [make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project) for _ in hours]
    made = []
    for slice_, length in zip(slices, hours, strict=True):
        stage.after(1)
        made.append(stage.submit(slice_, duration_s=int(length * HOUR_S), priority=priority, name=f"job-{length}-{slice_.name}"))
    return made


def order(stage: Stage) -> list[Gpr]:
    """The requests that wait, in the order in which the planner considers them."""
    return list(Gpr.objects.filter(state=GprState.QUEUED).order_by(*QUEUE_ORDER))


def move(stage: Stage, gpr: Gpr, to: MoveTo) -> None:
    gpr_move(gpr=fresh(gpr), to=to, actor=stage.admin, now=stage.after(1), why="A deadline.")


def test_each_move_takes_it_where_it_says(stage: Stage) -> None:
    one, two, three = queued(stage, 1, 2, 3)
    assert order(stage) == [one, two, three]

    move(stage, three, MoveTo.UP)
    assert order(stage) == [one, three, two]
    move(stage, three, MoveTo.UP)
    assert order(stage) == [three, one, two]
    move(stage, three, MoveTo.DOWN)
    assert order(stage) == [one, three, two]
    move(stage, two, MoveTo.FIRST)
    assert order(stage) == [two, one, three]
    move(stage, two, MoveTo.LAST)
    assert order(stage) == [one, three, two]
    move(stage, one, MoveTo.LAST)
    assert order(stage) == [three, two, one]
    assert [start_positions([gpr])[gpr.pk] for gpr in order(stage)] == [1, 2, 3]


def test_among_equals_it_passes_exactly_one(stage: Stage) -> None:
    jobs = queued(stage, 1, 1, 1, 1, 1)
    move(stage, jobs[4], MoveTo.UP)
    assert order(stage) == [jobs[0], jobs[1], jobs[2], jobs[4], jobs[3]]
    move(stage, jobs[3], MoveTo.UP)
    move(stage, jobs[3], MoveTo.UP)
    move(stage, jobs[0], MoveTo.DOWN)
    assert order(stage) == [jobs[1], jobs[0], jobs[3], jobs[2], jobs[4]]


def test_the_order_lasts_over_ticks_and_newcomers(stage: Stage) -> None:
    one, two, three = queued(stage, 1, 2, 3)
    move(stage, three, MoveTo.FIRST)
    for _ in range(3):
        stage.after(60)
        stage.tick()
    (four,) = queued(stage, 0.5)
    stage.tick()
    assert order(stage) == [three, four, one, two]


def _drift(stage: Stage, gpr: Gpr) -> None:
    """Its project has used more meanwhile than is its share."""
    usage = {"gpu_s": 8000, "summed_at": stage.now}
    ProjectUsage.objects.update_or_create(project_id=gpr.slice.project_id, defaults=usage)
    stage.after(60)
    stage.tick()


@pytest.mark.parametrize("to", [MoveTo.UP, MoveTo.FIRST])
def test_who_was_moved_up_stays_before_those_it_passed_whatever_its_project_uses_meanwhile(stage: Stage, to: MoveTo) -> None:
    one, two = (stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=hours * HOUR_S) for hours in (1, 2))
    move(stage, two, to)

    _drift(stage, two)
    assert order(stage) == [two, one]


def test_who_was_moved_down_stays_behind_the_one_that_it_let_pass_whatever_that_uses_meanwhile(stage: Stage) -> None:
    one, two = (stage.submit(make_slice(stage.cluster, owner=stage.owner), duration_s=hours * HOUR_S) for hours in (1, 2))
    move(stage, one, MoveTo.DOWN)

    _drift(stage, two)
    assert order(stage) == [two, one]


def test_of_moves_one_after_the_other_each_lasts(stage: Stage) -> None:
    asked = [make_slice(stage.cluster, owner=stage.owner) for _ in range(4)]
    one, two, three, four = (stage.submit(slice_, duration_s=hours * HOUR_S) for hours, slice_ in enumerate(asked, start=1))
    for gpr in (three, three, four, four):  # to the front; then behind that, past one whose place was kept
        move(stage, gpr, MoveTo.UP)
    assert order(stage) == [three, four, one, two]

    _drift(stage, four)
    assert order(stage) == [three, four, one, two]
    gpr_cancel(gpr=fresh(one), actor=stage.admin, now=stage.now)
    _drift(stage, three)
    assert order(stage) == [three, four, two]


def test_whose_place_is_kept_as_another_passes_is_told_so_once_and_not_who_it_is(stage: Stage) -> None:
    one, two = queued(stage, 1, 2)
    move(stage, two, MoveTo.UP)
    move(stage, two, MoveTo.DOWN)

    (event,) = Event.objects.filter(kind="gpr.kept_place")
    assert (event.gpr_id, event.slice_id, event.actor) == (one.pk, one.slice_id, stage.admin)
    assert two.name not in event.message


def test_it_gets_the_slot_and_whoever_gives_way_is_promised_anew_with_the_cause(stage: Stage) -> None:
    one, _, three = queued(stage, 1, 2, 3)
    was = {gpr.pk: fresh(gpr).promise.promised_start_at for gpr in (one, three)}
    move(stage, three, MoveTo.FIRST)

    assert fresh(three).promise.promised_start_at == was[one.pk]
    assert fresh(one).promise.promised_start_at > was[one.pk]
    (moved,) = fresh(one).promise_moves.all()
    assert (moved.cause, moved.cause_id) == (Cause.ADMIN, str(three.pk))
    (event,) = Event.objects.filter(kind="gpr.moved")
    assert (event.gpr_id, event.actor, event.reason) == (three.pk, stage.admin, "first")
    assert "A deadline." in event.message


def test_one_that_goes_to_the_back_lets_the_others_pass(stage: Stage) -> None:
    one, two, three = queued(stage, 1, 2, 3)
    promised = [fresh(gpr).promise.promised_start_at for gpr in (two, three)]
    move(stage, one, MoveTo.LAST)
    stage.tick()

    assert [fresh(gpr).promise.promised_start_at for gpr in (two, three)] == promised
    starts = [fresh(gpr).planned_start_at for gpr in (one, three)]
    assert starts[0] is not None
    assert starts[1] is not None
    assert starts[0] >= starts[1] + timedelta(hours=3)
    assert {move.cause for move in fresh(one).promise_moves.all()} == {Cause.ADMIN}


def test_priorities_stay_above_every_move(stage: Stage) -> None:
    (low,) = queued(stage, 1, priority=50)
    (high,) = queued(stage, 5, priority=150)
    with pytest.raises(Conflict, match="first of its priority"):
        move(stage, low, MoveTo.FIRST)
    with pytest.raises(Conflict, match="last of its priority"):
        move(stage, high, MoveTo.DOWN)
    assert order(stage) == [high, low]


def test_a_new_priority_ends_the_move(stage: Stage) -> None:
    one, two = queued(stage, 1, 2)
    move(stage, two, MoveTo.FIRST)
    for priority in (150, 101):
        gpr_set_priority(gpr=fresh(two), priority=priority, actor=stage.admin, why="", now=stage.now)
    stage.tick()
    assert order(stage) == [one, two]


def test_what_runs_has_no_place_in_the_queue(stage: Stage) -> None:
    running = Gpr.objects.get(state="ACTIVE")
    with pytest.raises(IllegalTransition, match="in the queue"):
        move(stage, running, MoveTo.UP)


def test_the_preview_says_what_the_move_then_does(stage: Stage) -> None:
    one, _, three = queued(stage, 1, 2, 3)
    preview = preview_move(gpr=fresh(three), to=MoveTo.FIRST, now=stage.now)
    gpr_move(gpr=fresh(three), to=MoveTo.FIRST, actor=stage.admin, now=stage.now)

    assert (preview.old_position, preview.new_position) == (3, 1)
    assert preview.own.new_start_at == fresh(three).planned_start_at
    assert {shift.gpr: shift.new_start_at for shift in preview.others}[one] == fresh(one).planned_start_at


def test_an_edit_to_another_request_ends_the_move(stage: Stage) -> None:
    """It was that small request which the administrator put first."""
    one, two = queued(stage, 1, 2)
    move(stage, two, MoveTo.FIRST)
    gpr_edit(gpr=fresh(two), actor=stage.owner, spec=spec_of(fresh(two), duration_s=20 * HOUR_S), now=stage.after(1))
    stage.tick()
    assert order(stage) == [one, two]


def test_a_booking_is_nobody_to_pass(stage: Stage) -> None:
    booked_at = stage.now + timedelta(days=5)
    slice_ = make_slice(stage.cluster, owner=stage.owner)
    stage.submit(slice_, duration_s=60, is_booking=True, earliest_start_at=booked_at)
    (one,) = queued(stage, 1)
    with pytest.raises(Conflict, match="first of its priority"):
        move(stage, one, MoveTo.UP)


def test_who_gets_the_priority_that_he_has_keeps_his_place_and_nothing_is_told(stage: Stage) -> None:
    _, _, last = queued(stage, 1, 2, 3)
    move(stage, last, MoveTo.FIRST)
    version = fresh(last).version

    told = preview_priority(gpr=fresh(last), priority=101, now=stage.now)
    gpr_set_priority(gpr=fresh(last), priority=101, actor=stage.admin, why="", now=stage.now)
    stage.tick()

    assert (told.old_position, told.new_position, start_positions([fresh(last)])[last.pk]) == (1, 1, 1)
    assert fresh(last).version == version
    assert not Event.objects.filter(gpr_id=last.pk, kind="gpr.priority_changed").exists()


@pytest.mark.parametrize(
    ("to", "priority"),
    [
        (MoveTo.FIRST, 50),
        (MoveTo.LAST, 150),
        # These swap the priorities of the cases above.
        *(pytest.param(*other, marks=pytest.mark.soak) for other in ((MoveTo.FIRST, 150), (MoveTo.LAST, 50))),
    ],
)
def test_what_a_new_priority_would_do_to_one_that_was_moved_is_what_it_does(stage: Stage, to: MoveTo, priority: int) -> None:
    """The place ends, and it stands by its share, its work and its age again."""
    low, high = queued(stage, 1, 4, priority=50), queued(stage, 1, 4, priority=150)
    one, _, moved = queued(stage, 1, 2, 4)
    move(stage, moved if to == MoveTo.FIRST else one, to)
    chosen = moved if to == MoveTo.FIRST else one

    told = preview_priority(gpr=fresh(chosen), priority=priority, now=stage.now)
    gpr_set_priority(gpr=fresh(chosen), priority=priority, actor=stage.admin, why="", now=stage.now)
    stage.tick()

    assert len({*low, *high}) == 4
    assert start_positions([fresh(chosen)])[chosen.pk] == told.new_position
    assert fresh(chosen).planned_start_at == told.own.new_start_at
