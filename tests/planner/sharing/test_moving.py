"""An administrator's order: it holds against the policy's key, slots follow it once, and what gives way is told why."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from planner.causes import Cause
from planner.engine import plan
from planner.snapshot import Moved, Place, PlanPolicy, SlackSettings, Snapshot
from tests.effort import examples
from tests.planner.build import moves, placements, pool, request, running, settled, slots, starts, waiting
from tests.planner.draw import snapshots

TIGHT = PlanPolicy(slack=SlackSettings(of_length=0.0))


def test_one_that_was_moved_up_takes_the_slot_and_the_other_is_told_who_did_it() -> None:
    """Two wait for one node; the longer one is put first."""
    short, long = waiting("short", 50, "p0", length=10), waiting("long", 60, "p0", length=100)
    boxes = (running("busy", "p0", end=50),)
    first = replace(long, place=Place(0, 0))
    snapshot = Snapshot(0, (pool(1),), boxes, (short, first), TIGHT, moved=Moved("long"))

    made = plan(snapshot)

    assert [placement.id for placement in made.placements] == ["long", "short"]
    assert slots(made) == {"long": 50, "short": 150}
    assert placements(made)["long"].promise_s == 50
    moved = moves(snapshot)["short"]
    assert (moved.cause, moved.cause_id, moved.old_s, moved.new_s) == (Cause.ADMIN, "long", 50, 150)


def test_the_order_survives_planning_anew() -> None:
    boxes = (running("busy", "p0", end=50),)
    queue = (request("a", length=100, place=Place(0, 5)), request("b", length=1), request("c", length=2))
    first = settled(Snapshot(0, (pool(1),), boxes, queue, TIGHT))
    again = plan(replace(first, now_s=10))

    assert [placement.id for placement in again.placements] == ["a", "b", "c"]
    assert starts(again)["a"] == 50


def test_it_never_passes_a_higher_priority() -> None:
    boxes = (running("busy", "p0", end=50),)
    high, low = waiting("high", 50, "p0", length=10), waiting("low", 60, "p0", length=100)
    queue = (replace(high, priority=201), replace(low, place=Place(0, 0)))
    snapshot = Snapshot(0, (pool(1),), boxes, queue, TIGHT, moved=Moved("low"))

    assert slots(plan(snapshot)) == {"high": 50, "low": 60}
    assert moves(snapshot) == {}


def test_one_that_was_moved_down_starts_no_earlier_than_whom_it_stands_behind() -> None:
    boxes = (running("busy", "p0", end=50),)
    short, long = waiting("short", 50, "p0", length=10), waiting("long", 60, "p0", length=100)
    snapshot = Snapshot(0, (pool(1),), boxes, (replace(short, place=Place(0, 10**6)), long), TIGHT, moved=Moved("short", behind="long"))

    made = plan(snapshot)

    assert slots(made) == {"long": 60, "short": 160}
    assert starts(made) == {"long": 50, "short": 150}
    assert moves(snapshot)["short"].cause == Cause.ADMIN


@examples(200)
@given(snapshots(), st.data())
def test_a_move_moves_promises_only_of_those_behind_and_each_with_its_cause(snapshot: Snapshot, data: st.DataObject) -> None:
    first = settled(snapshot)
    if not first.queue:
        return
    chosen = data.draw(st.sampled_from([r.id for r in first.queue]))
    queue = tuple(replace(r, place=Place(0, 0), rank=-1) if r.id == chosen else r for r in first.queue)
    moved = replace(first, queue=queue, moved=Moved(chosen))

    quiet, made = plan(replace(first, queue=queue)), plan(moved)

    order = [placement.id for placement in made.placements]
    for placement in made.placements:
        before = placements(quiet)[placement.id]
        if placement.moved is not None and before.moved is None:
            assert order.index(placement.id) > order.index(chosen)
            assert (placement.moved.cause, placement.moved.cause_id) == (Cause.ADMIN, chosen)
    mine, was = placements(made)[chosen].slot, placements(quiet)[chosen].slot
    assert (mine is None) == (was is None)
    if mine is not None and was is not None:
        assert mine.start_s <= was.start_s


def test_a_move_of_one_that_is_gone_changes_nothing() -> None:
    snapshot = Snapshot(0, (pool(1),), (), (request("a"),), TIGHT)
    assert plan(replace(snapshot, moved=Moved("gone"))) == plan(snapshot)
