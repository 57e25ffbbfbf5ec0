"""What boxes stand on, compiled: the nodes of all pools, and the limits that boxes share; and the first place for one more box.

A box takes the same number of GPUs of each of its nodes, all in one pool, and some room of each of its limits: one of its slice, which
runs one box at a time, and its GPUs of each quota that holds for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from planner.capacity.profile import (
    NEVER_S,
    NONE,
    Bools,
    IntGrid,
    Ints,
    Lines,
    change,
    copy_lines,
    first_fit,
    forget_before,
    free_until,
    last_fit,
    least_free,
    stays_free,
)
from planner.kernels import compiled, lean, spliced

# For sorting nodes: what is left over first, then the end of the gap, cut to so many bits.
GAP_BITS: Final = 44


class Ground(NamedTuple):
    """`members[first[p]:first[p + 1]]` are the nodes of pool `p`; `rooms` are the GPUs of each node.

    `part_of[level, node]` is the NVLink domain (level 0) or the rack (1) of a node, NONE where that is not known; parts of a level are
    numbered from 0 to less than `part_counts[level]`.
    """

    nodes: Lines
    limits: Lines
    rooms: Ints
    members: Ints
    first: Ints
    pool_of: Ints
    part_of: IntGrid
    part_counts: Ints


class Kind(NamedTuple):
    """What a request asks for. `gpus` 0: all of each node. `pools`: best liked first. `level`: all nodes of one part; NONE: any.

    A start in pool `pools[i]` counts as if it were `handicaps_s[i]` later. There it takes `amounts[i, k]` of limit `limits[i, k]`, which
    is NONE behind the last. Whole nodes are let in as if each were the largest; on nodes that are known they take no more of a quota than
    these have.
    """

    nodes: int
    gpus: int
    length_s: int
    level: int
    pools: Ints
    handicaps_s: Ints
    limits: IntGrid
    amounts: IntGrid


class Boxes(NamedTuple):
    """Many boxes: `i` takes `gpus[i]` (0: all) of each of `places[first[i]:first[i + 1]]`, and `amounts[i, k]` of its limits."""

    places: Ints
    first: Ints
    gpus: Ints
    start_s: Ints
    end_s: Ints
    limits: IntGrid
    amounts: IntGrid


NO_INTS: Ints = np.empty(0, np.int64)
NO_LIMITS: Ints = np.empty((0, 0), np.int64)
# In each row of limits: that of the slice, before those of quotas.
OF_SLICE: Final = 0


def anywhere(nodes: int, gpus: int, length_s: int) -> Kind:
    """A box that is put where it is said, below no limits."""
    return Kind(nodes, gpus, length_s, NONE, NO_INTS, NO_INTS, NO_LIMITS, NO_LIMITS)


def boxes_of(places: Sequence[Ints], gpus: Sequence[int], times_s: Sequence[tuple[int, int]], limits: Ints, amounts: Ints) -> Boxes:
    """`times_s`: (start, end) of each."""
    first = np.cumsum([0, *map(len, places)])
    starts_s, ends_s = np.array(times_s, np.int64).reshape(-1, 2).T
    return Boxes(np.concatenate([NO_INTS, *places]), first, np.array(gpus, np.int64), starts_s.copy(), ends_s.copy(), limits, amounts)


def copy_ground(ground: Ground) -> Ground:
    """A copy to play on: what cannot change is shared."""
    return ground._replace(nodes=copy_lines(ground.nodes), limits=copy_lines(ground.limits))


@lean
def need_of(ground: Ground, node: int, gpus: int) -> int:
    """How many GPUs of this node such a box takes; more than it can ever have free where it is too small."""
    room = int(ground.rooms[node])
    if gpus == 0 and room > 0:
        return room
    return gpus if 0 < gpus <= room else NEVER_S


@lean
def which_pool(ground: Ground, kind: Kind, places: Ints) -> int:
    """Which of its pools these nodes are of."""
    for i in range(len(kind.pools)):
        if len(places) > 0 and kind.pools[i] == ground.pool_of[places[0]]:
            return i
    return 0


@lean
def gpus_on(ground: Ground, kind: Kind, places: Ints) -> int:
    """The most that it takes of a quota on these very nodes: what whole nodes have."""
    if kind.gpus > 0:
        return NEVER_S
    gpus = 0
    for node in places:
        gpus += int(ground.rooms[node])
    return gpus


@lean
def amount_of(kind: Kind, i: int, k: int, most: int) -> int:
    """How much it takes of its limit `k` in its pool `i`. `most`: `gpus_on` its nodes; NEVER_S while they are not known."""
    amount = int(kind.amounts[i, k])
    return amount if k == OF_SLICE else min(amount, most)


@lean
def take(ground: Ground, places: Ints, kind: Kind, start_s: int, end_s: int, sign: int) -> None:
    """Put a box on these nodes (`sign` 1), or take it out (-1)."""
    for node in places:
        # Not `need_of`: a node may have lost GPUs since a box came, and a sum of what is out of reach would wrap around.
        change(ground.nodes, node, start_s, end_s, -sign * (kind.gpus if kind.gpus > 0 else ground.rooms[node]))
    i, most = which_pool(ground, kind, places), gpus_on(ground, kind, places)
    for k in range(kind.limits.shape[1]):
        if kind.limits[i, k] != NONE:
            change(ground.limits, kind.limits[i, k], start_s, end_s, -sign * amount_of(kind, i, k, most))


@lean
def take_all(ground: Ground, boxes: Boxes) -> None:
    """Put boxes on the ground."""
    for i in range(len(boxes.gpus)):
        start_s, end_s, gpus = boxes.start_s[i], boxes.end_s[i], boxes.gpus[i]
        for node in boxes.places[boxes.first[i] : boxes.first[i + 1]]:
            change(ground.nodes, node, start_s, end_s, -(gpus if gpus > 0 else ground.rooms[node]))
        for k in range(boxes.limits.shape[1]):
            if boxes.limits[i, k] != NONE:
                change(ground.limits, boxes.limits[i, k], start_s, end_s, -boxes.amounts[i, k])


@lean
def limits_allow(ground: Ground, kind: Kind, i: int, start_s: int, most: int) -> bool:
    """Do the limits allow the whole box in its pool `i`? `most`: see `amount_of`."""
    for k in range(kind.limits.shape[1]):
        line = kind.limits[i, k]
        if line != NONE and not stays_free(ground.limits, line, amount_of(kind, i, k, most), start_s, start_s + kind.length_s):
            return False
    return True


@lean
def after_limits(ground: Ground, kind: Kind, i: int, since_s: int, most: int) -> int:
    """The first second from `since_s` on from which all limits allow the whole box in its pool `i`; NEVER_S if none does."""
    start_s, at_s = NONE, since_s
    while start_s != at_s and at_s < NEVER_S:
        start_s = at_s
        for k in range(kind.limits.shape[1]):
            if kind.limits[i, k] != NONE:
                at_s = first_fit(ground.limits, kind.limits[i, k], amount_of(kind, i, k, most), kind.length_s, at_s, NEVER_S)
    return at_s


@lean
def first_of_one(ground: Ground, pool: int, kind: Kind, since_s: int, before_s: int) -> int:
    best_s, found = before_s, False
    for node in members_of(ground, pool):
        start_s = first_fit(ground.nodes, node, need_of(ground, node, kind.gpus), kind.length_s, since_s, best_s)
        if start_s < best_s:
            best_s, found = start_s, True
            if start_s == since_s:
                break
    return best_s if found else NEVER_S


@spliced
def members_of(ground: Ground, pool: int) -> Ints:
    return ground.members[ground.first[pool] : ground.first[pool + 1]]


@compiled
def parts_of(ground: Ground, pool: int, kind: Kind) -> list[Ints]:
    """Sets of nodes of the pool, all of a gang on one of them: the whole pool, or its parts, as the kind wants it."""
    members = members_of(ground, pool)
    if kind.level == NONE or kind.nodes < 2:
        return [members]
    part_of = ground.part_of[kind.level]
    counts = np.zeros(ground.part_counts[kind.level] + 1, np.int64)
    for node in members:
        counts[part_of[node]] += 1  # the last place is of those whose part is not known
    return [members[part_of[members] == part] for part in range(len(counts) - 1) if counts[part] >= kind.nodes]


@compiled
def first_of_many(ground: Ground, members: Ints, kind: Kind, since_s: int, before_s: int) -> int:
    """Nobody can start before enough nodes are ready: try that moment, ask the nodes that were ready earlier again, and so on."""
    if len(members) < kind.nodes:
        return NEVER_S
    ready = np.empty(len(members), np.int64)
    start_s = since_s
    ready[:] = NONE
    while True:
        for i in range(len(members)):
            if ready[i] < start_s:
                need = need_of(ground, members[i], kind.gpus)
                ready[i] = first_fit(ground.nodes, members[i], need, kind.length_s, start_s, before_s)
        enough_s = np.partition(ready, kind.nodes - 1)[kind.nodes - 1]
        if enough_s >= before_s:
            return NEVER_S
        if enough_s == start_s:
            return start_s
        start_s = enough_s


@compiled
def first_in_pool(ground: Ground, pool: int, kind: Kind, since_s: int, before_s: int) -> int:
    if since_s >= before_s:
        return NEVER_S
    if kind.nodes == 1:
        return first_of_one(ground, pool, kind, since_s, before_s)
    best_s = NEVER_S
    for members in parts_of(ground, pool, kind):
        best_s = min(best_s, first_of_many(ground, members, kind, since_s, min(before_s, best_s)))
    return best_s


@compiled
def first_within_limits(ground: Ground, kind: Kind, i: int, since_s: int, before_s: int) -> int:
    """As `first_in_pool` in its pool `i`, where the limits allow the box as well."""
    while since_s < before_s:
        since_s = after_limits(ground, kind, i, since_s, NEVER_S)
        start_s = first_in_pool(ground, kind.pools[i], kind, since_s, before_s)
        if start_s == NEVER_S or limits_allow(ground, kind, i, start_s, NEVER_S):
            return start_s
        since_s = start_s
    return NEVER_S


@compiled
def earliest(ground: Ground, kind: Kind, since_s: int, before_s: int) -> tuple[int, int]:
    """(start, pool) of the first place in `[since_s, before_s)`, or (NEVER_S, NONE).

    Of several pools the one where it starts soonest, its handicap counted, then the one that the request likes better.
    Source: conservative backfill's earliest fit (Mu'alem and Feitelson, IEEE TPDS 2001), on nodes instead of counts.
    Cost: one look at each step of each node of the pools; for gangs once more for each moment that is tried.
    """
    best_s, best_pool, counts_s = NEVER_S, NONE, NEVER_S
    for i in range(len(kind.pools)):
        start_s = first_within_limits(ground, kind, i, since_s, min(before_s, counts_s - kind.handicaps_s[i]))
        if start_s < NEVER_S:
            best_s, best_pool, counts_s = start_s, kind.pools[i], start_s + kind.handicaps_s[i]
    return best_s, best_pool


@lean
def counts_s(kind: Kind, pool: int, start_s: int) -> int:
    """What a start in this pool of its pools counts for: with its handicap."""
    for i in range(len(kind.pools)):
        if kind.pools[i] == pool:
            return start_s + int(kind.handicaps_s[i])
    return start_s


@compiled
def choose(ground: Ground, pool: int, kind: Kind, start_s: int) -> Ints:
    """The nodes of the pool on which a box that starts then stands best; fewer than it wants when they have no room.

    A gang near together; fewest GPUs left over in the window, then the shortest gap behind it: parts of nodes pack, whole nodes stay
    whole. Then in the order of the pool.
    """
    members = members_of(ground, pool)
    free = np.empty(len(members), np.int64)
    left = np.empty(len(members), np.int64)
    until_s = np.empty(len(members), np.int64)
    count = 0
    for node in members:
        need = need_of(ground, node, kind.gpus)
        over = least_free(ground.nodes, node, start_s, start_s + kind.length_s) - need
        if over >= 0:
            free[count], left[count] = node, over
            until_s[count] = free_until(ground.nodes, node, need, start_s)
            count += 1
    return nearest(ground, kind, free[:count], left[:count], until_s[:count])


@compiled
def nearest(ground: Ground, kind: Kind, free: Ints, left: Ints, until_s: Ints) -> Ints:
    """Of these nodes those that suit best: of one NVLink domain if it can be, else of one rack, else of as few racks as can be.

    Of several parts that are large enough the one with the fewest free nodes, so that larger ones stay whole. None where the kind wants
    one part, and none has enough.
    """
    if kind.nodes > 1 and len(free) >= kind.nodes:
        for level in range(len(ground.part_counts)):
            if kind.level in (NONE, level):
                part = tightest(ground.part_of[level][free], ground.part_counts[level], kind.nodes)
                if part != NONE:
                    mine = ground.part_of[level][free] == part
                    return snuggest(free[mine], left[mine], until_s[mine], kind.nodes)
        if kind.level != NONE:
            return free[:0]
        if ground.part_counts[-1] > 0:
            mine = fewest(ground.part_of[-1][free], ground.part_counts[-1], kind.nodes)
            return snuggest(free[mine], left[mine], until_s[mine], kind.nodes)
    return snuggest(free, left, until_s, kind.nodes)


@compiled
def tightest(parts: Ints, part_count: int, count: int) -> int:
    """The part with the fewest of these nodes that has so many, or NONE. `parts`: of each node."""
    found = np.zeros(part_count + 1, np.int64)
    for part in parts:
        found[part] += 1  # the last place is of those whose part is not known
    best = NONE
    for part in range(part_count):
        if found[part] >= count and (best == NONE or found[part] < found[best]):
            best = part
    return best


@compiled
def fewest(parts: Ints, part_count: int, count: int) -> Bools:
    """Which of these nodes: all of the parts that have most, until the rest fits into one."""
    mine = np.zeros(len(parts), np.bool_)
    found = np.zeros(part_count + 1, np.int64)
    for part in parts:
        found[part] += 1
    while count > 0:
        left = parts.copy()
        left[mine] = part_count
        part = tightest(left, part_count, count)
        if part == NONE:
            part = int(np.argmax(found))
        if found[part] == 0:
            break
        for i in range(len(parts)):
            mine[i] |= parts[i] == part or (parts[i] == NONE and part == part_count)
        count -= found[part]
        found[part] = 0
    return mine


@compiled
def snuggest(free: Ints, left: Ints, until_s: Ints, count: int) -> Ints:
    """The nodes with the fewest GPUs left over, then the shortest gap, then the first ones; in their own order."""
    if len(free) <= count:
        return free
    keys = (left << GAP_BITS) | np.minimum(until_s, (1 << GAP_BITS) - 1)
    if count == 1:
        best = np.argmin(keys)
        return free[best : best + 1]
    worst = np.partition(keys, count - 1)[count - 1]
    mine: Bools = keys < worst
    ties = count - mine.sum()
    for i in range(len(keys)):
        if ties > 0 and keys[i] == worst:
            mine[i] = True
            ties -= 1
    return free[mine]


@compiled
def put_first(ground: Ground, kind: Kind, since_s: int, now_s: int) -> tuple[int, int, Ints]:
    """Find the first place and take it: (start, pool, nodes), or (NEVER_S, NONE, ...) when there is none at all.

    What is over on its nodes is dropped.
    """
    start_s, pool = earliest(ground, kind, since_s, NEVER_S)
    if pool == NONE:
        return start_s, pool, np.empty(0, np.int64)
    places = choose(ground, pool, kind, start_s)
    for node in places:
        forget_before(ground.nodes, node, now_s)
    take(ground, places, kind, start_s, start_s + kind.length_s, 1)
    return start_s, pool, places


@compiled
def is_near(ground: Ground, places: Ints, level: int) -> bool:
    """Are these nodes of one part, if that is wanted?"""
    if level == NONE or len(places) < 2:
        return True
    part = ground.part_of[level, places[0]]
    return bool(part != NONE and (ground.part_of[level][places] == part).all())


@compiled
def room_at(ground: Ground, places: Ints, kind: Kind, start_s: int) -> bool:
    """Has it room on these very nodes?"""
    for node in places:
        if not stays_free(ground.nodes, node, need_of(ground, node, kind.gpus), start_s, start_s + kind.length_s):
            return False
    return limits_allow(ground, kind, which_pool(ground, kind, places), start_s, gpus_on(ground, kind, places))


@compiled
def earliest_there(ground: Ground, places: Ints, kind: Kind, since_s: int, until_s: int) -> int:
    """The first start in `[since_s, until_s]` on these very nodes, or NEVER_S."""
    at_s, start_s, i, most = since_s, NONE, which_pool(ground, kind, places), gpus_on(ground, kind, places)
    while start_s != at_s and at_s <= until_s:
        start_s = at_s
        for node in places:
            at_s = first_fit(ground.nodes, node, need_of(ground, node, kind.gpus), kind.length_s, at_s, until_s + 1)
            if at_s == NEVER_S:
                return NEVER_S
        at_s = after_limits(ground, kind, i, at_s, most)
    return at_s if at_s <= until_s else NEVER_S


@compiled
def latest_in_pool(ground: Ground, pool: int, kind: Kind, since_s: int, until_s: int) -> int:
    """The last start in `[since_s, until_s]`, or NONE."""
    best_s = NONE
    for members in parts_of(ground, pool, kind):
        best_s = max(best_s, last_of_many(ground, members, kind, max(since_s, best_s + 1), until_s))
    return best_s


@compiled
def last_of_many(ground: Ground, members: Ints, kind: Kind, since_s: int, until_s: int) -> int:
    """As `first_of_many`, from the other end; NONE if there is no place."""
    if len(members) < kind.nodes or since_s > until_s:
        return NONE
    ready = np.full(len(members), NEVER_S, np.int64)
    start_s = until_s
    while True:
        for i in range(len(members)):
            if ready[i] > start_s:
                need = need_of(ground, members[i], kind.gpus)
                ready[i] = last_fit(ground.nodes, members[i], need, kind.length_s, since_s, start_s)
        place = len(members) - kind.nodes
        enough_s = int(np.partition(ready, place)[place])
        if enough_s in (NONE, start_s):
            return enough_s
        start_s = enough_s


@compiled
def before_limits(ground: Ground, kind: Kind, i: int, since_s: int, until_s: int) -> int:
    """The last second in `[since_s, until_s]` from which all limits allow the whole box in its pool `i`; NONE if none does."""
    start_s, at_s = NEVER_S, until_s
    while at_s not in (start_s, NONE):
        start_s = at_s
        for k in range(kind.limits.shape[1]):
            if kind.limits[i, k] != NONE:
                at_s = last_fit(ground.limits, kind.limits[i, k], kind.amounts[i, k], kind.length_s, since_s, at_s)
    return at_s


@compiled
def last_within_limits(ground: Ground, kind: Kind, i: int, since_s: int, until_s: int) -> int:
    """As `latest_in_pool` in its pool `i`, where the limits allow the box as well."""
    while True:
        until_s = before_limits(ground, kind, i, since_s, until_s)
        if until_s < since_s:
            return NONE
        start_s = latest_in_pool(ground, kind.pools[i], kind, since_s, until_s)
        if start_s == NONE or limits_allow(ground, kind, i, start_s, NEVER_S):
            return start_s
        until_s = start_s


@compiled
def latest(ground: Ground, kind: Kind, since_s: int, until_s: int) -> tuple[int, int]:
    """(start, pool) of the last place in `[since_s, until_s]`, or (NONE, NONE): as `earliest`, from the other end."""
    best_s, best_pool, counts_s = NONE, NONE, -NEVER_S
    for i in range(len(kind.pools)):
        start_s = last_within_limits(ground, kind, i, max(since_s, counts_s + 1 + kind.handicaps_s[i]), until_s)
        if start_s != NONE:
            best_s, best_pool, counts_s = start_s, kind.pools[i], start_s - kind.handicaps_s[i]
    return best_s, best_pool
