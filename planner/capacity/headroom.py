"""Compiled code tracks how much each limit leaves from now on, read once from its profile for all requests below it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.board.table import Table, used
from planner.capacity.profile import AFTER, FREE, NEVER_S, NONE, Ints, Profiles, end_of
from planner.kernels import compiled, lean


class Headroom(NamedTuple):
    """Holds the times until which limits leave each amount from now on; a time that has passed means the same as NONE."""

    first: Ints  # limit `i` has the amounts from 0 to less than `first[i + 1] - first[i]`
    until_s: Ints  # `until_s[first[i] + amount]`; NONE: it leaves less now


@compiled
def headroom_of(limits: Profiles, table: Table, rows: Ints, at_s: int) -> Headroom:
    limit_count = len(limits.head)
    first = np.zeros(limit_count + 1, np.int64)
    for j in rows:
        for i in range(len(used(table.pools[j]))):
            for k in range(table.limits.shape[2]):
                limit = table.limits[j, i, k]
                if limit != NONE:
                    first[limit + 1] = max(first[limit + 1], table.amounts[j, i, k])
    first[1:] += 1
    first = np.cumsum(first)
    headroom = Headroom(first, np.full(first[-1], NEVER_S, np.int64))
    for limit in range(limit_count):
        remeasure_limit(limits, headroom, limit, at_s)
    return headroom


@lean
def remeasure_limit(limits: Profiles, headroom: Headroom, limit: int, at_s: int) -> None:
    first, amount = headroom.first[limit], headroom.first[limit + 1] - headroom.first[limit] - 1
    headroom.until_s[first : first + amount + 1] = NEVER_S
    steps, step = limits.steps, limits.head[limit]
    while end_of(limits, step) <= at_s:
        step = steps[step, AFTER]
    gone_s = NONE
    while amount > 0 and step != NONE:
        while amount > 0 and steps[step, FREE] < amount:
            headroom.until_s[first + amount] = gone_s
            amount -= 1
        gone_s, step = end_of(limits, step), steps[step, AFTER]


@lean
def leaves_any(headroom: Headroom, limit: int, at_s: int) -> bool:
    first = headroom.first[limit]
    return bool(first + 1 < headroom.first[limit + 1] and headroom.until_s[first + 1] > at_s)


@lean
def have_headroom(headroom: Headroom, table: Table, j: int, i: int, at_s: int) -> bool:
    """Tells whether its limits leave enough in its pool `i` until the box would end, or until its own slot if that is sooner."""
    until_s = min(at_s + table.length_s[j], table.slot_s[j])
    for k in range(table.limits.shape[2]):
        limit = table.limits[j, i, k]
        if limit != NONE and headroom.until_s[headroom.first[limit] + table.amounts[j, i, k]] < until_s:
            return False
    return True
