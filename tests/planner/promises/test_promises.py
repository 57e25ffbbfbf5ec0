"""The planner keeps promises over many ticks, whatever happens."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from itertools import chain, islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.causes import Cause
from planner.engine import plan
from planner.plan import Placement, Plan
from planner.snapshot import Node, PlanPolicy, Request, Slot, Snapshot
from tests.effort import examples
from tests.planner.build import placements, settled, slots, starts, stored
from tests.planner.draw import CONSERVATIVE, GUARDED, POLICIES, requests, snapshots
from tests.planner.oracle import problems
from tests.planner.world import BACK, CHAINS, GANGS, MISHAPS, MIXED, SINGLES, Asks, World

SEEDS = st.integers(0, 10**6)
OF_ANY = st.sampled_from(POLICIES)
OF_GUARDED = st.sampled_from(GUARDED)
ASKS = st.sampled_from([MIXED, GANGS, SINGLES, CHAINS])


@examples(200)
@given(SEEDS, OF_ANY, ASKS, st.sets(st.sampled_from(sorted(MISHAPS))))
def test_no_start_is_later_than_its_promise_unless_a_recorded_cause_moved_it(
    seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str]
) -> None:
    world = World(seed, policy, frozenset(mishaps), asks)
    for _ in range(50):
        world.step()  # which also checks that the plan is feasible and promises change by records only

    for id_, start_s in world.started_s.items():
        moves = world.moves.get(id_, [])
        assert start_s <= (moves[-1].new_s if moves else world.first_promise_s[id_])
        # Of a gang whose nodes are reported apart nobody is the cause.
        assert all(move.cause in Cause and (move.cause_id or move.cause == Cause.TOPOLOGY) for move in moves)
        chain = [world.first_promise_s[id_]] + [move.new_s for move in moves]
        assert [move.old_s for move in moves] == chain[:-1]
        assert chain == sorted(set(chain))


@examples(150)
@given(SEEDS, OF_ANY, ASKS, st.sets(st.sampled_from(["cancel", "early"])))
def test_without_failures_no_promise_ever_moves_and_all_are_kept(seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str]) -> None:
    world = World(seed, policy, frozenset(mishaps), asks)
    for _ in range(50):
        world.step()

    assert world.moves == {}
    assert all(start_s <= world.first_promise_s[id_] for id_, start_s in world.started_s.items())


# No second is before the epoch, also where a clock is set back again and again.
LONG_AFTER_S = 10_000


@examples(30)
@given(SEEDS, OF_ANY, ASKS, st.sets(st.sampled_from(["cancel", "early"])))
def test_a_clock_that_is_set_back_moves_no_promise_and_evicts_nobody(seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str]) -> None:
    world = World(seed, policy, frozenset({*mishaps, BACK}), asks, now_s=LONG_AFTER_S)
    for _ in range(30):
        _, made = world.step()
        assert made.evictions == ()

    assert world.moves == {}
    assert all(start_s <= world.first_promise_s[id_] for id_, start_s in world.started_s.items())


@examples(100)
@given(SEEDS, OF_ANY, st.sampled_from(["overrun", "late", "close", "lose", "reseat", "edit"]))
def test_a_promise_is_moved_by_what_happened_and_by_nothing_else(seed: int, policy: PlanPolicy, mishap: str) -> None:
    """A box that comes later than it was due is named as such, and nobody calls a failure what is none."""
    world = World(seed, policy, frozenset({mishap}))
    for _ in range(40):
        world.step()

    causes = {move.cause for moves in world.moves.values() for move in moves}
    assert (
        causes
        <= {
            "overrun": {Cause.OVERRUN},
            "late": {Cause.LATE_TICK, Cause.OVERRUN},  # whose end no tick has seen
            "close": {Cause.NODE_FAILURE},
            "lose": {Cause.NODE_FAILURE},
            "reseat": {Cause.TOPOLOGY},
            "edit": {Cause.CHANGED},
        }[mishap]
    )
    if mishap == "edit":
        assert world.moves.keys() <= set(world.edited)


@examples(150)
@given(SEEDS, OF_ANY, ASKS, st.sets(st.sampled_from(sorted(MISHAPS))))
def test_on_a_frozen_queue_the_start_that_is_shown_is_the_start_that_happens(
    seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str]
) -> None:
    """Tick by tick to the end, and no tick on the way shows anything else."""
    world = World(seed, policy, frozenset(mishaps), asks)
    for _ in range(15):
        world.step()
    world.freeze()
    _, made = world.tick()
    shown = {id_: start_s for id_, start_s in starts(made).items() if start_s is not None}

    for _ in range(1000):
        if not any(request.slot for request in world.queue):
            break
        _, made = world.pass_s()
        assert {id_: start_s for id_, start_s in starts(made).items() if id_ in shown and start_s != shown[id_]} == {}
        assert not any(placement.moved for placement in made.placements)

    assert {id_: world.started_s[id_] for id_ in shown} == shown


@examples(100)
@given(SEEDS, OF_ANY, ASKS, st.sets(st.sampled_from(sorted(MISHAPS))))
def test_a_tick_with_nothing_to_do_changes_nothing(seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str]) -> None:
    """Nothing changes until something is due: neither a slot, nor a promise, nor what is shown, nor its reason, nor what is remembered."""
    world = World(seed, policy, frozenset(mishaps), asks)
    for _ in range(20):
        world.step()
    world.freeze()
    _, before = world.tick()
    memory, queue = world.memory, world.queue
    waiting = {id_: p for id_, p in placements(before).items() if id_ in {r.id for r in queue}}
    due_s = [*world.real_end_s.values(), *(s for s in starts(before).values() if s and s > world.now_s)]
    due_s += [r.earliest_start_s for r in queue if r.earliest_start_s > world.now_s]
    due_s += [s for p in world.pools for n in p.nodes for w in n.closed for s in (w.start_s, w.end_s) if s > world.now_s]
    for now_s in range(world.now_s + 1, min(due_s, default=0)):
        made = plan(replace(world.snapshot(), now_s=now_s))
        assert placements(made) == waiting
        assert made.remembered is None
        assert stored(world.snapshot(), made) == queue
    assert world.memory == memory


@examples(200)
@given(snapshots(), st.data())
def test_a_newcomer_breaks_no_promise_whatever_its_priority(snapshot: Snapshot, data: st.DataObject) -> None:
    before = settled(snapshot)
    after = replace(before, queue=(*before.queue, data.draw(requests("new", 99))))

    made = plan(after)

    assert problems(after, made) == []
    for one in before.queue:
        placement = placements(made)[one.id]
        assert (placement.promise_s, placement.moved) == (one.promise_s, None)
        assert placement.slot is None or placement.slot.start_s <= (one.promise_s or 0)


@examples(100)
@given(snapshots(policies=(CONSERVATIVE,)), st.data())
def test_conservative_a_newcomer_delays_nobody_who_was_there(snapshot: Snapshot, data: st.DataObject) -> None:
    before = settled(snapshot)
    after = replace(before, queue=(*before.queue, data.draw(requests("new", 99))))

    assert without("new", plan(after)) == starts(plan(before))


@examples(100)
@given(snapshots(policies=(CONSERVATIVE,)), st.data())
def test_conservative_whoever_comes_delays_nobody_before_it_in_turn(snapshot: Snapshot, data: st.DataObject) -> None:
    """This holds also among those who are all new."""
    new: Request = data.draw(requests("new", data.draw(st.sampled_from([-1, 2, 99]))))

    with_it, alone = plan(replace(snapshot, queue=(*snapshot.queue, new))), plan(snapshot)

    ids = [placement.id for placement in with_it.placements]
    before = ids[: ids.index("new")]
    assert {id_: starts(with_it)[id_] for id_ in before} == {id_: starts(alone)[id_] for id_ in before}


@examples(100)
@given(snapshots(policies=GUARDED), st.data())
def test_guarded_a_newcomer_of_no_higher_turn_moves_no_slot(snapshot: Snapshot, data: st.DataObject) -> None:
    """Slots of those who wait stay as they are, whoever comes; only those who start leave them."""
    before = settled(snapshot)
    was = {r.id: r.slot for r in before.queue}

    made = plan(replace(before, queue=(*before.queue, data.draw(requests("new", 99)))))

    assert all(p.starts_now or p.slot == was[p.id] for p in made.placements if p.id in was)


@examples(150)
@given(snapshots(), st.data())
def test_whoever_is_canceled_breaks_nobodys_promise(snapshot: Snapshot, data: st.DataObject) -> None:
    before = settled(snapshot)
    gone = data.draw(st.sampled_from([None, *before.queue]))
    after = replace(before, queue=tuple(request for request in before.queue if request is not gone))

    made = plan(after)

    assert problems(after, made) == []
    assert {p.id: p.promise_s for p in made.placements} == {r.id: r.promise_s for r in after.queue}
    was = slots(plan(before))
    assert all((slot_s or 0) <= (was[id_] or 0) or snapshot.policy != CONSERVATIVE for id_, slot_s in slots(made).items())


@examples(100)
@given(SEEDS, OF_GUARDED)
def test_guarded_whoever_has_a_slot_keeps_it_until_it_starts(seed: int, policy: PlanPolicy) -> None:
    """Nobody who comes or goes moves a slot: it is where its promise is."""
    world = World(seed, policy, frozenset({"cancel"}))
    for _ in range(30):
        was = {r.id: r.slot for r in world.queue if r.slot}
        _, made = world.step()
        assert all(p.starts_now or p.slot == was[p.id] for p in made.placements if p.id in was)
        assert all(r.slot.start_s == r.promise_s for r in world.queue if r.slot)


@example(2143, GUARDED[0], GANGS)  # one of higher priority is canceled in the step in which a gang moves up
@examples(100)
@given(SEEDS, OF_GUARDED, ASKS)
def test_guarded_boxes_that_end_early_move_slots_of_gangs_alone_and_those_up(seed: int, policy: PlanPolicy, asks: Asks) -> None:
    world = World(seed, policy, frozenset({"cancel", "early"}), asks)
    for _ in range(60):
        moved_up(world)


@examples(150)
@given(SEEDS, OF_GUARDED, ASKS, st.sets(st.sampled_from(["close", "lose", "cancel"])))
def test_guarded_a_failure_moves_slots_on_other_nodes_only_where_that_breaks_fewer_promises(
    seed: int, policy: PlanPolicy, asks: Asks, mishaps: set[str]
) -> None:
    world = World(seed, policy, frozenset(mishaps), asks)
    for _ in range(50):
        gave_way(world)


@pytest.mark.rotates  # each day: the two above, of which it shows that they meet such cases
def test_guarded_such_as_give_way_to_a_failure_there_are() -> None:
    worlds = [World(seed, mishaps=frozenset({"close", "lose"}), asks=SINGLES) for seed in range(30)]

    found = chain.from_iterable(gave_way(world) for world in worlds for _ in range(50))
    assert len(list(islice(found, 3))) == 3


def gave_way(world: World) -> list[Request]:
    """Returns whose slot moves in the next step of this world although its nodes are all right."""
    was = {r.id: (r, r.slot) for r in world.queue if r.slot}
    snapshot, made = world.step()
    nodes = {node.id: node for pool in snapshot.pools for node in pool.nodes}
    stays = {id_ for id_, (request, slot) in was.items() if all(is_open(nodes.get(node), slot, request) for node in slot.nodes)}
    told = {p.id: p.slot for p in made.placements if p.id in stays and not p.starts_now and not is_held_back(p)}
    found = [was[id_][0] for id_, slot in told.items() if slot != was[id_][1]]
    for request in found:
        slot, old = told[request.id], was[request.id][1]
        assert slot is not None
        assert slot.pool == old.pool
        assert any(other.priority >= request.priority for id_, (other, _) in was.items() if id_ not in stays)
    broken = {p.id for p in made.placements if p.id in was and p.moved is not None and p.moved.cause == Cause.NODE_FAILURE}
    levels = sorted({request.priority for request, _ in was.values()}, reverse=True)
    broken_counts, lost_counts = (
        [sum(was[id_][0].priority == level for id_ in ids) for level in levels] for ids in (broken, was.keys() - stays)
    )
    assert broken_counts <= lost_counts
    assert broken.isdisjoint(stays) or broken_counts < lost_counts
    return found


def is_held_back(placement: Placement) -> bool:
    causes = {placement.moved.cause if placement.moved else None, placement.lost[0] if placement.lost else None}
    return Cause.PREDECESSOR in causes


def is_open(node: Node | None, slot: Slot, request: Request) -> bool:
    end_s = slot.start_s + request.length_s
    return node is not None and not any(gap.start_s < end_s and gap.end_s > slot.start_s for gap in node.closed)


@pytest.mark.rotates  # each day: as the one before
def test_guarded_such_gangs_there_are() -> None:
    """Otherwise the tests of worlds with gangs would show nothing of them."""
    worlds = [World(seed, mishaps=frozenset({"cancel", "early"}), asks=GANGS) for seed in range(20)]

    found = chain.from_iterable(moved_up(world) for world in worlds for _ in range(60))
    assert len(list(islice(found, 6))) == 6


def moved_up(world: World) -> list[Request]:
    """Gangs whose slot moves in the next step of this world."""
    was = {r.id: (r, r.slot) for r in world.queue if r.slot}
    snapshot, made = world.step()
    waits = [was[r.id] for r in snapshot.queue if r.id in was]
    found = []
    for told in (p for p in made.placements if p.id in was and not p.starts_now):
        request, slot = was[told.id]
        assert told.promise_s == request.promise_s
        assert told.slot is not None
        if told.slot != slot:
            assert snapshot.has_freed
            assert request.node_count > 1
            assert told.slot.start_s < slot.start_s
            assert not any(meets(request, other) for other, their in waits if their.start_s > soonest_s(snapshot, other))
            found.append(request)
    return found


def meets(gang: Request, other: Request) -> bool:
    """Would it go before one of higher priority, on whose nodes or in whose workspace it is?"""
    shares = set(gang.pools) & set(other.pools) or (gang.slice and gang.slice == other.slice)
    return other.priority > gang.priority and bool(shares)


def soonest_s(snapshot: Snapshot, request: Request) -> int:
    ends_s = [box.end_s for box in snapshot.running if box.id == request.after]
    ends_s += [(r.promise_s or 0) + r.length_s for r in snapshot.queue if r.id == request.after]
    return max(snapshot.now_s, request.earliest_start_s, *ends_s)


def without(id_: str, made: Plan) -> dict[str, int | None]:
    return {other: start_s for other, start_s in starts(made).items() if other != id_}


@examples(100)
@given(snapshots(most=7))
def test_a_plan_that_is_stored_and_made_again_is_the_same(snapshot: Snapshot) -> None:
    made = plan(snapshot)
    again = plan(replace(snapshot, queue=stored(snapshot, made)))

    assert again == replace(made, remembered=None, forecasts=())


@examples(100)
@given(snapshots(most=7), st.randoms(use_true_random=False))
def test_the_order_in_which_a_snapshot_lists_things_does_not_matter(snapshot: Snapshot, dice: random.Random) -> None:
    pools, running, queue = list(snapshot.pools), list(snapshot.running), list(snapshot.queue)
    for items in (pools, running, queue):
        dice.shuffle(items)

    assert plan(replace(snapshot, pools=tuple(pools), running=tuple(running), queue=tuple(queue))) == plan(snapshot)


@pytest.mark.rotates  # each day: the order of a snapshot, above
def test_a_plan_does_not_depend_on_the_hash_seed() -> None:
    world = World(7, mishaps=frozenset({"early", "close"}))
    here = f"{[world.step()[1] for _ in range(30)]}\n"
    script = "from tests.planner.world import World; w = World(7, mishaps=frozenset({'early', 'close'}));"
    script += "print([w.step()[1] for _ in range(30)])"

    there = subprocess.run([sys.executable, "-c", script], env={"PYTHONHASHSEED": "1"}, capture_output=True, check=True, text=True).stdout

    assert there == here
    assert "Placement" in here
