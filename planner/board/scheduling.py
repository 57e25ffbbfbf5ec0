"""Compiled passes find which requests may start now beside all others' slots, and play the queue forward until it is empty."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from planner.board.course import Course, note_moment
from planner.board.recheck import (
    Recheck,
    has_better_slot,
    mark_behind_limits,
    mark_groups,
    mark_holding_out,
    mark_limited,
    mark_next_of_run,
    mark_node,
    mark_row,
    new_recheck,
    set_holding_out,
    set_ready,
)
from planner.board.table import HAS_SLOT, STARTED, Table, demand_of, places_of, put_slot, used
from planner.capacity.free_now import FreeNow, choose_now, measure_all, remeasure_node, update_enough
from planner.capacity.headroom import have_headroom
from planner.capacity.placement import Capacity, Demand, choose, earliest, effective_s, limits_allow
from planner.capacity.profile import NEVER_S, NONE, Bools, Ints, forget_before, next_step_s, rises
from planner.kernels import compiled, lean


@lean
def may_start(capacity: Capacity, free_now: FreeNow, table: Table, recheck: Recheck, j: int, at_s: int) -> bool:
    """Tells whether enough nodes are free for its whole length, not counting its own slot; reads no profiles."""
    is_enough = recheck.is_limited[j] = recheck.slot_partly_free[j] = False
    for i in range(len(used(table.pools[j]))):
        is_shut = not have_headroom(recheck.headroom, table, j, i, at_s)
        recheck.is_limited[j] |= is_shut
        is_ready = not is_shut and not has_better_slot(capacity, table, j, i, at_s)
        set_ready(recheck, j, i, is_ready)
        if is_ready:
            k = free_now.size_classes[table.group[j], i]
            note_slot_partly_free(free_now, table, recheck, j, k)
            is_enough = is_enough or has_enough(capacity, free_now, table, recheck, j, i, at_s + table.length_s[j])
    if recheck.slot_partly_free[j] and table.nodes[j] > 1 and not recheck.is_gang[j]:
        recheck.is_gang[j] = True
        recheck.gangs[recheck.gang_count[0]] = j
        recheck.gang_count[0] += 1
    return is_enough


@lean
def note_slot_partly_free(free_now: FreeNow, table: Table, recheck: Recheck, j: int, k: int) -> None:
    first = table.first_place[j]
    for i in range(first, first + table.nodes[j]):
        recheck.slot_partly_free[j] |= free_now.until_s[table.places[i], k] != NONE


@lean
def has_enough(capacity: Capacity, free_now: FreeNow, table: Table, recheck: Recheck, j: int, i: int, end_s: int) -> bool:
    """Tells whether enough nodes of its pool `i` are free until then, not counting its own slot."""
    k = free_now.size_classes[table.group[j], i]
    is_enough = free_now.enough_until_s[table.group[j], i] >= end_s or has_enough_with_own(free_now, table, j, k, end_s)
    return bool(is_enough and has_domain(capacity, free_now, table, recheck, j, k, end_s))


@lean
def has_enough_with_own(free_now: FreeNow, table: Table, j: int, k: int, end_s: int) -> bool:
    slot_s = table.slot_s[j]
    if slot_s >= end_s:
        return False
    ready = 0
    for node in places_of(table, j):
        if slot_s <= free_now.until_s[node, k] < end_s:
            ready += 1
    return ready > 0 and ready + free_now.fill[k] - np.searchsorted(free_now.ranked_s[k, : free_now.fill[k]], end_s) >= table.nodes[j]


@lean
def has_domain(capacity: Capacity, free_now: FreeNow, table: Table, recheck: Recheck, j: int, k: int, end_s: int) -> bool:
    """Tells whether one topology domain has enough of them, if it wants that."""
    level = table.level[j]
    if level == NONE or table.nodes[j] < 2:
        return True
    recheck.in_domain[: capacity.domain_counts[level]] = 0
    for i in range(np.searchsorted(free_now.ranked_s[k, : free_now.fill[k]], end_s), free_now.fill[k]):
        domain = capacity.domain_of[level, free_now.ranked[k, i]]
        if domain != NONE:
            recheck.in_domain[domain] += 1
    for node in places_of(table, j):
        domain = capacity.domain_of[level, node]
        if domain != NONE and table.slot_s[j] <= free_now.until_s[node, k] < end_s:
            recheck.in_domain[domain] += 1
    most = 0
    for in_domain in recheck.in_domain[: capacity.domain_counts[level]]:
        most = max(most, in_domain)
    return bool(most >= table.nodes[j])


@compiled
def is_better_elsewhere(capacity: Capacity, demand: Demand, i: int, at_s: int) -> bool:
    """Tells whether a later start in a preferred pool counts for more than one now in its pool `i`."""
    handicap_s = int(demand.handicaps_s[i])
    return handicap_s > 0 and earliest(capacity, demand, at_s, at_s + handicap_s + 1)[1] != int(demand.pools[i])


@compiled
def start_now(capacity: Capacity, free_now: FreeNow, table: Table, recheck: Recheck, j: int, at_s: int) -> tuple[bool, bool]:
    """Start it if it has room beside all other slots. Returns whether it did, and whether its old slot freed room."""
    demand = demand_of(table, j)
    slot = places_of(table, j).copy()
    is_better = False
    put_slot(capacity, table, j, -1)
    for node in slot:
        is_better |= remeasure_node(capacity, free_now, node, at_s)
    recheck.is_limited[j] = False
    set_holding_out(recheck, j, is_holding_out=False)
    for i in range(len(demand.pools)):
        if has_better_slot(capacity, table, j, i, at_s):
            continue
        if not limits_allow(capacity, demand, i, at_s, NEVER_S):
            recheck.is_limited[j] = True
            set_ready(recheck, j, i, is_ready=False)
            continue
        chosen = choose_now(capacity, free_now, free_now.size_classes[table.group[j], i], demand.pools[i], demand, at_s)
        if len(chosen) == demand.nodes:
            if is_better_elsewhere(capacity, demand, i, at_s):
                set_holding_out(recheck, j, is_holding_out=True)
                set_ready(recheck, j, i, is_ready=False)
                continue
            places_of(table, j)[:] = chosen
            table.slot_s[j] = at_s
            table.state[j] = STARTED
            put_slot(capacity, table, j, 1)
            for node in chosen:
                remeasure_node(capacity, free_now, node, at_s)
            return True, is_better
    put_slot(capacity, table, j, 1)
    for node in slot:
        remeasure_node(capacity, free_now, node, at_s)
    return False, False


@lean
def start_due(table: Table, order: Ints, at_s: int, started: Ints) -> int:
    """Start those whose slots are due. Returns the number of rows in `started`."""
    count = 0
    for j in order:
        if table.state[j] == HAS_SLOT and table.slot_s[j] <= at_s:
            table.state[j] = STARTED
            started[count] = j
            count += 1
    return count


@compiled
def start_others(capacity: Capacity, free_now: FreeNow, table: Table, recheck: Recheck, at_s: int, started: Ints, course: Course) -> int:
    """Start the first in order that fits beside all slots, until none does. Returns the number of rows in `started`.

    A start gives up the slot that it had, so a request before it may fit then.
    """
    count = 0
    mark_groups(free_now, table, recheck, at_s)
    turns = [(recheck.turn[j], j) for j in recheck.marked[: recheck.marked_count[0]]]
    recheck.marked_count[0] = 0
    heapq.heapify(turns)
    while len(turns) > 0:
        _, j = heapq.heappop(turns)
        recheck.is_marked[j] = False
        if table.earliest_s[j] > at_s:
            for i in range(len(used(table.pools[j]))):
                set_ready(recheck, j, i, is_ready=False)
        elif table.state[j] == HAS_SLOT and may_start(capacity, free_now, table, recheck, j, at_s):
            slot = places_of(table, j).copy()
            did, is_better = start_now(capacity, free_now, table, recheck, j, at_s)
            if did:
                started[count] = j
                count += 1
                note_moment(course, free_now, table, j, at_s)
                mark_others(capacity, free_now, table, recheck, j, slot if is_better else slot[:0], at_s)
        mark_next_of_run(free_now, table, recheck, j, at_s)
        mark_behind_limits(capacity, table, recheck, j, at_s)
        for m in recheck.marked[: recheck.marked_count[0]]:
            heapq.heappush(turns, (recheck.turn[m], m))
        recheck.marked_count[0] = 0
    note_moment(course, free_now, table, NONE, at_s)
    return count


@compiled
def mark_others(capacity: Capacity, free_now: FreeNow, table: Table, recheck: Recheck, j: int, left: Ints, at_s: int) -> None:
    """Marks rows for a check after a start. `left`: the nodes of its slot, if it left room there."""
    update_enough(free_now)
    for node in left:
        mark_node(recheck, table, node)
    if len(left) > 0:
        mark_groups(free_now, table, recheck, at_s)
    for limit in used(table.all_limits[j]):
        mark_limited(capacity, table, recheck, limit, at_s)
    mark_holding_out(recheck, table)


@compiled
def tick(capacity: Capacity, free_now: FreeNow, table: Table, order: Ints, at_s: int, course: Course) -> Ints:
    """Start all that may start. Returns their rows in the order of their starts."""
    started = np.empty(len(order), np.int64)
    due = start_due(table, order, at_s, started)
    measure_all(capacity, free_now, at_s)
    recheck = new_recheck(capacity, free_now, table, order[table.state[order] == HAS_SLOT], at_s)
    return started[: due + start_others(capacity, free_now, table, recheck, at_s, started[due:], course)]


class Chains(NamedTuple):
    """It has the rows of waiting predecessors, and those of the requests that start after them."""

    first: Ints
    then: Ints
    asked_s: Ints  # the earliest starts that those asked for


class Agenda(NamedTuple):
    events: list[tuple[int, int]]  # heap of (time, number): nodes, then limits, then rows
    due_s: Ints  # by number of node or limit: its next change; its other events are void


@compiled
def schedule_change(capacity: Capacity, agenda: Agenda, number: int, at_s: int) -> None:
    """Enter the next change of a node or a limit."""
    node_count = len(capacity.gpu_counts)
    is_node = number < node_count
    due_s = next_step_s(capacity.nodes, number, at_s) if is_node else next_step_s(capacity.limits, number - node_count, at_s)
    if agenda.due_s[number] != due_s:
        agenda.due_s[number] = due_s
        if due_s < NEVER_S:
            heapq.heappush(agenda.events, (due_s, number))


@compiled
def open_followers(table: Table, chains: Chains, agenda: Agenda, first_row: int, j: int, at_s: int) -> None:
    """Lets the followers of row `j`, which starts now, start as soon as it ends, however late that might have been."""
    for i in range(len(chains.first)):
        if chains.first[i] == j:
            then = chains.then[i]
            table.earliest_s[then] = max(chains.asked_s[i], at_s + table.length_s[j])
            heapq.heappush(agenda.events, (table.earliest_s[then], first_row + then))


@compiled
def play_forward(
    capacity: Capacity,
    free_now: FreeNow,
    table: Table,
    order: Ints,
    at_s: int,
    until_s: int,
    asked: Bools,
    chains: Chains,
    course: Course,
) -> None:
    """Plays all ticks from `at_s` until `until_s` as if nobody came and every box took its whole length; `slot_s` says when each starts.

    It plays `at_s` at least, and stops when all rows of `asked` have started. It ticks when a box ends, a slot is due, a window opens or an
    earliest start comes. It changes its arguments, and records the moments in `course`.
    """
    node_count = len(capacity.gpu_counts)
    first_row = node_count + len(capacity.limits.head)
    events = [(table.slot_s[j], first_row + j) for j in order if table.state[j] == HAS_SLOT]
    events += [(table.earliest_s[j], first_row + j) for j in order if table.state[j] == HAS_SLOT and table.earliest_s[j] > at_s]
    agenda = Agenda(events, np.full(first_row, NEVER_S, np.int64))
    for number in range(first_row):
        schedule_change(capacity, agenda, number, at_s)
    heapq.heapify(events)
    measure_all(capacity, free_now, at_s)
    started = np.empty(len(order), np.int64)
    waiting, slots = order[table.state[order] == HAS_SLOT], table.places.copy()
    recheck = new_recheck(capacity, free_now, table, waiting, at_s)
    left, goes_on = asked[waiting].sum(), True
    while True:
        while len(events) > 0 and events[0][0] <= at_s:
            due_s, number = heapq.heappop(events)
            if number >= first_row:
                j = number - first_row
                if table.state[j] == HAS_SLOT and table.earliest_s[j] == at_s:
                    goes_on = True
                    mark_row(recheck, table, j)
                if table.state[j] == HAS_SLOT and table.slot_s[j] <= at_s:
                    table.state[j] = STARTED
                    left -= asked[j]
                    open_followers(table, chains, agenda, first_row, j, at_s)
            elif agenda.due_s[number] == due_s:
                goes_on |= apply_change(capacity, free_now, table, recheck, number, at_s)
                schedule_change(capacity, agenda, number, at_s)
        if goes_on:
            count = start_others(capacity, free_now, table, recheck, at_s, started, course)
            left -= asked[started[:count]].sum()
            for j in started[:count]:
                open_followers(table, chains, agenda, first_row, j, at_s)
                for i in range(table.first_place[j], table.first_place[j] + table.nodes[j]):
                    schedule_change(capacity, agenda, table.places[i], at_s)
                    schedule_change(capacity, agenda, slots[i], at_s)
                for limit in used(table.all_limits[j]):
                    schedule_change(capacity, agenda, node_count + limit, at_s)
        goes_on = False
        if left <= 0 or len(events) == 0 or events[0][0] >= until_s:
            break
        at_s = events[0][0]


@lean
def apply_change(capacity: Capacity, free_now: FreeNow, table: Table, recheck: Recheck, number: int, at_s: int) -> bool:
    """Applies the change of a node or a limit now. Returns whether more requests may fit."""
    limit = number - len(capacity.gpu_counts)
    if limit < 0:
        forget_before(capacity.nodes, number, at_s)
        is_better = remeasure_node(capacity, free_now, number, at_s)
        if is_better:
            mark_node(recheck, table, number)
        return is_better
    is_better = rises(capacity.limits, limit, at_s)
    if is_better:
        mark_limited(capacity, table, recheck, limit, at_s)
    forget_before(capacity.limits, limit, at_s)
    return is_better


@compiled
def compress(capacity: Capacity, table: Table, order: Ints, at_s: int) -> None:
    """Moves these slots up in order after early ends, as far as all others allow, until none moves."""
    goes_on = True
    while goes_on:
        goes_on = False
        for j in order:
            since_s = max(at_s, table.earliest_s[j])
            if table.state[j] != HAS_SLOT or table.slot_s[j] <= since_s:
                continue
            put_slot(capacity, table, j, -1)
            demand = demand_of(table, j)
            start_s, pool = earliest(capacity, demand, since_s, table.slot_s[j])
            if pool != NONE and effective_s(demand, pool, start_s) < effective_s(
                demand, capacity.pool_of[places_of(table, j)[0]], table.slot_s[j]
            ):
                places_of(table, j)[:] = choose(capacity, pool, demand, start_s)
                table.slot_s[j] = start_s
                goes_on = True
            put_slot(capacity, table, j, 1)
