"""Keeps the queue for the compiled passes, a row for each request. Playing ahead changes a copy."""

from __future__ import annotations

from typing import Final, NamedTuple

from planner.capacity.placement import Capacity, Demand, has_room_at, take
from planner.capacity.profile import NONE, IntCube, IntGrid, Ints
from planner.kernels import compiled, lean, spliced

# The states of a row.
EMPTY: Final = 0
NO_SLOT: Final = 1  # waits without a slot
HAS_SLOT: Final = 2  # waits, and its slot is taken from the capacity
STARTED: Final = 3  # its slot is now its box


class Table(NamedTuple):
    """The slot of row `j` is on the nodes `places[first_place[j]:first_place[j] + nodes[j]]` from `slot_s[j]` on."""

    state: Ints
    nodes: Ints
    gpus: Ints
    length_s: Ints
    level: Ints  # see `Demand`
    earliest_s: Ints
    slot_s: Ints
    pools: IntGrid  # preferred first, then NONE
    handicaps_s: IntGrid  # by row and index of pool
    group: Ints  # rows of a group differ in length only
    limits: IntCube  # by row, index of pool and column; NONE: unused
    amounts: IntCube  # what it takes of `limits`
    all_limits: IntGrid  # each of `limits` once, then NONE
    first_place: Ints
    places: Ints


@spliced
def used(array: Ints) -> Ints:
    """Returns the array without the NONEs at its end."""
    count = 0
    while count < len(array) and array[count] != NONE:
        count += 1
    return array[:count]


@spliced
def demand_of(table: Table, j: int) -> Demand:
    pools = used(table.pools[j])
    handicaps_s, limits, amounts = table.handicaps_s[j, : len(pools)], table.limits[j, : len(pools)], table.amounts[j, : len(pools)]
    return Demand(table.nodes[j], table.gpus[j], table.length_s[j], table.level[j], pools, handicaps_s, limits, amounts)


@spliced
def places_of(table: Table, j: int) -> Ints:
    return table.places[table.first_place[j] : table.first_place[j] + table.nodes[j]]


@lean
def put_slot(capacity: Capacity, table: Table, j: int, sign: int) -> None:
    """Take its slot from the capacity (`sign` 1), or give it back (-1)."""
    take(capacity, places_of(table, j), demand_of(table, j), table.slot_s[j], table.slot_s[j] + table.length_s[j], sign)


@lean
def remove_slots(capacity: Capacity, table: Table, rows: Ints) -> None:
    """The rows keep `slot_s` and `places`, for `restore_slots`."""
    for j in rows:
        put_slot(capacity, table, j, -1)
        table.state[j] = NO_SLOT


@compiled
def restore_slots(capacity: Capacity, table: Table, order: Ints, first: int) -> int:
    """Put stored slots back in order, from `first` on. Returns the index of the first that has no room, or their number."""
    for i in range(first, len(order)):
        j = order[i]
        if not has_room_at(capacity, places_of(table, j), demand_of(table, j), table.slot_s[j]):
            return i
        put_slot(capacity, table, j, 1)
        table.state[j] = HAS_SLOT
    return len(order)
