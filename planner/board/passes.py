"""The moves of the policy, compiled: who may start now beside everybody else's slots, and how that goes on until the queue is empty."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from planner.board.recheck import (
    Watch,
    has_better_slot,
    set_ready,
    set_torn,
    touch,
    touch_behind,
    touch_below,
    touch_groups,
    touch_limited,
    touch_row,
    touch_torn,
    watch_of,
)
from planner.board.table import STARTED, WAITING, Table, kind_of, places_of, put, used
from planner.capacity.free_now import Now, choose_now, look, look_again, reach
from planner.capacity.headroom import are_open
from planner.capacity.placement import Ground, Kind, choose, counts_s, earliest, limits_allow
from planner.capacity.profile import NEVER_S, NONE, Bools, Ints, forget_before, next_step_s, rises
from planner.kernels import compiled, lean


@lean
def may_start(ground: Ground, now: Now, table: Table, watch: Watch, j: int, at_s: int) -> bool:
    """Are enough nodes free for its whole length from now on, its own slot not counted? A look at a few figures, not at the nodes.

    Notes what it waits for: where it is ready, whether a limit is in its way, whether nodes of its slot are free.
    """
    is_enough = watch.is_limited[j] = watch.is_near[j] = False
    for i in range(len(used(table.pools[j]))):
        is_shut = not are_open(watch.gates, table, j, i, at_s)
        watch.is_limited[j] |= is_shut
        is_ready = not is_shut and not has_better_slot(ground, table, j, i, at_s)
        set_ready(watch, j, i, is_ready)
        if is_ready:
            k = now.levels[table.group[j], i]
            note_near(now, table, watch, j, k)
            is_enough = is_enough or has_enough(ground, now, table, watch, j, i, at_s + table.length_s[j])
    if watch.is_near[j] and table.nodes[j] > 1 and not watch.is_gang[j]:
        watch.is_gang[j] = True
        watch.gangs[watch.gang_count[0]] = j
        watch.gang_count[0] += 1
    return is_enough


@lean
def note_near(now: Now, table: Table, watch: Watch, j: int, k: int) -> None:
    """Are nodes of its slot free, at this level?"""
    first = table.first_place[j]
    for i in range(first, first + table.nodes[j]):
        watch.is_near[j] |= now.until_s[table.places[i], k] != NONE


@lean
def has_enough(ground: Ground, now: Now, table: Table, watch: Watch, j: int, i: int, end_s: int) -> bool:
    """Are, or would be but for its own slot, enough nodes of its pool `i` free until then?"""
    k = now.levels[table.group[j], i]
    is_enough = now.reach_s[table.group[j], i] >= end_s or has_enough_with_own(now, table, j, k, end_s)
    return bool(is_enough and has_part(ground, now, table, watch, j, k, end_s))


@lean
def has_enough_with_own(now: Now, table: Table, j: int, k: int, end_s: int) -> bool:
    slot_s = table.slot_s[j]
    if slot_s >= end_s:
        return False
    ready = 0
    for node in places_of(table, j):
        if slot_s <= now.until_s[node, k] < end_s:
            ready += 1
    return ready > 0 and ready + now.fill[k] - np.searchsorted(now.ranked_s[k, : now.fill[k]], end_s) >= table.nodes[j]


@lean
def has_part(ground: Ground, now: Now, table: Table, watch: Watch, j: int, k: int, end_s: int) -> bool:
    """Are enough of them in one rack or NVLink domain, where it wants that? With those of its own slot."""
    level = table.level[j]
    if level == NONE or table.nodes[j] < 2:
        return True
    watch.in_part[: ground.part_counts[level]] = 0
    for i in range(np.searchsorted(now.ranked_s[k, : now.fill[k]], end_s), now.fill[k]):
        part = ground.part_of[level, now.ranked[k, i]]
        if part != NONE:
            watch.in_part[part] += 1
    for node in places_of(table, j):
        part = ground.part_of[level, node]
        if part != NONE and table.slot_s[j] <= now.until_s[node, k] < end_s:
            watch.in_part[part] += 1
    most = 0
    for in_part in watch.in_part[: ground.part_counts[level]]:
        most = max(most, in_part)
    return bool(most >= table.nodes[j])


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
    is_better = False
    put(ground, table, j, -1)
    for node in slot:
        is_better |= look_again(ground, now, node, at_s)
    watch.is_limited[j] = False
    set_torn(watch, j, is_torn=False)
    for i in range(len(kind.pools)):
        if has_better_slot(ground, table, j, i, at_s):
            continue
        if not limits_allow(ground, kind, i, at_s, NEVER_S):
            watch.is_limited[j] = True
            set_ready(watch, j, i, is_ready=False)
            continue
        chosen = choose_now(ground, now, now.levels[table.group[j], i], kind.pools[i], kind, at_s)
        if len(chosen) == kind.nodes:
            if is_better_elsewhere(ground, kind, i, at_s):
                set_torn(watch, j, is_torn=True)
                set_ready(watch, j, i, is_ready=False)
                continue
            places_of(table, j)[:] = chosen
            table.slot_s[j] = at_s
            table.state[j] = STARTED
            put(ground, table, j, 1)
            for node in chosen:
                look_again(ground, now, node, at_s)
            return True, is_better
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
        if table.earliest_s[j] > at_s:
            for i in range(len(used(table.pools[j]))):
                set_ready(watch, j, i, is_ready=False)
        elif table.state[j] == WAITING and may_start(ground, now, table, watch, j, at_s):
            slot = places_of(table, j).copy()
            did, is_better = start_now(ground, now, table, watch, j, at_s)
            if did:
                started[count] = j
                count += 1
                touch_others(ground, now, table, watch, j, slot if is_better else slot[:0], at_s)
        touch_behind(now, table, watch, j, at_s)
        touch_below(ground, table, watch, j, at_s)
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
        touch_limited(ground, table, watch, line, at_s)
    touch_torn(watch, table)


@compiled
def tick(ground: Ground, now: Now, table: Table, order: Ints, at_s: int) -> Ints:
    """Start all that may start, and answer their rows in the order in which they did."""
    started = np.empty(len(order), np.int64)
    due = start_due(table, order, at_s, started)
    look(ground, now, at_s)
    watch = watch_of(ground, now, table, order[table.state[order] == WAITING], at_s)
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
    watch = watch_of(ground, now, table, waiting, at_s)
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
        touch_limited(ground, table, watch, line, at_s)
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
