"""Compiled passes find which requests to check again when something changes, since checking thousands at each tick is too slow."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from planner.board.table import HAS_SLOT, Table, demand_of, places_of, used
from planner.capacity.free_now import FreeNow, update_enough
from planner.capacity.headroom import Headroom, have_headroom, headroom_of, leaves_any, remeasure_limit
from planner.capacity.placement import Capacity, pool_index
from planner.capacity.profile import NONE, BoolGrid, Bools, IntGrid, Ints
from planner.kernels import compiled, lean

# Ready rows are counted in blocks of two to this power.
BLOCK_BITS: Final = 6


class Recheck(NamedTuple):
    """Keeps what a tick knows about the waiting rows. A marked row is checked again.

    Rows of a group form runs, in the order of turns, in which lengths do not fall: if the first ready row of a run finds too few nodes, so
    do all behind it. A ready row waits for nodes alone: its earliest start has come, no limit stops it, and it does not wait for a
    preferred pool. Started rows may still count as ready.
    """

    # `rows_on[first_row_on[n]:first_row_on[n + 1]]`: rows on node `n`, or below limit `n` less the number of nodes; in order
    rows_on: Ints
    first_row_on: Ints
    run_group: Ints  # by run
    run_first: Ints  # run `r` has the positions `run_first[r]` to less than `run_first[r + 1]`
    row_at: Ints  # by position
    run: Ints  # by row
    place: Ints  # by row: its position
    is_ready: BoolGrid  # by index of pool and position
    ready_count: IntGrid  # by index of pool and block of positions
    turn: Ints  # by row: its place in the order
    marked: Ints  # the first `marked_count[0]` are marked
    is_marked: Bools
    headroom: Headroom  # current for each limit of which something was taken or given back
    next_limited: Ints  # by number as in `first_row_on`: the first row that was not considered since the limit gave more
    slot_partly_free: Bools  # by row: at its last check nodes of its slot were free in a pool in which it was ready
    is_limited: Bools  # by row: at its last check a limit stopped it
    is_holding_out: Bools  # by row: it had room in a pool, but waits for a preferred one
    marked_count: Ints
    holding_out_count: Ints
    gangs: Ints  # the first `gang_count[0]` are gangs with `slot_partly_free`
    is_gang: Bools
    gang_count: Ints
    in_domain: Ints  # scratch


@compiled
def new_recheck(capacity: Capacity, free_now: FreeNow, table: Table, order: Ints, at_s: int) -> Recheck:
    """Marks all rows."""
    row_count, pool_count = table.pools.shape
    turn = np.zeros(row_count, np.int64)
    turn[order] = np.arange(len(order))
    rows_on, first_row_on = index_rows(capacity, table, order)
    marked, is_marked = np.empty(row_count, np.int64), np.zeros(row_count, np.bool_)
    marked[: len(order)] = order
    is_marked[order] = True
    slot_partly_free, is_limited, is_holding_out = (
        np.zeros(row_count, np.bool_),
        np.zeros(row_count, np.bool_),
        np.zeros(row_count, np.bool_),
    )
    marked_count, holding_out_count, gang_count = np.array([len(order)]), np.zeros(1, np.int64), np.zeros(1, np.int64)
    gangs, is_gang = np.empty(row_count, np.int64), np.zeros(row_count, np.bool_)
    is_ready = np.ones((pool_count, len(order)), np.bool_)
    ready_count = np.full((pool_count, (len(order) >> BLOCK_BITS) + 1), 1 << BLOCK_BITS, np.int64)
    ready_count[:, -1] = len(order) & ((1 << BLOCK_BITS) - 1)
    return Recheck(
        rows_on,
        first_row_on,
        *runs_of(table, order, len(free_now.nodes)),
        is_ready,
        ready_count,
        turn,
        marked,
        is_marked,
        headroom_of(capacity.limits, table, order, at_s),
        first_row_on[1:].copy(),
        slot_partly_free,
        is_limited,
        is_holding_out,
        marked_count,
        holding_out_count,
        gangs,
        is_gang,
        gang_count,
        np.zeros(capacity.domain_counts.max() + 1, np.int64),
    )


@compiled
def index_rows(capacity: Capacity, table: Table, order: Ints) -> tuple[Ints, Ints]:
    node_count = len(capacity.gpu_counts)
    first = np.zeros(node_count + len(capacity.limits.head) + 1, np.int64)
    for j in order:
        for node in places_of(table, j):
            first[node + 1] += 1
        for limit in used(table.all_limits[j]):
            first[node_count + limit + 1] += 1
    first = np.cumsum(first)
    rows_on, end = np.empty(first[-1], np.int64), first.copy()
    for j in order:
        for node in places_of(table, j):
            rows_on[end[node]] = j
            end[node] += 1
        for limit in used(table.all_limits[j]):
            rows_on[end[node_count + limit]] = j
            end[node_count + limit] += 1
    return rows_on, first


@compiled
def runs_of(table: Table, order: Ints, group_count: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    run_group, count = np.empty(len(order), np.int64), 0
    first = np.zeros(len(order) + 1, np.int64)
    last = np.full(group_count, NONE, np.int64)  # row of each group
    run, place = np.full(len(table.state), NONE, np.int64), np.full(len(table.state), NONE, np.int64)
    for j in order:
        group = table.group[j]
        before = last[group]
        if before != NONE and table.length_s[before] <= table.length_s[j]:
            run[j] = run[before]
        else:
            run[j], run_group[count] = count, group
            count += 1
        first[run[j] + 1] += 1
        last[group] = j
    first = np.cumsum(first[: count + 1])
    row_at, end = np.empty(len(order), np.int64), first.copy()
    for j in order:
        place[j] = end[run[j]]
        row_at[place[j]] = j
        end[run[j]] += 1
    return run_group[:count], first, row_at, run, place


@lean
def set_ready(recheck: Recheck, j: int, i: int, is_ready: bool) -> None:
    place = recheck.place[j]
    recheck.ready_count[i, place >> BLOCK_BITS] += int(is_ready) - int(recheck.is_ready[i, place])
    recheck.is_ready[i, place] = is_ready


@lean
def next_ready(recheck: Recheck, table: Table, i: int, place: int, end: int) -> int:
    """Returns the first row that is ready in its pool `i` at a position in `[place, end)`, or NONE."""
    while place < end:
        if recheck.ready_count[i, place >> BLOCK_BITS] == 0:
            place = ((place >> BLOCK_BITS) + 1) << BLOCK_BITS
            continue
        if recheck.is_ready[i, place]:
            j = int(recheck.row_at[place])
            if table.state[j] == HAS_SLOT:
                return j
            set_ready(recheck, j, i, is_ready=False)
        place += 1
    return NONE


@lean
def mark_node(recheck: Recheck, table: Table, node: int) -> None:
    for j in recheck.rows_on[recheck.first_row_on[node] : recheck.first_row_on[node + 1]]:
        mark_row(recheck, table, j)


@lean
def mark_limited(capacity: Capacity, table: Table, recheck: Recheck, limit: int, at_s: int) -> None:
    """Marks the first row that this limit stopped and would stop no more. `mark_behind_limits` marks the next ones."""
    number = len(capacity.gpu_counts) + limit
    remeasure_limit(capacity.limits, recheck.headroom, limit, at_s)
    recheck.next_limited[number] = recheck.first_row_on[number]
    mark_next_limited(capacity, table, recheck, limit, at_s)


@lean
def mark_next_limited(capacity: Capacity, table: Table, recheck: Recheck, limit: int, at_s: int) -> None:
    """Stops once the limit leaves nothing: within a second it only leaves less."""
    number = len(capacity.gpu_counts) + limit
    if not leaves_any(recheck.headroom, limit, at_s):
        return
    while recheck.next_limited[number] < recheck.first_row_on[number + 1]:
        j = recheck.rows_on[recheck.next_limited[number]]
        recheck.next_limited[number] += 1
        if recheck.is_limited[j] and table.state[j] == HAS_SLOT and would_be_ready(capacity, table, recheck, j, at_s):
            mark_row(recheck, table, j)
            return


@lean
def mark_behind_limits(capacity: Capacity, table: Table, recheck: Recheck, j: int, at_s: int) -> None:
    """Marks the next row behind this row's limits, after the row was checked."""
    for limit in used(table.all_limits[j]):
        number = len(capacity.gpu_counts) + limit
        if recheck.next_limited[number] < recheck.first_row_on[number + 1]:
            mark_next_limited(capacity, table, recheck, limit, at_s)


@lean
def would_be_ready(capacity: Capacity, table: Table, recheck: Recheck, j: int, at_s: int) -> bool:
    """Tells whether a check now would find it ready in one more of its pools."""
    for i in range(len(used(table.pools[j]))):
        is_ready = recheck.is_ready[i, recheck.place[j]]
        if not is_ready and have_headroom(recheck.headroom, table, j, i, at_s) and not has_better_slot(capacity, table, j, i, at_s):
            return True
    return False


@lean
def has_better_slot(capacity: Capacity, table: Table, j: int, i: int, at_s: int) -> bool:
    """Tells whether its slot, in a preferred pool, counts for more than a start now in its pool `i`. Stays true until the slot."""
    if table.handicaps_s[j, i] == 0:
        return False
    m = pool_index(capacity, demand_of(table, j), places_of(table, j))
    if m == i:
        return False
    later_s = table.slot_s[j] + table.handicaps_s[j, m] - at_s - table.handicaps_s[j, i]
    return bool(later_s < 0 or (later_s == 0 and m < i))


@lean
def mark_holding_out(recheck: Recheck, table: Table) -> None:
    """Marks rows that hold out for a later start in a preferred pool, since that start may have been taken."""
    if recheck.holding_out_count[0] == 0:
        return
    for j in range(len(recheck.is_holding_out)):
        if recheck.is_holding_out[j]:
            mark_row(recheck, table, j)


@lean
def set_holding_out(recheck: Recheck, j: int, is_holding_out: bool) -> None:
    recheck.holding_out_count[0] += int(is_holding_out) - int(recheck.is_holding_out[j])
    recheck.is_holding_out[j] = is_holding_out


@lean
def mark_row(recheck: Recheck, table: Table, j: int) -> None:
    if not recheck.is_marked[j] and table.state[j] == HAS_SLOT:
        recheck.is_marked[j] = True
        recheck.marked[recheck.marked_count[0]] = j
        recheck.marked_count[0] += 1


@lean
def mark_groups(free_now: FreeNow, table: Table, recheck: Recheck, at_s: int) -> None:
    """Mark the first ready row of each run that has enough nodes, and gangs for which a node was freed for long enough."""
    update_enough(free_now)
    for r in range(len(recheck.run_group)):
        group = recheck.run_group[r]
        for i in range(len(used(free_now.size_classes[group]))):
            if free_now.enough_until_s[group, i] != NONE:
                mark_ready(free_now, table, recheck, i, recheck.run_first[r], r, at_s)
    i = 0
    while i < recheck.gang_count[0]:
        j = recheck.gangs[i]
        if not recheck.slot_partly_free[j] or table.state[j] != HAS_SLOT:
            recheck.is_gang[j] = False
            recheck.gang_count[0] -= 1
            recheck.gangs[i] = recheck.gangs[recheck.gang_count[0]]
            continue
        if has_improved(free_now, table, j, at_s):
            mark_row(recheck, table, j)
        i += 1
    free_now.improved_s[:] = NONE


@lean
def has_improved(free_now: FreeNow, table: Table, j: int, at_s: int) -> bool:
    group = table.group[j]
    for i in range(len(used(free_now.size_classes[group]))):
        if free_now.enough_until_s[group, i] != NONE and free_now.improved_s[free_now.size_classes[group, i]] >= at_s + table.length_s[j]:
            return True
    return False


@lean
def mark_next_of_run(free_now: FreeNow, table: Table, recheck: Recheck, j: int, at_s: int) -> None:
    for i in range(len(used(table.pools[j]))):
        mark_ready(free_now, table, recheck, i, recheck.place[j] + 1, recheck.run[j], at_s)


@lean
def mark_ready(free_now: FreeNow, table: Table, recheck: Recheck, i: int, place: int, run: int, at_s: int) -> None:
    """Mark the first ready row of the run from this position on, if there are enough nodes for it."""
    j = next_ready(recheck, table, i, place, recheck.run_first[run + 1])
    if j != NONE and free_now.enough_until_s[recheck.run_group[run], i] >= at_s + table.length_s[j]:
        mark_row(recheck, table, j)
