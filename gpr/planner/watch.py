"""Whom to look at when something changes, compiled: in a queue of thousands a tick that looked at all would never end."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from gpr.planner.ground import Ground
from gpr.planner.lines import NONE, Bools, Ints, compiled, lean, stays_free
from gpr.planner.now import Now, reach
from gpr.planner.table import WAITING, Table, kind_of, places_of, used

# Of so many places, two to this power, one looks at how many are ready.
BLOCK_BITS: Final = 6


class Watch(NamedTuple):
    """Whom to look at again when something changes, so that a tick need not look at everybody.

    `near[near_first[i]:near_first[i + 1]]` have their slots on node `i`, or share limit `i` less all nodes; in the order. `turn[j]` is the
    place of a row in the order.
    The rows of a group are in runs, in the order, of which none is longer than those behind it: mostly one run for each priority and share.
    Run `r` is of group `run_group[r]`, its rows are `row_at[run_first[r]:run_first[r + 1]]`; row `j` is of `run[j]`, at `place[j]`.
    `is_ready[place]`: it may wait for nodes alone. Not so those that come later, and those in whose way a limit was in all of their pools
    when last looked at. Of those that have been started some still count as ready. `ready_count[i]`: of so many at the places of block `i`.
    `touched[:touched_count[0]]`: there may be more room where their slots are than when last looked at; `is_touched` says the same.
    `woken[i]`, of a limit: those of `near` before it have been touched, or have no room below it, since it gave more.
    `is_near[j]`: when last looked at, some nodes of its slot were free, and no limit shut it out; all gangs of which that is so are among
    `gangs[:gang_count[0]]`, and `is_gang` says who is. `is_limited[j]`: when last looked at, a limit was in its way; of others no limit
    need tell, for they are ready, and so found by their run. `is_torn[j]`: it had room in a pool, but waits for one that it likes better;
    `torn_count[0]` of them do. `in_part` is scratch.
    """

    near: Ints
    near_first: Ints
    run_group: Ints
    run_first: Ints
    row_at: Ints
    run: Ints
    place: Ints
    is_ready: Bools
    ready_count: Ints
    turn: Ints
    touched: Ints
    is_touched: Bools
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
def watch_of(ground: Ground, now: Now, table: Table, order: Ints) -> Watch:
    """Everybody is to be looked at."""
    row_count = len(table.state)
    turn = np.zeros(row_count, np.int64)
    turn[order] = np.arange(len(order))
    near, near_first = near_of(ground, table, order)
    touched, is_touched = np.empty(row_count, np.int64), np.zeros(row_count, np.bool_)
    touched[: len(order)] = order
    is_touched[order] = True
    is_near, is_limited, is_torn = np.zeros(row_count, np.bool_), np.zeros(row_count, np.bool_), np.zeros(row_count, np.bool_)
    touched_count, torn_count, gang_count = np.array([len(order)]), np.zeros(1, np.int64), np.zeros(1, np.int64)
    gangs, is_gang = np.empty(row_count, np.int64), np.zeros(row_count, np.bool_)
    is_ready, ready_count = np.ones(len(order), np.bool_), np.full((len(order) >> BLOCK_BITS) + 1, 1 << BLOCK_BITS, np.int64)
    ready_count[-1] = len(order) & ((1 << BLOCK_BITS) - 1)
    return Watch(
        near,
        near_first,
        *runs_of(table, order, len(now.nodes)),
        is_ready,
        ready_count,
        turn,
        touched,
        is_touched,
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
def set_ready(watch: Watch, j: int, is_ready: bool) -> None:
    place = watch.place[j]
    watch.ready_count[place >> BLOCK_BITS] += int(is_ready) - int(watch.is_ready[place])
    watch.is_ready[place] = is_ready


@lean
def next_ready(watch: Watch, table: Table, place: int, end: int) -> int:
    """The first row that is ready at one of the places in `[place, end)`, or NONE."""
    while place < end:
        if watch.ready_count[place >> BLOCK_BITS] == 0:
            place = ((place >> BLOCK_BITS) + 1) << BLOCK_BITS
            continue
        if watch.is_ready[place]:
            j = int(watch.row_at[place])
            if table.state[j] == WAITING:
                return j
            set_ready(watch, j, is_ready=False)
        place += 1
    return NONE


@lean
def touch(watch: Watch, table: Table, node: int) -> None:
    """There may be more room at this node."""
    for j in watch.near[watch.near_first[node] : watch.near_first[node + 1]]:
        touch_row(watch, table, j)


@lean
def touch_limited(ground: Ground, table: Table, watch: Watch, i: int, at_s: int) -> None:
    """There may be more room below the limit `i`, less all nodes: for those in whose way it was, and nobody else. The first of them that
    it lets by is touched now, see `touch_below`.
    """
    watch.woken[i] = watch.near_first[i]
    touch_next_limited(ground, table, watch, i, at_s)


@lean
def touch_next_limited(ground: Ground, table: Table, watch: Watch, i: int, at_s: int) -> None:
    """While it leaves anything: within a second it leaves less with each that starts, so a walk that is broken off is over."""
    if not stays_free(ground.limits, i - len(ground.rooms), 1, at_s, at_s + 1):
        return
    while watch.woken[i] < watch.near_first[i + 1]:
        j = watch.near[watch.woken[i]]
        watch.woken[i] += 1
        if watch.is_limited[j] and table.state[j] == WAITING and not are_shut(ground, table, j, at_s):
            touch_row(watch, table, j)
            return


@lean
def touch_below(ground: Ground, table: Table, watch: Watch, j: int, at_s: int) -> None:
    """A row has been looked at: of those that wait for the same limits it is the turn of the next."""
    for line in used(table.lines[j]):
        i = len(ground.rooms) + line
        if watch.woken[i] < watch.near_first[i + 1]:
            touch_next_limited(ground, table, watch, i, at_s)


@lean
def are_shut(ground: Ground, table: Table, j: int, at_s: int) -> bool:
    """Is a limit in its way in each of its pools, even before its own slot takes any of it?"""
    kind = kind_of(table, j)
    until_s = min(at_s + kind.length_s, table.slot_s[j])
    for i in range(len(kind.pools)):
        is_open = True
        for k in range(kind.limits.shape[1]):
            line = kind.limits[i, k]
            is_open &= line == NONE or stays_free(ground.limits, line, kind.amounts[i, k], at_s, until_s)
        if is_open:
            return False
    return True


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
        reach_s = now.reach_s[watch.run_group[r]]
        if reach_s == NONE:
            continue
        j = next_ready(watch, table, watch.run_first[r], watch.run_first[r + 1])
        if j != NONE and reach_s >= at_s + table.length_s[j]:
            touch_row(watch, table, j)
    i = 0
    while i < watch.gang_count[0]:
        j = watch.gangs[i]
        if not watch.is_near[j] or table.state[j] != WAITING:
            watch.is_gang[j] = False
            watch.gang_count[0] -= 1
            watch.gangs[i] = watch.gangs[watch.gang_count[0]]
            continue
        if now.reach_s[table.group[j]] != NONE and has_better(now, table, j, at_s):
            touch_row(watch, table, j)
        i += 1
    now.better_s[:] = NONE


@lean
def has_better(now: Now, table: Table, j: int, at_s: int) -> bool:
    """Has a node become better that stays free for its whole length?"""
    best_s = NONE
    for k in used(now.levels[table.group[j]]):
        best_s = max(best_s, now.better_s[k])
    return bool(best_s >= at_s + table.length_s[j])


@lean
def touch_behind(now: Now, table: Table, watch: Watch, j: int, at_s: int) -> None:
    """The next of its run, when it has been looked at: nobody behind one for which there is not enough has enough."""
    behind = next_ready(watch, table, watch.place[j] + 1, watch.run_first[watch.run[j] + 1])
    if behind != NONE and now.reach_s[table.group[j]] >= at_s + table.length_s[behind]:
        touch_row(watch, table, behind)
