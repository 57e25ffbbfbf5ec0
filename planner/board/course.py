"""Compiled passes record the course of the queue while it is played forward, so that one more request need not have it played anew.

A newcomer changes nothing before its own start, unless a request that starts before it looked at the nodes or the limits of its slot. So a
simulation follows the record until one of the two may happen, and plays the queue only from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from planner.board.table import STARTED, Table, demand_of, places_of, put_slot, used
from planner.capacity.free_now import FreeNow
from planner.capacity.placement import GAP_BITS, NO_INTS, Capacity, gpus_needed, limits_allow, pool_index
from planner.capacity.profile import NEVER_S, NONE, IntCube, Ints, free_until, least_free
from planner.kernels import compiled, lean


class Course(NamedTuple):
    """It has a moment before each start beside others' slots, and one when no other request can start.

    `fill` has the number of moments, and 1 if there is no room for more.
    """

    at_s: Ints
    row: Ints  # who starts then; NONE: nobody more
    first: Ints  # its nodes are `places[first[m]:first[m + 1]]`
    places: Ints
    enough_until_s: IntCube  # by moment: as in `FreeNow`
    fill: Ints


NO_COURSE: Final = Course(NO_INTS, NO_INTS, np.zeros(1, np.int64), NO_INTS, np.empty((0, 0, 0), np.int64), np.array([0, 1], np.int64))


def new_course(free_now: FreeNow, moment_count: int, place_count: int) -> Course:
    empty, places = np.empty(moment_count, np.int64), np.empty(place_count, np.int64)
    enough_until_s = np.empty((moment_count, *free_now.enough_until_s.shape), np.int64)
    return Course(empty, empty.copy(), np.zeros(moment_count + 1, np.int64), places, enough_until_s, np.zeros(2, np.int64))


def first_moments(course: Course, count: int) -> Course:
    places, numbers = course.places[: course.first[count]], np.array([count, 0], np.int64)
    return Course(course.at_s[:count], course.row[:count], course.first[: count + 1], places, course.enough_until_s[:count], numbers)


def joined(course: Course, then: Course, groups: Sequence[tuple[int, int]]) -> Course:
    """Joins two courses, of which the first is not empty. `groups` pairs the numbers of a group in the first and in the other."""
    count, then = int(course.fill[0]), first_moments(then, int(then.fill[0]))
    enough_until_s = np.full((count, *then.enough_until_s.shape[1:]), NEVER_S, np.int64)  # of other groups it is not known
    for old, new in groups:
        enough_until_s[:, new] = course.enough_until_s[:, old]
    return Course(
        np.concatenate([course.at_s, then.at_s]),
        np.concatenate([course.row, then.row]),
        np.concatenate([course.first, course.first[-1] + then.first[1:]]),
        np.concatenate([course.places, then.places]),
        np.concatenate([enough_until_s, then.enough_until_s]),
        course.fill + then.fill,
    )


@lean
def note_moment(course: Course, free_now: FreeNow, table: Table, j: int, at_s: int) -> None:
    """Records that row `j` has just started, and that `free_now` was updated before that. NONE: no other row starts now."""
    m = course.fill[0]
    place_count = table.nodes[j] if j != NONE else 0
    if course.fill[1] > 0 or m == len(course.at_s) or course.first[m] + place_count > len(course.places):
        course.fill[1] = 1
        return
    course.at_s[m], course.row[m], course.first[m + 1] = at_s, j, course.first[m] + place_count
    for i in range(place_count):
        course.places[course.first[m] + i] = table.places[table.first_place[j] + i]
    for g in range(free_now.enough_until_s.shape[0]):
        for i in range(free_now.enough_until_s.shape[1]):
            course.enough_until_s[m, g, i] = free_now.enough_until_s[g, i]
    course.fill[0] += 1


@compiled
def follow(capacity: Capacity, table: Table, course: Course, j: int, group: int, turn: Ints, now_s: int) -> tuple[int, int]:
    """Follows the course until row `j` can matter to others; NONE: to its end. The slot of the row must not be taken from the capacity.

    `group` is that of the row in the course, or NONE. Returns the first moment that may differ, and the time from which to play.
    """
    at_s = now_s
    for m in range(course.fill[0]):
        at_s = max(course.at_s[m], now_s)
        started = course.row[m]
        if j != NONE and at_s >= table.slot_s[j]:
            return m, int(table.slot_s[j])
        if j != NONE and (started == NONE or turn[started] > turn[j]) and fits_then(capacity, table, course, m, j, group, at_s):
            return m, at_s
        if started != NONE:
            places = course.places[course.first[m] : course.first[m + 1]]
            put_slot(capacity, table, started, -1)
            if j != NONE and meets_slot(capacity, table, started, places, j, at_s):
                put_slot(capacity, table, started, 1)
                return m, at_s
            places_of(table, started)[:] = places
            table.slot_s[started] = at_s
            table.state[started] = STARTED
            put_slot(capacity, table, started, 1)
    return int(course.fill[0]), at_s


@lean
def fits_then(capacity: Capacity, table: Table, course: Course, m: int, j: int, group: int, at_s: int) -> bool:
    """Tells whether enough nodes are free for row `j`, and whether its limits allow it, unless it opens before the next moment."""
    end_s = at_s + table.length_s[j]
    opens_later = table.earliest_s[j] > at_s
    if opens_later and (course.row[m] != NONE or (m + 1 < course.fill[0] and course.at_s[m + 1] <= table.earliest_s[j])):
        return False
    if group == NONE:
        return True
    for i in range(len(used(table.pools[j]))):
        if course.enough_until_s[m, group, i] >= end_s and (opens_later or limits_allow(capacity, demand_of(table, j), i, at_s, NEVER_S)):
            return True
    return False


@lean
def meets_slot(capacity: Capacity, table: Table, started: int, places: Ints, j: int, at_s: int) -> bool:
    """Tells whether a start now on these nodes could differ if row `j` had its slot. The row `started` gives its own slot back."""
    return meets_on_nodes(capacity, table, started, places, j, at_s) or meets_at_limits(capacity, table, started, places, j, at_s)


@lean
def meets_on_nodes(capacity: Capacity, table: Table, started: int, places: Ints, j: int, at_s: int) -> bool:
    """A node of the slot matters if it is chosen and would not be beside the slot, or if it would suit as well as the worst chosen one."""
    pool, gpus, end_s = capacity.pool_of[places[0]], table.gpus[started], at_s + table.length_s[started]
    worst = NONE
    for node in places_of(table, j):
        if capacity.pool_of[node] != pool:
            continue
        until_s = free_until(capacity.nodes, node, gpus_needed(capacity, node, gpus), at_s)
        if until_s < end_s or until_s <= table.slot_s[j]:
            continue
        if len(places) > 1 and capacity.domain_counts[0] + capacity.domain_counts[-1] > 0:
            return True  # its domain may be chosen otherwise
        if worst == NONE:
            for chosen in places:
                worst = max(worst, badness(capacity, chosen, gpus, at_s, end_s))
        put_slot(capacity, table, j, 1)
        with_slot = badness(capacity, node, gpus, at_s, end_s)
        put_slot(capacity, table, j, -1)
        is_chosen = False
        for chosen in places:
            is_chosen |= chosen == node
        if with_slot == NEVER_S if is_chosen else with_slot <= worst:
            return True
    return False


@lean
def badness(capacity: Capacity, node: int, gpus: int, at_s: int, end_s: int) -> int:
    """Returns the sort key of the node as in `best_fitting`, or NEVER_S if it is not free until the end."""
    need = gpus_needed(capacity, node, gpus)
    until_s = free_until(capacity.nodes, node, need, at_s)
    if until_s < end_s:
        return NEVER_S
    return int(((least_free(capacity.nodes, node, at_s, end_s) - need) << GAP_BITS) | min(until_s, (1 << GAP_BITS) - 1))


@lean
def meets_at_limits(capacity: Capacity, table: Table, started: int, places: Ints, j: int, at_s: int) -> bool:
    since_s, until_s = max(at_s, table.slot_s[j]), min(at_s + table.length_s[started], table.slot_s[j] + table.length_s[j])
    if since_s >= until_s:
        return False
    own, other = pool_index(capacity, demand_of(table, j), places_of(table, j)), pool_index(capacity, demand_of(table, started), places)
    for k in range(table.limits.shape[2]):
        limit = table.limits[j, own, k]
        for n in range(table.limits.shape[2]):
            if limit != NONE and table.limits[started, other, n] == limit:
                amount = table.amounts[j, own, k] + table.amounts[started, other, n]
                if least_free(capacity.limits, limit, since_s, until_s) < amount:
                    return True
    return False
