"""Many requests of few workspaces, which run one box at a time each, below limits, in pools that they like more and less: who is looked at
again, and when.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.board.board import Board
from planner.board.table import HAS_SLOT, STARTED, Table, demand_of, places_of, put_slot
from planner.capacity.placement import Capacity, choose, copy_capacity, earliest, limits_allow, pool_index
from planner.capacity.profile import NEVER_S, next_step_s
from planner.engine import place_newcomers, plan
from planner.promises.repair import board_of
from planner.snapshot import Node, Pool, Quota, Request, Running, Slot, Snapshot, Window, Within
from tests.effort import examples
from tests.planner.build import GENEROUS, GUARDED, pool, request, running, settled, stand, starts
from tests.planner.draw import GUARDED as EITHER_SLACK
from tests.planner.oracle import problems

SHORT, LONG = 30, 130  # the long one is more than the planner reads at once
SEEDS = st.integers(0, 10**6)


def crowd(seed: int, sizes: tuple[int, ...] = (10, 20, SHORT)) -> Snapshot:
    """Room for nearly all, if it were not for their workspaces, projects and likings."""
    dice = random.Random(seed)
    pools = tuple(_pool(dice, id_) for id_ in ("p", "q", "r")[: dice.choice([1, 2, 2, 3])])
    owners, shapes = ["x", "y", "s0", "s1"], sorted({pool.shape for pool in pools})
    quotas = tuple(Quota(owner, shape, 0, dice.choice([None, None, 4, 8, 12])) for owner in owners for shape in shapes)
    running = tuple(
        Running(f"on {node.id}", f"of {node.id}", "y", 101, pool.id, (node.id,), dice.randint(1, 4), dice.randint(1, 40))
        for pool in pools
        for node in pool.nodes
        if dice.random() < 0.4
    )
    slice_count, gang_chance = dice.randint(1, 8), dice.choice([0.1, 0.5])
    queue = tuple(_one_of(dice, number, slice_count, gang_chance, pools) for number in range(dice.choice(sizes)))
    return Snapshot(0, pools, running, queue, quotas=quotas, policy=dice.choice(EITHER_SLACK), memory=GENEROUS)


def _pool(dice: random.Random, id_: str) -> Pool:
    closed_s = dice.randrange(40)
    closed = (Window(closed_s, closed_s + 9),) if dice.random() < 0.3 else ()
    sizes = dice.choice([(4,), (4, 4, 8)])
    nodes = tuple(
        Node(f"{id_}{i}", dice.choice(sizes), closed if i == 0 else (), rack=f"{id_}-{i // 2}") for i in range(dice.randint(1, 6))
    )
    return Pool(id_, f"cluster-{id_}", dice.choice(["shape", f"shape-{id_}"]), nodes)


def _one_of(dice: random.Random, number: int, slice_count: int, gang_chance: float, pools: tuple[Pool, ...]) -> Request:
    owner, is_gang = dice.randrange(slice_count), dice.random() < gang_chance
    mine = dice.sample([pool.id for pool in pools], dice.randint(1, len(pools)))
    asked = request(
        f"r{number}",
        slice=f"s{owner}" if owner else f"alone {number}",
        project="xy"[owner % 2],
        count=dice.choice([2, 3]) if is_gang else 1,
        gpus=dice.choice([0, 1, 2, 3]),
        length=dice.randint(1, 20),
        priority=dice.choice([101, 101, 201]),
        pools=tuple(mine),
        earliest=dice.choice([0, 0, 0, 9, 31]),
    )
    handicaps = tuple((id_, dice.choice([0, 0, 5, 20])) for id_ in mine)
    return replace(asked, handicaps=handicaps, within=dice.choice([Within.ANY, Within.ANY, Within.RACK]) if is_gang else Within.ANY)


@examples(60)
@given(SEEDS)
def test_what_is_expected_is_what_trying_everybody_whenever_anything_changes_comes_to(seed: int) -> None:
    snapshot = crowd(seed)
    board, newcomers = board_of(snapshot)
    place_newcomers(board, newcomers, snapshot)

    assert board.expected() == played_out(board)


def played_out(board: Board) -> dict[str, Slot]:
    """The first in order that fits beside all slots starts, again and again, at each second at which anything changes."""
    capacity, table = board.stored_plan()
    capacity, table = copy_capacity(capacity), Table._make(column.copy() for column in table)
    rows = [waiting.row for waiting in board.order if board.has_slot(waiting)]
    at_s: int = board.now_s
    while at_s < NEVER_S:
        for j in rows:
            if table.state[j] == HAS_SLOT and table.slot_s[j] <= at_s:
                table.state[j] = STARTED
        while any(_starts(capacity, table, j, at_s) for j in rows):
            pass
        waits = [j for j in rows if table.state[j] == HAS_SLOT]
        times_s = [int(time_s) for j in waits for time_s in (table.slot_s[j], table.earliest_s[j])]
        times_s += [next_step_s(profiles, i, at_s) for profiles in (capacity.nodes, capacity.limits) for i in range(len(profiles.head))]
        at_s = min((time_s for time_s in times_s if time_s > at_s), default=NEVER_S) if waits else NEVER_S
    ids = {waiting.row: waiting.request.id for waiting in board.order}
    return {ids[j]: board.slot_at(places_of(table, j), int(table.slot_s[j])) for j in rows}


def _starts(capacity: Capacity, table: Table, j: int, at_s: int) -> bool:
    if table.state[j] != HAS_SLOT or table.earliest_s[j] > at_s:
        return False
    demand, old = demand_of(table, j), places_of(table, j).copy()
    own = pool_index(capacity, demand, old)
    own_counts = int(table.slot_s[j] + demand.handicaps_s[own]), own
    put_slot(capacity, table, j, -1)
    for i, number in enumerate(demand.pools):
        # Its own slot may lie on a node with fewer GPUs than its pool's largest, where a limit leaves room that `earliest` does not see.
        if own_counts < (at_s + int(demand.handicaps_s[i]), i):
            continue
        nodes = choose(capacity, number, demand, at_s) if limits_allow(capacity, demand, i, at_s, NEVER_S) else old[:0]
        if len(nodes) == demand.nodes and earliest(capacity, demand, at_s, at_s + demand.handicaps_s[i] + 1)[1] == number:
            places_of(table, j)[:], table.slot_s[j], table.state[j] = nodes, at_s, STARTED
            break
    put_slot(capacity, table, j, 1)
    return bool(table.state[j] == STARTED)


@pytest.mark.rotates  # each day: the same of a frozen queue, tests/planner/promises/test_promises.py
@examples(40)
@given(SEEDS)
def test_the_start_that_is_shown_is_the_start_that_happens_where_limits_decide_it(seed: int) -> None:
    snapshot = crowd(seed, sizes=(10, 20, SHORT, LONG))
    shown = {id_: start_s for id_, start_s in starts(plan(snapshot)).items() if start_s is not None}
    began_s: dict[str, int] = {}

    while True:
        made = plan(snapshot)
        assert problems(snapshot, made) == []
        began_s |= {placement.id: snapshot.now_s for placement in made.starts}
        snapshot = settled(snapshot)
        if not any(waits.slot for waits in snapshot.queue):
            break
        now_s = snapshot.now_s + 1 if len(snapshot.queue) < SHORT else _next_change_s(snapshot)
        snapshot = replace(snapshot, now_s=now_s, running=tuple(box for box in snapshot.running if box.end_s > now_s))

    assert began_s == shown


def test_who_is_below_a_limit_in_its_first_pool_starts_there_when_that_gives_room_though_no_limit_holds_in_its_last() -> None:
    pools = (pool(2), pool(1, id="q"))
    boxes = (running("of its project", "p0", end=20), running("other", "q0", end=90, pool="q", project="y"))
    own = request("a", pools=("p", "q"), promise=90, slot=stand(90, "q0", pool="q"))
    snapshot = Snapshot(0, pools, boxes, (own,), GUARDED, quotas=(Quota("x", "shape-p", 0, 8),))

    assert starts(plan(snapshot)) == {"a": 20}


def test_all_who_fit_start_together_when_nodes_of_their_last_pool_come_free() -> None:
    """Their slots are in the first pool, of which nothing changes then: only the one before it in turn leads to the second."""
    pools = (pool(1), pool(2, id="q"))
    boxes = (running("on p0", "p0", end=100), running("on q0", "q0", end=10, pool="q"), running("on q1", "q1", end=10, pool="q"))
    queue = tuple(request(id, pools=("p", "q"), length=50, promise=at, slot=stand(at, "p0")) for id, at in (("a1", 100), ("a2", 150)))

    assert starts(plan(Snapshot(0, pools, boxes, queue, GUARDED))) == {"a1": 10, "a2": 10}


def test_who_had_nodes_but_for_a_slot_below_its_limit_starts_when_that_one_is_over() -> None:
    """Its limit leaves room until its own slot in the other pool; behind that the other's slot takes it, and the other starts sooner."""
    pools = (Pool("p", "c", "shape-p", (Node("p0", 4), Node("p1", 8))), pool(1, id="q"))
    boxes = (running("on p1", "p1", end=5, project="y"), running("on q0", "q0", end=30, pool="q", project="y"))
    queue = (
        request("large", gpus=8, length=20, promise=40, slot=stand(40, "p1")),
        request("small", gpus=4, length=50, pools=("p", "q"), promise=30, slot=stand(30, "q0", pool="q")),
    )
    snapshot = Snapshot(0, pools, boxes, queue, GUARDED, quotas=(Quota("x", "shape-p", 0, 8),))

    assert starts(plan(snapshot)) == {"large": 5, "small": 25}


def test_of_two_starts_that_count_alike_the_one_in_the_pool_that_is_liked_better_is_taken() -> None:
    """It starts at 20 with a handicap of 10, instead of at 30 in its slot; though p costs extra it is named first."""
    boxes = (running("on p0", "p0", end=20), running("on q0", "q0", end=30, pool="q"))
    own = request("a", pools=("p", "q"), promise=30, slot=stand(30, "q0", pool="q"))
    own = replace(own, handicaps=(("p", 10),))

    assert starts(plan(Snapshot(0, (pool(1), pool(1, id="q")), boxes, (own,), GUARDED))) == {"a": 20}


def _next_change_s(snapshot: Snapshot) -> int:
    """Returns when next a box ends, a node opens, a slot comes due or a request may begin."""
    times_s = [box.end_s for box in snapshot.running] + [waits.earliest_start_s for waits in snapshot.queue]
    times_s += [waits.slot.start_s for waits in snapshot.queue if waits.slot]
    times_s += [window.end_s for pool in snapshot.pools for node in pool.nodes for window in node.closed]
    return min(time_s for time_s in times_s if time_s > snapshot.now_s)
