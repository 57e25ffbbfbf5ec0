"""Verify a finished plan independently of the passes that made it.

A violation is a planner bug: it is stored, and a simulation stops. The check trusts that the capacity profile matches the board;
only the oracle in the tests recomputes that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from planner.board.board import Board, Started
from planner.board.table import HAS_SLOT, Table, demand_of, places_of, put_slot, used
from planner.board.waiting import Waiting
from planner.capacity.placement import Capacity, copy_capacity, in_one_domain, pool_index
from planner.capacity.profile import FOREVER_S, NEVER_S, NONE, Ints, least_free
from planner.kernels import compiled
from planner.plan import BarePlacement, Flaw, Placement, PlanFault
from planner.snapshot import Slot

# Codes returned by the compiled functions; 0 means no flaw.
FLAWS: Final = (None, Flaw.SHAPE, Flaw.EARLY, Flaw.CROWDED, Flaw.LATE)
SHAPE, EARLY, CROWDED, LATE = 1, 2, 3, 4


class Asked(NamedTuple):
    """Holds the demand of each request."""

    nodes: Ints
    gpus: Ints
    length_s: Ints
    last_s: Ints  # the latest start that keeps the promise; NEVER_S without one


class InvalidPlanError(AssertionError):
    pass


def faults_of(
    board: Board, placements: Sequence[Placement], others: Sequence[BarePlacement], among: Iterable[Waiting] | None = None
) -> tuple[PlanFault, ...]:
    """List the violations, at most one per request. A late start is none if a recorded cause moved the promise. `among`: None: all."""
    starting = {placement.id: slot for placement in placements if placement.starts_now and (slot := placement.slot) is not None}
    all_placements: tuple[Placement | BarePlacement, ...] = (*placements, *others)
    moved = {stand.id for stand in all_placements if stand.moved is not None and board.queue[stand.id].displaced is not None}
    late_s = board.policy.promise_tolerance_s
    flawed = _flawed(board, lambda waiting: NEVER_S if (s := waiting.request.promise_s) is None else s + late_s, starting, among)
    return tuple(PlanFault(id_, flaw) for id_, flaw in flawed if flaw != Flaw.LATE or id_ not in moved)


def raise_on_faults(board: Board, started: Iterable[Started]) -> None:
    """Check a board after a tick. Raises InvalidPlanError."""
    found = _flawed(board, lambda waiting: NEVER_S if waiting.promise_s is None else waiting.promise_s, {})
    found += [(new.request.id, flaw) for new in started for flaw in _flaws_of_box(board, new)]
    if found:
        raise InvalidPlanError(f"at {board.now_s}: {', '.join(f'{id_} {flaw.value}' for id_, flaw in found)}")


def _flaws_of_box(board: Board, new: Started) -> list[Flaw]:
    box = board.running[new.request.id]
    matches_request = len(set(new.slot.nodes)) == new.request.node_count and new.slot.pool in new.request.pools
    limits = box.demand.limits[pool_index(board.capacity, box.demand, box.places)]
    crowded = is_overcommitted(board.capacity, box.places, limits, box.start_s, box.end_s)
    tests = {Flaw.SHAPE: not matches_request, Flaw.CROWDED: crowded, Flaw.LATE: new.slot.start_s > new.promise_s}
    return [flaw for flaw, is_so in tests.items() if is_so]


def _flawed(
    board: Board, last_s_of: Callable[[Waiting], int], starting: Mapping[str, Slot], among: Iterable[Waiting] | None = None
) -> list[tuple[str, Flaw]]:
    """`starting`: requests that start now, and where."""
    capacity, table = board.stored_plan()
    misplaced: set[int] = set()
    if starting:
        capacity, table, misplaced = _started(board, table, starting)
    states = table.state.tolist()
    waitings = [waiting for waiting in (board.order if among is None else among) if states[waiting.row] == HAS_SLOT]
    requests = [waiting.request for waiting in waitings]
    asked = Asked(
        np.array([request.node_count for request in requests], np.int64),
        np.array([request.gpus_per_node for request in requests], np.int64),
        np.array([min(request.length_s, FOREVER_S) for request in requests], np.int64),
        np.array([min(last_s_of(waiting), NEVER_S) for waiting in waitings], np.int64),
    )
    flaws = flaws_of(capacity, table, np.array([waiting.row for waiting in waitings], np.int64), asked, board.now_s)
    flaws[[waiting.row in misplaced for waiting in waitings]] = SHAPE
    return [(requests[i].id, flaw) for i in np.flatnonzero(flaws) if (flaw := FLAWS[flaws[i]]) is not None]


def _started(board: Board, table: Table, starting: Mapping[str, Slot]) -> tuple[Capacity, Table, set[int]]:
    """Return copies with the starting requests in place, and rows with a wrong node count."""
    places = board.places([node for slot in starting.values() for node in slot.nodes])
    board.reserve_steps(2 * len(places), 2 * len(starting))
    capacity = copy_capacity(board.capacity)
    table = table._replace(slot_s=table.slot_s.copy(), places=table.places.copy())
    rows = np.array([board.queue[id_].row for id_ in starting], np.int64)
    starts_s = np.array([slot.start_s for slot in starting.values()], np.int64)
    counts = np.array([len(slot.nodes) for slot in starting.values()], np.int64)
    move_slots(capacity, table, rows, starts_s, places, np.cumsum(counts))
    return capacity, table, set(rows[counts != table.nodes[rows]].tolist())


@compiled
def move_slots(capacity: Capacity, table: Table, rows: Ints, starts_s: Ints, places: Ints, ends: Ints) -> None:
    """`places[:ends[0]]` is for the first row, and so on. A row with a wrong number of places stays."""
    first = 0
    for i in range(len(rows)):
        j, end = rows[i], ends[i]
        if end - first == table.nodes[j] and table.state[j] == HAS_SLOT:
            put_slot(capacity, table, j, -1)
            places_of(table, j)[:] = places[first:end]
            table.slot_s[j] = starts_s[i]
            put_slot(capacity, table, j, 1)
        first = end


@compiled
def flaws_of(capacity: Capacity, table: Table, rows: Ints, asked: Asked, now_s: int) -> Ints:
    flaws = np.zeros(len(rows), np.int64)
    for i in range(len(rows)):
        j = rows[i]
        pool = common_pool(capacity, places_of(table, j))
        if pool == NONE or not matches_request(capacity, table, j, pool, asked, i):
            flaws[i] = SHAPE
        elif table.slot_s[j] < max(now_s, table.earliest_s[j]):
            flaws[i] = EARLY
        elif is_overcommitted(
            capacity, places_of(table, j), limits_at(capacity, table, j), table.slot_s[j], table.slot_s[j] + table.length_s[j]
        ):
            flaws[i] = CROWDED
        elif table.slot_s[j] > asked.last_s[i]:
            flaws[i] = LATE
    return flaws


@compiled
def common_pool(capacity: Capacity, places: Ints) -> int:
    """Returns NONE if the nodes span pools or repeat."""
    pool = NONE
    for k in range(len(places)):
        if k > 0 and capacity.pool_of[places[k]] != pool:
            return NONE
        pool = int(capacity.pool_of[places[k]])
        for m in range(k):
            if places[m] == places[k]:
                return NONE
    return pool


@compiled
def matches_request(capacity: Capacity, table: Table, j: int, pool: int, asked: Asked, i: int) -> bool:
    if table.nodes[j] != asked.nodes[i] or table.gpus[j] != asked.gpus[i] or table.length_s[j] != max(1, asked.length_s[i]):
        return False
    is_own = False
    for own in used(table.pools[j]):
        is_own |= own == pool
    for node in places_of(table, j):
        is_own &= capacity.gpu_counts[node] >= max(table.gpus[j], 1)
    return is_own and in_one_domain(capacity, places_of(table, j), table.level[j])


@compiled
def limits_at(capacity: Capacity, table: Table, j: int) -> Ints:
    demand = demand_of(table, j)
    limits: Ints = demand.limits[pool_index(capacity, demand, places_of(table, j))]
    return limits


@compiled
def is_overcommitted(capacity: Capacity, places: Ints, limits: Ints, start_s: int, end_s: int) -> bool:
    least = 0
    for node in places:
        least = min(least, least_free(capacity.nodes, node, start_s, end_s))
    for limit in limits:
        if limit != NONE:
            least = min(least, least_free(capacity.limits, limit, start_s, end_s))
    return least < 0
