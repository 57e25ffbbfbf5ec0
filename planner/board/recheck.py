"""Whom to look at when something changes, compiled: in a queue of thousands a tick that looked at all would never end."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from planner.board.table import WAITING, Table, kind_of, places_of, used
from planner.capacity.free_now import Now, reach
from planner.capacity.headroom import Gates, are_open, gates_of, leaves_any, look_at_gate
from planner.capacity.placement import Ground, which_pool
from planner.capacity.profile import NONE, BoolGrid, Bools, IntGrid, Ints
from planner.kernels import compiled, lean

# Of so many places, two to this power, one looks at how many are ready.
BLOCK_BITS: Final = 6


class Watch(NamedTuple):
    """Whom to look at again when something changes, so that a tick need not look at everybody.

    `near[near_first[n]:near_first[n + 1]]` have their slots on node `n`, or share limit `n` less all nodes; in the order. `turn[j]` is the
    place of a row in the order.
    The rows of a group are in runs, in the order, of which none is longer than those behind it: mostly one run for each priority and share.
    Run `r` is of group `run_group[r]`, its rows are `row_at[run_first[r]:run_first[r + 1]]`; row `j` is of `run[j]`, at `place[j]`.
    `is_ready[i, place]`: in its pool `i` it may wait for nodes alone. Not so those that come later, those in whose way a limit was when
    last looked at, and those that wait for a pool that they like better. Of those that have been started some still count as ready.
    `ready_count[i, b]`: of so many at the places of block `b`.
    `touched[:touched_count[0]]`: there may be more room where their slots are than when last looked at; `is_touched` says the same.
    `gates` are as of now for each limit that has given room, or of which some was taken.
    `woken[n]`, of a limit: those of `near` before it have been touched, or have no room below it, since it gave more.
    `is_near[j]`: when last looked at, some nodes of its slot were free in a pool in which it was ready; all gangs of which that is so are
    among `gangs[:gang_count[0]]`, and `is_gang` says who is. `is_limited[j]`: when last looked at, a limit was in its way; of others no
    limit need tell, for they are ready, and so found by their run. `is_torn[j]`: it had room in a pool, but waits for one that it likes
    better; `torn_count[0]` of them do. `in_part` is scratch.
    """

    near: Ints
    near_first: Ints
    run_group: Ints
    run_first: Ints
    row_at: Ints
    run: Ints
    place: Ints
    is_ready: BoolGrid
    ready_count: IntGrid
    turn: Ints
    touched: Ints
    is_touched: Bools
    gates: Gates
    woken: Ints
    is_near: Bools
    is_limited: Bools
    is_torn: Bools
    touched_count: Ints
    torn_count: Ints
    gangs: Ints
    is_gang: Bools
    gang_count: Ints
    in_part: Ints


@compiled
def watch_of(ground: Ground, now: Now, table: Table, order: Ints, at_s: int) -> Watch:
    """Everybody is to be looked at."""
    row_count, pool_count = table.pools.shape
    turn = np.zeros(row_count, np.int64)
    turn[order] = np.arange(len(order))
    near, near_first = near_of(ground, table, order)
    touched, is_touched = np.empty(row_count, np.int64), np.zeros(row_count, np.bool_)
    touched[: len(order)] = order
    is_touched[order] = True
    is_near, is_limited, is_torn = np.zeros(row_count, np.bool_), np.zeros(row_count, np.bool_), np.zeros(row_count, np.bool_)
    touched_count, torn_count, gang_count = np.array([len(order)]), np.zeros(1, np.int64), np.zeros(1, np.int64)
    gangs, is_gang = np.empty(row_count, np.int64), np.zeros(row_count, np.bool_)
    is_ready = np.ones((pool_count, len(order)), np.bool_)
    ready_count = np.full((pool_count, (len(order) >> BLOCK_BITS) + 1), 1 << BLOCK_BITS, np.int64)
    ready_count[:, -1] = len(order) & ((1 << BLOCK_BITS) - 1)
    return Watch(
        near,
        near_first,
        *runs_of(table, order, len(now.nodes)),
        is_ready,
        ready_count,
        turn,
        touched,
        is_touched,
        gates_of(ground.limits, table, order, at_s),
        near_first[1:].copy(),
        is_near,
        is_limited,
        is_torn,
        touched_count,
        torn_count,
        gangs,
        is_gang,
        gang_count,
        np.zeros(ground.part_counts.max() + 1, np.int64),
    )


@compiled
def near_of(ground: Ground, table: Table, order: Ints) -> tuple[Ints, Ints]:
    """(near, near_first) of a Watch."""
    node_count = len(ground.rooms)
    first = np.zeros(node_count + len(ground.limits.head) + 1, np.int64)
    for j in order:
        for node in places_of(table, j):
            first[node + 1] += 1
        for line in used(table.lines[j]):
            first[node_count + line + 1] += 1
    first = np.cumsum(first)
    near, end = np.empty(first[-1], np.int64), first.copy()
    for j in order:
        for node in places_of(table, j):
            near[end[node]] = j
            end[node] += 1
        for line in used(table.lines[j]):
            near[end[node_count + line]] = j
            end[node_count + line] += 1
    return near, first


@compiled
def runs_of(table: Table, order: Ints, group_count: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """(run_group, run_first, row_at, run, place) of a Watch."""
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
def set_ready(watch: Watch, j: int, i: int, is_ready: bool) -> None:
    place = watch.place[j]
    watch.ready_count[i, place >> BLOCK_BITS] += int(is_ready) - int(watch.is_ready[i, place])
    watch.is_ready[i, place] = is_ready


@lean
def next_ready(watch: Watch, table: Table, i: int, place: int, end: int) -> int:
    """The first row that is ready in its pool `i` at one of the places in `[place, end)`, or NONE."""
    while place < end:
        if watch.ready_count[i, place >> BLOCK_BITS] == 0:
            place = ((place >> BLOCK_BITS) + 1) << BLOCK_BITS
            continue
        if watch.is_ready[i, place]:
            j = int(watch.row_at[place])
            if table.state[j] == WAITING:
                return j
            set_ready(watch, j, i, is_ready=False)
        place += 1
    return NONE


@lean
def touch(watch: Watch, table: Table, node: int) -> None:
    """There may be more room at this node."""
    for j in watch.near[watch.near_first[node] : watch.near_first[node + 1]]:
        touch_row(watch, table, j)


@lean
def touch_limited(ground: Ground, table: Table, watch: Watch, line: int, at_s: int) -> None:
    """There may be more room below this limit: for those in whose way it was, and nobody else. The first of them that it lets by is touched
    now, see `touch_below`.
    """
    number = len(ground.rooms) + line
    look_at_gate(ground.limits, watch.gates, line, at_s)
    watch.woken[number] = watch.near_first[number]
    touch_next_limited(ground, table, watch, line, at_s)


@lean
def touch_next_limited(ground: Ground, table: Table, watch: Watch, line: int, at_s: int) -> None:
    """While it leaves anything: within a second it leaves less with each that starts, so a walk that is broken off is over."""
    number = len(ground.rooms) + line
    if not leaves_any(watch.gates, line, at_s):
        return
    while watch.woken[number] < watch.near_first[number + 1]:
        j = watch.near[watch.woken[number]]
        watch.woken[number] += 1
        if watch.is_limited[j] and table.state[j] == WAITING and would_be_ready(ground, table, watch, j, at_s):
            touch_row(watch, table, j)
            return


@lean
def touch_below(ground: Ground, table: Table, watch: Watch, j: int, at_s: int) -> None:
    """A row has been looked at: of those that wait for the same limits it is the turn of the next."""
    for line in used(table.lines[j]):
        number = len(ground.rooms) + line
        if watch.woken[number] < watch.near_first[number + 1]:
            touch_next_limited(ground, table, watch, line, at_s)


@lean
def would_be_ready(ground: Ground, table: Table, watch: Watch, j: int, at_s: int) -> bool:
    """Would it be ready in one more of its pools, if it were looked at now?"""
    for i in range(len(used(table.pools[j]))):
        is_ready = watch.is_ready[i, watch.place[j]]
        if not is_ready and are_open(watch.gates, table, j, i, at_s) and not has_better_slot(ground, table, j, i, at_s):
            return True
    return False


@lean
def has_better_slot(ground: Ground, table: Table, j: int, i: int, at_s: int) -> bool:
    """Does its slot count for more than a start now in its pool `i`, as it is in a pool that it likes better? So it will be until then."""
    if table.handicaps_s[j, i] == 0:
        return False
    m = which_pool(ground, kind_of(table, j), places_of(table, j))
    if m == i:
        return False
    later_s = table.slot_s[j] + table.handicaps_s[j, m] - at_s - table.handicaps_s[j, i]
    return bool(later_s < 0 or (later_s == 0 and m < i))


@lean
def touch_torn(watch: Watch, table: Table) -> None:
    """The room that they wait for may have been taken."""
    if watch.torn_count[0] == 0:
        return
    for j in range(len(watch.is_torn)):
        if watch.is_torn[j]:
            touch_row(watch, table, j)


@lean
def set_torn(watch: Watch, j: int, is_torn: bool) -> None:
    watch.torn_count[0] += int(is_torn) - int(watch.is_torn[j])
    watch.is_torn[j] = is_torn


@lean
def touch_row(watch: Watch, table: Table, j: int) -> None:
    if not watch.is_touched[j] and table.state[j] == WAITING:
        watch.is_touched[j] = True
        watch.touched[watch.touched_count[0]] = j
        watch.touched_count[0] += 1


@lean
def touch_groups(now: Now, table: Table, watch: Watch, at_s: int) -> None:
    """Touch the first of each run if there are enough nodes for long enough; and gangs that have some of them where their slot is, if
    another has become free for long enough.
    """
    reach(now)
    for r in range(len(watch.run_group)):
        group = watch.run_group[r]
        for i in range(len(used(now.levels[group]))):
            if now.reach_s[group, i] != NONE:
                touch_ready(now, table, watch, i, watch.run_first[r], r, at_s)
    i = 0
    while i < watch.gang_count[0]:
        j = watch.gangs[i]
        if not watch.is_near[j] or table.state[j] != WAITING:
            watch.is_gang[j] = False
            watch.gang_count[0] -= 1
            watch.gangs[i] = watch.gangs[watch.gang_count[0]]
            continue
        if has_better(now, table, j, at_s):
            touch_row(watch, table, j)
        i += 1
    now.better_s[:] = NONE


@lean
def has_better(now: Now, table: Table, j: int, at_s: int) -> bool:
    """Has a node become better that stays free for its whole length, in a pool in which enough are free?"""
    group = table.group[j]
    for i in range(len(used(now.levels[group]))):
        if now.reach_s[group, i] != NONE and now.better_s[now.levels[group, i]] >= at_s + table.length_s[j]:
            return True
    return False


@lean
def touch_behind(now: Now, table: Table, watch: Watch, j: int, at_s: int) -> None:
    """The next of its run, when it has been looked at: nobody behind one for which there is not enough has enough."""
    for i in range(len(used(table.pools[j]))):
        touch_ready(now, table, watch, i, watch.place[j] + 1, watch.run[j], at_s)


@lean
def touch_ready(now: Now, table: Table, watch: Watch, i: int, place: int, run: int, at_s: int) -> None:
    """Of those of the run from this place on that are ready in their pool `i` the first, if there are enough nodes for it."""
    j = next_ready(watch, table, i, place, watch.run_first[run + 1])
    if j != NONE and now.reach_s[watch.run_group[run], i] >= at_s + table.length_s[j]:
        touch_row(watch, table, j)
