"""How much each limit leaves from now on, compiled: one walk along its line answers for all who wait below it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from planner.board.table import Table, used
from planner.capacity.profile import AFTER, FREE, NEVER_S, NONE, Ints, Lines, end_of
from planner.kernels import compiled, lean


class Gates(NamedTuple):
    """`until_s[first[i] + amount]`: until when limit `i` leaves so much from now on, NONE where it does not; for each amount from 0 to the
    most that a row takes of it. Times that have come are as good as NONE.
    """

    first: Ints
    until_s: Ints


@compiled
def gates_of(limits: Lines, table: Table, rows: Ints, at_s: int) -> Gates:
    """For all limits of these rows."""
    limit_count = len(limits.head)
    first = np.zeros(limit_count + 1, np.int64)
    for j in rows:
        for i in range(len(used(table.pools[j]))):
            for k in range(table.limits.shape[2]):
                line = table.limits[j, i, k]
                if line != NONE:
                    first[line + 1] = max(first[line + 1], table.amounts[j, i, k])
    first[1:] += 1
    first = np.cumsum(first)
    gates = Gates(first, np.full(first[-1], NEVER_S, np.int64))
    for line in range(limit_count):
        look_at_gate(limits, gates, line, at_s)
    return gates


@lean
def look_at_gate(limits: Lines, gates: Gates, line: int, at_s: int) -> None:
    """A limit has changed."""
    first, amount = gates.first[line], gates.first[line + 1] - gates.first[line] - 1
    gates.until_s[first : first + amount + 1] = NEVER_S
    steps, step = limits.steps, limits.head[line]
    while end_of(limits, step) <= at_s:
        step = steps[step, AFTER]
    gone_s = NONE
    while amount > 0 and step != NONE:
        while amount > 0 and steps[step, FREE] < amount:
            gates.until_s[first + amount] = gone_s
            amount -= 1
        gone_s, step = end_of(limits, step), steps[step, AFTER]


@lean
def leaves_any(gates: Gates, line: int, at_s: int) -> bool:
    """Does the limit leave anything now?"""
    first = gates.first[line]
    return bool(first + 1 < gates.first[line + 1] and gates.until_s[first + 1] > at_s)


@lean
def are_open(gates: Gates, table: Table, j: int, i: int, at_s: int) -> bool:
    """Do its limits leave room for it in its pool `i` from now on, at least until its own slot takes some of it?"""
    until_s = min(at_s + table.length_s[j], table.slot_s[j])
    for k in range(table.limits.shape[2]):
        line = table.limits[j, i, k]
        if line != NONE and gates.until_s[gates.first[line] + table.amounts[j, i, k]] < until_s:
            return False
    return True
