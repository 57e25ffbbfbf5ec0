"""The queue as the compiled passes see it: a table with a row for each request, so that the same code makes a tick and plays all ticks
to come on a copy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from planner.capacity.placement import Capacity, Demand, has_room_at, take
from planner.capacity.profile import NONE, IntCube, IntGrid, Ints
from planner.kernels import compiled, lean, spliced

# What a row of the table is.
EMPTY: Final = 0
NO_SLOT: Final = 1  # waits, and has no slot
HAS_SLOT: Final = 2  # waits, and its slot is on the ground
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
    pools: IntGrid
    handicaps_s: IntGrid
    group: Ints
    limits: IntCube
    amounts: IntCube
    all_limits: IntGrid
    first_place: Ints
    places: Ints


@spliced
def used(array: Ints) -> Ints:
    """A row without the NONEs at its end."""
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
    """The slot of a row: onto the ground (1), or off it (-1)."""
    take(capacity, places_of(table, j), demand_of(table, j), table.slot_s[j], table.slot_s[j] + table.length_s[j], sign)


@lean
def remove_slots(capacity: Capacity, table: Table, rows: Ints) -> None:
    """Take the slots of these rows off the ground; where they were stays known."""
    for j in rows:
        put_slot(capacity, table, j, -1)
        table.state[j] = NO_SLOT


@compiled
def restore_slots(capacity: Capacity, table: Table, order: Ints, first: int) -> int:
    """Put stored slots on the ground, from the first on in order, until there is no room for one; answers its place in the order, or their
    number.
    """
    for i in range(first, len(order)):
        j = order[i]
        if not has_room_at(capacity, places_of(table, j), demand_of(table, j), table.slot_s[j]):
            return i
        put_slot(capacity, table, j, 1)
        table.state[j] = HAS_SLOT
    return len(order)
