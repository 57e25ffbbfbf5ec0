"""What is promised is kept, over many ticks and whatever happens."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from gpr.planner.engine import plan
from gpr.planner.plan import Cause
from gpr.planner.snapshot import Policy, Request, Snapshot
from tests.planner.build import settled, starts, stored
from tests.planner.draw import requests, snapshots
from tests.planner.world import GRACE_S, World

EVERYTHING = frozenset({"late", "close", "cancel", "edit", "overrun", "early"})
EAGER = Policy(overrun_grace_s=GRACE_S, may_improve=True)
SEEDS = st.integers(0, 10**6)


@settings(max_examples=120, deadline=None)
@given(SEEDS, st.sets(st.sampled_from(sorted(EVERYTHING))))
def test_no_start_is_later_than_its_promise_unless_a_recorded_cause_moved_it(seed: int, mishaps: set[str]) -> None:
    world = World(seed, frozenset(mishaps))
    for _ in range(40):
        world.step()  # which also checks that the plan is feasible and promises change by records only

    for id_, start_s in world.started_s.items():
        moves = world.moves.get(id_, [])
        assert start_s <= (moves[-1].new_s if moves else world.first_promise_s[id_])
        assert all(move.cause in Cause and move.cause_id for move in moves)
        chain = [world.first_promise_s[id_]] + [move.new_s for move in moves]
        assert [move.old_s for move in moves] == chain[:-1]
        assert chain == sorted(set(chain))


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sets(st.sampled_from(["cancel", "early"])))
def test_without_failures_no_promise_ever_moves(seed: int, mishaps: set[str]) -> None:
    world = World(seed, frozenset(mishaps))
    for _ in range(40):
        world.step()

    assert world.moves == {}


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_on_a_frozen_queue_the_start_that_is_shown_is_the_start_that_happens(seed: int) -> None:
    world = World(seed)
    for _ in range(15):
        world.step()
    shown = {request.id: request.slot.start_s for request in world.queue if request.slot}

    while any(request.slot for request in world.queue):
        world.now_s += 1
        world.end_boxes()
        world.tick()

    assert {id_: world.started_s[id_] for id_ in shown} == shown


@settings(max_examples=400, deadline=None)
@given(SEEDS, st.sets(st.sampled_from(sorted(EVERYTHING))))
def test_nobody_needs_to_tell_what_came_free(seed: int, mishaps: set[str]) -> None:
    """`may_improve` and `freed_nodes` save time only: the plan is that of trying to move everybody up."""
    world = World(seed, frozenset(mishaps))
    for _ in range(30):
        snapshot, made = world.step()
        assert plan(replace(snapshot, policy=EAGER, freed_nodes=None)) == made


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.data())
def test_a_newcomer_delays_nobody_whatever_its_priority(snapshot: Snapshot, data: st.DataObject) -> None:
    before = settled(snapshot)
    newcomer: Request = data.draw(requests("new", 99))
    after = replace(before, queue=(*before.queue, newcomer))

    assert {id_: start for id_, start in starts(plan(after)).items() if id_ != "new"} == starts(plan(before))


@settings(max_examples=100, deadline=None)
@given(snapshots(), st.data())
def test_whoever_is_canceled_delays_nobody(snapshot: Snapshot, data: st.DataObject) -> None:
    before = settled(snapshot)
    gone = data.draw(st.sampled_from([None, *before.queue]))
    after = replace(before, queue=tuple(request for request in before.queue if request is not gone))

    was, now = starts(plan(before)), starts(plan(after))
    assert all((start or 0) <= (was[id_] or 0) for id_, start in now.items())


@settings(max_examples=100, deadline=None)
@given(snapshots(most=7))
def test_a_plan_that_is_stored_and_made_again_is_the_same(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    again = plan(replace(snapshot, queue=stored(snapshot, made)))

    assert again == made


@settings(max_examples=100, deadline=None)
@given(snapshots(most=7), st.randoms(use_true_random=False))
def test_the_order_in_which_a_snapshot_lists_things_does_not_matter(snapshot: Snapshot, dice: random.Random) -> None:
    pools, running, queue = list(snapshot.pools), list(snapshot.running), list(snapshot.queue)
    for items in (pools, running, queue):
        dice.shuffle(items)

    assert plan(replace(snapshot, pools=tuple(pools), running=tuple(running), queue=tuple(queue))) == plan(snapshot)


def test_a_plan_does_not_depend_on_the_hash_seed() -> None:
    script = "from tests.planner.world import World; w = World(7, frozenset({'early', 'close'}));"
    script += "print([w.step()[1] for _ in range(30)])"
    texts = {
        subprocess.run([sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True).stdout
        for seed in ("1", "2")
    }

    assert len(texts) == 1
    assert "Placement" in texts.pop()
