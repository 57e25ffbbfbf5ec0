"""The moves of the policy, compiled: who may start now beside everybody else's slots, and how that goes on until the queue is empty.

The queue is a table with a row for each request, so that the same code makes a tick and plays all ticks to come on a copy.
"""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

import numpy as np

from gpr.planner.ground import Ground, Kind, choose, counts_s, earliest, limits_allow, members_of, nearest, need_of, room_at, take
from gpr.planner.lines import (
    AFTER,
    AT_S,
    FREE,
    NEVER_S,
    NONE,
    Bools,
    Ints,
    compiled,
    end_of,
    forget_before,
    lean,
    least_free,
    next_step_s,
    rises,
    spliced,
)

# What a row of the table is.
EMPTY: Final = 0
LOOSE: Final = 1  # waits, and has no slot
WAITING: Final = 2  # waits, and its slot is on the ground
STARTED: Final = 3  # its slot has become its box


class Table(NamedTuple):
    """The queue, a row for each request. Unused places of `pools`, `limits` and `lines` are NONE.

    `handicaps_s[j, i]`, `limits[j, i]` and `amounts[j, i]` are of its pool `pools[j, i]`; `lines[j]` are all of these limits, each once.
    Its slot is `places[first_place[j]:first_place[j] + nodes[j]]` from `slot_s[j]` on.
    Those of a group have the same pools, nodes and GPUs per node: they differ in length only.
    """

    state: Ints
    nodes: Ints
    gpus: Ints
    length_s: Ints
    level: Ints
    earliest_s: Ints
    slot_s: Ints
    pools: Ints
    handicaps_s: Ints
    group: Ints
    limits: Ints
    amounts: Ints
    lines: Ints
    first_place: Ints
    places: Ints


class Now(NamedTuple):
    """For each level (a pool and so many GPUs per node): how long each node stays free from now on, NONE where it is not.

    The levels of pool `p` are `first[p]` to less than `first[p + 1]`; `seen_s[k]` is scratch, for one node.
    `until_s[node, k]`; `ranked_s[k, :fill[k]]` the same in rising order without the NONEs, `ranked[k, :fill[k]]` whose they are.
    `better_s[k]`: how long at most a node stays free that has become better since the groups were last touched; NONE: none has.
    Group `g` wants `nodes[g]` nodes of one of the levels `levels[g]`, which follow its pools; `reach_s[g]`: until when it would have them.
    """

    first: Ints
    gpus: Ints
    seen_s: Ints
    until_s: Ints
    ranked_s: Ints
    ranked: Ints
    fill: Ints
    better_s: Ints
    levels: Ints
    nodes: Ints
    reach_s: Ints


def new_now(first: Ints, gpus: Ints, levels: Ints, nodes: Ints, *, node_count: int) -> Now:
    count = len(gpus)
    until_s, seen_s = np.full((node_count, count), NONE, np.int64), np.zeros(count, np.int64)
    ranked_s, ranked = np.zeros((count, node_count), np.int64), np.zeros((count, node_count), np.int64)
    fill, better_s = np.zeros(count, np.int64), np.full(count, NONE, np.int64)
    return Now(first, gpus, seen_s, until_s, ranked_s, ranked, fill, better_s, levels, nodes, np.zeros(len(nodes), np.int64))


@spliced
def used(array: Ints) -> Ints:
    """A row without the NONEs at its end."""
    count = 0
    while count < len(array) and array[count] != NONE:
        count += 1
    return array[:count]


@spliced
def kind_of(table: Table, j: int) -> Kind:
    pools = used(table.pools[j])
    handicaps_s, limits, amounts = table.handicaps_s[j, : len(pools)], table.limits[j, : len(pools)], table.amounts[j, : len(pools)]
    return Kind(table.nodes[j], table.gpus[j], table.length_s[j], table.level[j], pools, handicaps_s, limits, amounts)


@spliced
def places_of(table: Table, j: int) -> Ints:
    return table.places[table.first_place[j] : table.first_place[j] + table.nodes[j]]


@lean
def put(ground: Ground, table: Table, j: int, sign: int) -> None:
    """The slot of a row: onto the ground (1), or off it (-1)."""
    take(ground, places_of(table, j), kind_of(table, j), table.slot_s[j], table.slot_s[j] + table.length_s[j], sign)


@lean
def look_at(ground: Ground, now: Now, node: int, at_s: int) -> None:
    """Fill `seen_s` for all levels of the node's pool, in one walk along its line."""
    first, last = now.first[ground.pool_of[node]], now.first[ground.pool_of[node] + 1]
    now.seen_s[first:last] = NEVER_S
    steps, step = ground.nodes.steps, ground.nodes.head[node]
    while end_of(ground.nodes, step) <= at_s:
        step = steps[step, AFTER]
    left, gone_s = last - first, NONE
    while left > 0 and step != NONE:
        for k in range(first, last):
            if now.seen_s[k] == NEVER_S and steps[step, FREE] < need_of(ground, node, now.gpus[k]):
                now.seen_s[k] = gone_s
                left -= 1
        step = steps[step, AFTER]
        gone_s = steps[step, AT_S]


@compiled
def look(ground: Ground, now: Now, at_s: int) -> None:
    """Fill `now` for all nodes."""
    now.fill[:] = 0
    for pool in range(len(now.first) - 1):
        first, last = now.first[pool], now.first[pool + 1]
        for node in members_of(ground, pool):
            look_at(ground, now, node, at_s)
            now.until_s[node, first:last] = now.seen_s[first:last]
            for k in range(first, last):
                if now.seen_s[k] != NONE:
                    now.ranked[k, now.fill[k]] = node
                    now.fill[k] += 1
        for k in range(first, last):
            free = now.ranked[k, : now.fill[k]]
            until_s = now.until_s[:, k][free]
            order = np.argsort(until_s)
            now.ranked_s[k, : now.fill[k]] = until_s[order]
            free[:] = free[order]


@lean
def look_again(ground: Ground, now: Now, node: int, at_s: int) -> bool:
    """A node has changed. True when it stays free for longer than it did, so that somebody may fit who did not."""
    is_better = False
    look_at(ground, now, node, at_s)
    for k in range(now.first[ground.pool_of[node]], now.first[ground.pool_of[node] + 1]):
        old_s, new_s = now.until_s[node, k], now.seen_s[k]
        if new_s == old_s:
            continue
        now.until_s[node, k] = new_s
        if new_s > old_s:
            is_better = True
            now.better_s[k] = max(now.better_s[k], new_s)
        rank_anew(now, k, node, old_s, new_s)
    return is_better


@lean
def rank_anew(now: Now, k: int, node: int, old_s: int, new_s: int) -> None:
    """It stays free until `new_s` instead of `old_s`."""
    ranked_s, ranked = now.ranked_s[k], now.ranked[k]
    if old_s != NONE:
        i = np.searchsorted(ranked_s[: now.fill[k]], old_s)
        while ranked[i] != node:
            i += 1
        now.fill[k] -= 1
        for m in range(i, now.fill[k]):
            ranked_s[m], ranked[m] = ranked_s[m + 1], ranked[m + 1]
    if new_s != NONE:
        i = np.searchsorted(ranked_s[: now.fill[k]], new_s)
        for m in range(now.fill[k], i, -1):
            ranked_s[m], ranked[m] = ranked_s[m - 1], ranked[m - 1]
        ranked_s[i], ranked[i] = new_s, node
        now.fill[k] += 1


@lean
def reach(now: Now) -> None:
    """Fill `reach_s`."""
    for g in range(len(now.nodes)):
        now.reach_s[g] = NONE
        for k in used(now.levels[g]):
            place = now.fill[k] - now.nodes[g]
            if place >= 0:
                now.reach_s[g] = max(now.reach_s[g], now.ranked_s[k, place])


@lean
def may_start(now: Now, table: Table, watch: Watch, j: int, at_s: int) -> bool:
    """Are enough nodes free for its whole length from now on, its own slot not counted? A look at a few figures, not at the nodes."""
    end_s, slot_s = at_s + table.length_s[j], table.slot_s[j]
    levels = used(now.levels[table.group[j]])
    note_near(now, table, watch, j, levels)
    if now.reach_s[table.group[j]] >= end_s:
        return True
    if slot_s >= end_s:
        return False
    # On its own nodes it may be its own slot that is in the way.
    for k in levels:
        ready = 0
        for node in places_of(table, j):
            if slot_s <= now.until_s[node, k] < end_s:
                ready += 1
        if ready > 0 and ready + now.fill[k] - np.searchsorted(now.ranked_s[k, : now.fill[k]], end_s) >= table.nodes[j]:
            return True
    return False


@lean
def note_near(now: Now, table: Table, watch: Watch, j: int, levels: Ints) -> None:
    """Are nodes of its slot free?"""
    watch.is_near[j] = False
    first = table.first_place[j]
    for k in levels:
        for i in range(first, first + table.nodes[j]):
            watch.is_near[j] |= now.until_s[table.places[i], k] != NONE
    if watch.is_near[j] and table.nodes[j] > 1 and not watch.is_gang[j]:
        watch.is_gang[j] = True
        watch.gangs[watch.gang_count[0]] = j
        watch.gang_count[0] += 1


@compiled
def choose_now(ground: Ground, now: Now, k: int, kind: Kind, at_s: int) -> Ints:
    """As `choose` for a box that starts now, from what is known of now."""
    end_s = at_s + kind.length_s
    first = np.searchsorted(now.ranked_s[k, : now.fill[k]], end_s)
    free = np.sort(now.ranked[k, first : now.fill[k]])
    left = np.empty(len(free), np.int64)
    for i in range(len(free)):
        left[i] = least_free(ground.nodes, free[i], at_s, end_s) - need_of(ground, free[i], kind.gpus)
    return nearest(ground, kind, free, left, now.until_s[:, k][free])


@compiled
def is_better_elsewhere(ground: Ground, kind: Kind, i: int, at_s: int) -> bool:
    """Does a start now in its pool `i` count for less than a later one in a pool that it likes better?"""
    handicap_s = int(kind.handicaps_s[i])
    return handicap_s > 0 and earliest(ground, kind, at_s, at_s + handicap_s + 1)[1] != int(kind.pools[i])


@compiled
def start_now(ground: Ground, now: Now, table: Table, watch: Watch, j: int, at_s: int) -> tuple[bool, bool]:
    """Start it if it has room beside all other slots; else nothing changes. Answers whether it did, and whether that left room."""
    kind = kind_of(table, j)
    slot = places_of(table, j).copy()
    had_slot = table.state[j] == WAITING
    is_better = False
    if had_slot:
        put(ground, table, j, -1)
        for node in slot:
            is_better |= look_again(ground, now, node, at_s)
    watch.is_limited[j] = False
    set_torn(watch, j, is_torn=False)
    for i in range(len(kind.pools)):
        if not limits_allow(ground, kind, i, at_s):
            watch.is_limited[j] = True
            continue
        chosen = choose_now(ground, now, now.levels[table.group[j], i], kind, at_s)
        if len(chosen) == kind.nodes:
            if is_better_elsewhere(ground, kind, i, at_s):
                set_torn(watch, j, is_torn=True)
                continue
            places_of(table, j)[:] = chosen
            table.slot_s[j] = at_s
            table.state[j] = STARTED
            put(ground, table, j, 1)
            for node in chosen:
                look_again(ground, now, node, at_s)
            return True, is_better
    if had_slot:
        put(ground, table, j, 1)
        for node in slot:
            look_again(ground, now, node, at_s)
    return False, False


@lean
def start_due(table: Table, order: Ints, at_s: int, started: Ints) -> int:
    """Those whose slots have come start there. Answers how many rows `started` holds."""
    count = 0
    for j in order:
        if table.state[j] == WAITING and table.slot_s[j] <= at_s:
            table.state[j] = STARTED
            started[count] = j
            count += 1
    return count


class Watch(NamedTuple):
    """Whom to look at again when something changes, so that a tick need not look at everybody.

    `near[near_first[i]:near_first[i + 1]]` have their slots on node `i`, or share limit `i` less all nodes. `turn[j]` is the place of a
    row in the order. The rows of a group are in runs, in order of turn, of which none is longer than those behind it: mostly one run for
    each priority and share. Run `r` is of group `run_group[r]` and begins with row `peer[r]`; `next_peer[j]` is the one behind `j`, NONE
    behind the last; some may have started.
    `touched[:touched_count[0]]`: there may be more room where their slots are than when last looked at; `is_touched` says the same.
    `is_near[j]`: when last looked at, some nodes of its slot were free; all gangs of which that is so are among
    `gangs[:gang_count[0]]`, and `is_gang` says who is. `is_limited[j]`: a limit was in its way. `is_torn[j]`: it had
    room in a pool, but waits for one that it likes better; `torn_count[0]` of them do.
    """

    near: Ints
    near_first: Ints
    run_group: Ints
    peer: Ints
    next_peer: Ints
    turn: Ints
    touched: Ints
    is_touched: Bools
    is_near: Bools
    is_limited: Bools
    is_torn: Bools
    touched_count: Ints
    torn_count: Ints
    gangs: Ints
    is_gang: Bools
    gang_count: Ints


@compiled
def watch_of(ground: Ground, now: Now, table: Table, order: Ints) -> Watch:
    """Everybody is to be looked at."""
    node_count, row_count = len(ground.rooms), len(table.state)
    near_first = np.zeros(node_count + len(ground.limits.head) + 1, np.int64)
    turn = np.zeros(row_count, np.int64)
    for i in range(len(order)):
        j = order[i]
        turn[j] = i
        for node in places_of(table, j):
            near_first[node + 1] += 1
        for line in used(table.lines[j]):
            near_first[node_count + line + 1] += 1
    near_first = np.cumsum(near_first)
    near, near_end = np.empty(near_first[-1], np.int64), near_first.copy()
    for j in order:
        for node in places_of(table, j):
            near[near_end[node]] = j
            near_end[node] += 1
        for line in used(table.lines[j]):
            near[near_end[node_count + line]] = j
            near_end[node_count + line] += 1
    touched, is_touched = np.empty(row_count, np.int64), np.zeros(row_count, np.bool_)
    touched[: len(order)] = order
    is_touched[order] = True
    is_near, is_limited, is_torn = np.zeros(row_count, np.bool_), np.zeros(row_count, np.bool_), np.zeros(row_count, np.bool_)
    counts = np.array([len(order)]), np.zeros(1, np.int64)
    gangs, is_gang, gang_count = np.empty(row_count, np.int64), np.zeros(row_count, np.bool_), np.zeros(1, np.int64)
    runs = runs_of(table, order, len(now.nodes))
    return Watch(near, near_first, *runs, turn, touched, is_touched, is_near, is_limited, is_torn, *counts, gangs, is_gang, gang_count)


@compiled
def runs_of(table: Table, order: Ints, group_count: int) -> tuple[Ints, Ints, Ints]:
    """(run_group, peer, next_peer) of a Watch."""
    run_group, peer, count = np.empty(len(order), np.int64), np.empty(len(order), np.int64), 0
    next_peer, last = np.full(len(table.state), NONE, np.int64), np.full(group_count, NONE, np.int64)
    for j in order:
        group = table.group[j]
        before = last[group]
        if before != NONE and table.length_s[before] <= table.length_s[j]:
            next_peer[before] = j
        else:
            run_group[count], peer[count] = group, j
            count += 1
        last[group] = j
    return run_group[:count], peer[:count], next_peer


@lean
def touch(watch: Watch, table: Table, node: int) -> None:
    """There may be more room at this node."""
    for j in watch.near[watch.near_first[node] : watch.near_first[node + 1]]:
        touch_row(watch, table, j)


@lean
def touch_limited(watch: Watch, table: Table, i: int) -> None:
    """There may be more room below the limit `i`, less all nodes: for those in whose way it was, and nobody else."""
    for j in watch.near[watch.near_first[i] : watch.near_first[i + 1]]:
        if watch.is_limited[j]:
            touch_row(watch, table, j)


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
    for r in range(len(watch.peer)):
        while watch.peer[r] != NONE and table.state[watch.peer[r]] != WAITING:
            watch.peer[r] = watch.next_peer[watch.peer[r]]
        g, j = watch.run_group[r], watch.peer[r]
        if now.reach_s[g] == NONE or j == NONE:
            continue
        if now.reach_s[g] >= at_s + table.length_s[j]:
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
    behind = peer_behind(table, watch, j)
    if behind != NONE and now.reach_s[table.group[j]] >= at_s + table.length_s[behind]:
        touch_row(watch, table, behind)


@lean
def peer_behind(table: Table, watch: Watch, j: int) -> int:
    """Who still waits behind it in its run, or NONE."""
    while watch.next_peer[j] != NONE and table.state[watch.next_peer[j]] != WAITING:
        watch.next_peer[j] = watch.next_peer[watch.next_peer[j]]
    return int(watch.next_peer[j])


@compiled
def start_others(ground: Ground, now: Now, table: Table, watch: Watch, at_s: int, started: Ints) -> int:
    """Again and again the first in order that fits now beside all slots, until nobody does. Answers how many rows `started` holds.

    Whoever starts takes room now, but leaves room where its slot was: then somebody before it may fit.
    """
    count = 0
    touch_groups(now, table, watch, at_s)
    turns = [(watch.turn[j], j) for j in watch.touched[: watch.touched_count[0]]]
    watch.touched_count[0] = 0
    heapq.heapify(turns)
    while len(turns) > 0:
        _, j = heapq.heappop(turns)
        watch.is_touched[j] = False
        if table.state[j] == WAITING and table.earliest_s[j] <= at_s and may_start(now, table, watch, j, at_s):
            slot = places_of(table, j).copy()
            did, is_better = start_now(ground, now, table, watch, j, at_s)
            if did:
                started[count] = j
                count += 1
                touch_others(ground, now, table, watch, j, slot if is_better else slot[:0], at_s)
        touch_behind(now, table, watch, j, at_s)
        for m in watch.touched[: watch.touched_count[0]]:
            heapq.heappush(turns, (watch.turn[m], m))
        watch.touched_count[0] = 0
    return count


@compiled
def touch_others(ground: Ground, now: Now, table: Table, watch: Watch, j: int, left: Ints, at_s: int) -> None:
    """Whom it concerns that a row has started. `left`: the nodes of its slot, if that left room."""
    reach(now)
    for node in left:
        touch(watch, table, node)
    if len(left) > 0:
        touch_groups(now, table, watch, at_s)
    for line in used(table.lines[j]):
        touch_limited(watch, table, len(ground.rooms) + line)
    touch_torn(watch, table)


@compiled
def tick(ground: Ground, now: Now, table: Table, order: Ints, at_s: int) -> Ints:
    """Start all that may start, and answer their rows in the order in which they did."""
    started = np.empty(len(order), np.int64)
    due = start_due(table, order, at_s, started)
    look(ground, now, at_s)
    watch = watch_of(ground, now, table, order[table.state[order] == WAITING])
    return started[: due + start_others(ground, now, table, watch, at_s, started[due:])]


class Agenda(NamedTuple):
    """What changes when: nodes and limits, numbered in this order. `due_s[i]`: when `i` is looked at next; other entries of it are void."""

    events: list[tuple[int, int]]
    due_s: Ints


@compiled
def put_down(ground: Ground, agenda: Agenda, number: int, at_s: int) -> None:
    """The next change of a node or a limit, if it is not known of."""
    node_count = len(ground.rooms)
    is_node = number < node_count
    due_s = next_step_s(ground.nodes, number, at_s) if is_node else next_step_s(ground.limits, number - node_count, at_s)
    if agenda.due_s[number] != due_s:
        agenda.due_s[number] = due_s
        if due_s < NEVER_S:
            heapq.heappush(agenda.events, (due_s, number))


@compiled
def play(ground: Ground, now: Now, table: Table, order: Ints, at_s: int, asked: Bools) -> None:
    """All ticks from now on, if nobody comes and every box takes its whole length; then `slot_s` says when each row starts.

    `asked`, by row: about whom one wants to know; it ends when all of these have started. It ticks when something changes: a box ends, a
    slot is due, a window opens, an earliest start comes. Everything is changed in place, so give it copies.
    """
    node_count = len(ground.rooms)
    first_row = node_count + len(ground.limits.head)
    events = [(table.slot_s[j], first_row + j) for j in order if table.state[j] == WAITING]
    events += [(table.earliest_s[j], first_row + j) for j in order if table.state[j] == WAITING and table.earliest_s[j] > at_s]
    agenda = Agenda(events, np.full(first_row, NEVER_S, np.int64))
    for number in range(first_row):
        put_down(ground, agenda, number, at_s)
    heapq.heapify(events)
    look(ground, now, at_s)
    started = np.empty(len(order), np.int64)
    waiting, slots = order[table.state[order] == WAITING], table.places.copy()
    watch = watch_of(ground, now, table, waiting)
    left, goes_on = asked[waiting].sum(), True
    while left > 0:
        while len(events) > 0 and events[0][0] <= at_s:
            due_s, number = heapq.heappop(events)
            if number >= first_row:
                j = number - first_row
                if table.state[j] == WAITING and table.earliest_s[j] == at_s:
                    goes_on = True
                    touch_row(watch, table, j)
                if table.state[j] == WAITING and table.slot_s[j] <= at_s:
                    table.state[j] = STARTED
                    left -= asked[j]
            elif agenda.due_s[number] == due_s:
                goes_on |= follow(ground, now, table, watch, number, at_s)
                put_down(ground, agenda, number, at_s)
        if goes_on:
            count = start_others(ground, now, table, watch, at_s, started)
            left -= asked[started[:count]].sum()
            for j in started[:count]:
                for i in range(table.first_place[j], table.first_place[j] + table.nodes[j]):
                    put_down(ground, agenda, table.places[i], at_s)
                    put_down(ground, agenda, slots[i], at_s)
                for line in used(table.lines[j]):
                    put_down(ground, agenda, node_count + line, at_s)
        goes_on = False
        if len(events) == 0 or events[0][0] >= NEVER_S:
            break
        at_s = events[0][0]


@lean
def follow(ground: Ground, now: Now, table: Table, watch: Watch, number: int, at_s: int) -> bool:
    """A node or a limit changes now. True when somebody may fit who did not."""
    line = number - len(ground.rooms)
    if line < 0:
        forget_before(ground.nodes, number, at_s)
        is_better = look_again(ground, now, number, at_s)
        if is_better:
            touch(watch, table, number)
        return is_better
    is_better = rises(ground.limits, line, at_s)
    if is_better:
        touch_limited(watch, table, number)
    forget_before(ground.limits, line, at_s)
    return is_better


@compiled
def compress(ground: Ground, table: Table, order: Ints, at_s: int) -> None:
    """An answer to early ends: in order, move each of these slots up as far as all others allow, until none moves."""
    goes_on = True
    while goes_on:
        goes_on = False
        for j in order:
            since_s = max(at_s, table.earliest_s[j])
            if table.state[j] != WAITING or table.slot_s[j] <= since_s:
                continue
            put(ground, table, j, -1)
            kind = kind_of(table, j)
            start_s, pool = earliest(ground, kind, since_s, table.slot_s[j])
            if pool != NONE and counts_s(kind, pool, start_s) < counts_s(kind, ground.pool_of[places_of(table, j)[0]], table.slot_s[j]):
                places_of(table, j)[:] = choose(ground, pool, kind, start_s)
                table.slot_s[j] = start_s
                goes_on = True
            put(ground, table, j, 1)


@lean
def lift(ground: Ground, table: Table, rows: Ints) -> None:
    """Take the slots of these rows off the ground; where they were stays known."""
    for j in rows:
        put(ground, table, j, -1)
        table.state[j] = LOOSE


@compiled
def stand(ground: Ground, table: Table, order: Ints) -> Ints:
    """Put stored slots on the ground, in order; answers the rows for which there was no room, which stay LOOSE."""
    broken = np.empty(len(order), np.int64)
    count = 0
    for j in order:
        if room_at(ground, places_of(table, j), kind_of(table, j), table.slot_s[j]):
            put(ground, table, j, 1)
            table.state[j] = WAITING
        else:
            broken[count] = j
            count += 1
    return broken[:count]
