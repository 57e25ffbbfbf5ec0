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
    Profiles,
    change,
    copy_profiles,
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


class Capacity(NamedTuple):
    """`members[first[p]:first[p + 1]]` are the nodes of pool `p`; `rooms` are the GPUs of each node.

    `part_of[level, node]` is the NVLink domain (level 0) or the rack (1) of a node, NONE where that is not known; parts of a level are
    numbered from 0 to less than `part_counts[level]`.
    """

    nodes: Profiles
    limits: Profiles
    gpu_counts: Ints
    members: Ints
    first: Ints
    pool_of: Ints
    domain_of: IntGrid
    domain_counts: Ints


class Demand(NamedTuple):
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


def unlimited_demand(nodes: int, gpus: int, length_s: int) -> Demand:
    """A box that is put where it is said, below no limits."""
    return Demand(nodes, gpus, length_s, NONE, NO_INTS, NO_INTS, NO_LIMITS, NO_LIMITS)


def boxes_of(places: Sequence[Ints], gpus: Sequence[int], times_s: Sequence[tuple[int, int]], limits: Ints, amounts: Ints) -> Boxes:
    """`times_s`: (start, end) of each."""
    first = np.cumsum([0, *map(len, places)])
    starts_s, ends_s = np.array(times_s, np.int64).reshape(-1, 2).T
    return Boxes(np.concatenate([NO_INTS, *places]), first, np.array(gpus, np.int64), starts_s.copy(), ends_s.copy(), limits, amounts)


def copy_capacity(capacity: Capacity) -> Capacity:
    """A copy to play on: what cannot change is shared."""
    return capacity._replace(nodes=copy_profiles(capacity.nodes), limits=copy_profiles(capacity.limits))


@lean
def gpus_needed(capacity: Capacity, node: int, gpus: int) -> int:
    """How many GPUs of this node such a box takes; more than it can ever have free where it is too small."""
    gpu_count = int(capacity.gpu_counts[node])
    if gpus == 0 and gpu_count > 0:
        return gpu_count
    return gpus if 0 < gpus <= gpu_count else NEVER_S


@lean
def pool_index(capacity: Capacity, demand: Demand, places: Ints) -> int:
    """Which of its pools these nodes are of."""
    for i in range(len(demand.pools)):
        if len(places) > 0 and demand.pools[i] == capacity.pool_of[places[0]]:
            return i
    return 0


@lean
def gpus_of_whole_nodes(capacity: Capacity, demand: Demand, places: Ints) -> int:
    """The most that it takes of a quota on these very nodes: what whole nodes have."""
    if demand.gpus > 0:
        return NEVER_S
    gpus = 0
    for node in places:
        gpus += int(capacity.gpu_counts[node])
    return gpus


@lean
def amount_of(demand: Demand, i: int, k: int, most: int) -> int:
    """How much it takes of its limit `k` in its pool `i`. `most`: `gpus_on` its nodes; NEVER_S while they are not known."""
    amount = int(demand.amounts[i, k])
    return amount if k == OF_SLICE else min(amount, most)


@lean
def take(capacity: Capacity, places: Ints, demand: Demand, start_s: int, end_s: int, sign: int) -> None:
    """Put a box on these nodes (`sign` 1), or take it out (-1)."""
    for node in places:
        # Not `need_of`: a node may have lost GPUs since a box came, and a sum of what is out of reach would wrap around.
        change(capacity.nodes, node, start_s, end_s, -sign * (demand.gpus if demand.gpus > 0 else capacity.gpu_counts[node]))
    i, most = pool_index(capacity, demand, places), gpus_of_whole_nodes(capacity, demand, places)
    for k in range(demand.limits.shape[1]):
        if demand.limits[i, k] != NONE:
            change(capacity.limits, demand.limits[i, k], start_s, end_s, -sign * amount_of(demand, i, k, most))


@lean
def take_all(capacity: Capacity, boxes: Boxes) -> None:
    """Put boxes on the ground."""
    for i in range(len(boxes.gpus)):
        start_s, end_s, gpus = boxes.start_s[i], boxes.end_s[i], boxes.gpus[i]
        for node in boxes.places[boxes.first[i] : boxes.first[i + 1]]:
            change(capacity.nodes, node, start_s, end_s, -(gpus if gpus > 0 else capacity.gpu_counts[node]))
        for k in range(boxes.limits.shape[1]):
            if boxes.limits[i, k] != NONE:
                change(capacity.limits, boxes.limits[i, k], start_s, end_s, -boxes.amounts[i, k])


@lean
def limits_allow(capacity: Capacity, demand: Demand, i: int, start_s: int, most: int) -> bool:
    """Do the limits allow the whole box in its pool `i`? `most`: see `amount_of`."""
    for k in range(demand.limits.shape[1]):
        limit = demand.limits[i, k]
        if limit != NONE and not stays_free(capacity.limits, limit, amount_of(demand, i, k, most), start_s, start_s + demand.length_s):
            return False
    return True


@lean
def earliest_below_limits(capacity: Capacity, demand: Demand, i: int, since_s: int, most: int) -> int:
    """The first second from `since_s` on from which all limits allow the whole box in its pool `i`; NEVER_S if none does."""
    start_s, at_s = NONE, since_s
    while start_s != at_s and at_s < NEVER_S:
        start_s = at_s
        for k in range(demand.limits.shape[1]):
            if demand.limits[i, k] != NONE:
                at_s = first_fit(capacity.limits, demand.limits[i, k], amount_of(demand, i, k, most), demand.length_s, at_s, NEVER_S)
    return at_s


@lean
def earliest_of_one_node(capacity: Capacity, pool: int, demand: Demand, since_s: int, before_s: int) -> int:
    best_s, found = before_s, False
    for node in members_of(capacity, pool):
        start_s = first_fit(capacity.nodes, node, gpus_needed(capacity, node, demand.gpus), demand.length_s, since_s, best_s)
        if start_s < best_s:
            best_s, found = start_s, True
            if start_s == since_s:
                break
    return best_s if found else NEVER_S


@spliced
def members_of(capacity: Capacity, pool: int) -> Ints:
    return capacity.members[capacity.first[pool] : capacity.first[pool + 1]]


@compiled
def domains_of(capacity: Capacity, pool: int, demand: Demand) -> list[Ints]:
    """Sets of nodes of the pool, all of a gang on one of them: the whole pool, or its parts, as the kind wants it."""
    members = members_of(capacity, pool)
    if demand.level == NONE or demand.nodes < 2:
        return [members]
    domain_of = capacity.domain_of[demand.level]
    counts = np.zeros(capacity.domain_counts[demand.level] + 1, np.int64)
    for node in members:
        counts[domain_of[node]] += 1  # the last place is of those whose part is not known
    return [members[domain_of[members] == domain] for domain in range(len(counts) - 1) if counts[domain] >= demand.nodes]


@compiled
def earliest_of_gang(capacity: Capacity, members: Ints, demand: Demand, since_s: int, before_s: int) -> int:
    """Nobody can start before enough nodes are ready: try that moment, ask the nodes that were ready earlier again, and so on."""
    if len(members) < demand.nodes:
        return NEVER_S
    ready = np.empty(len(members), np.int64)
    start_s = since_s
    ready[:] = NONE
    while True:
        for i in range(len(members)):
            if ready[i] < start_s:
                need = gpus_needed(capacity, members[i], demand.gpus)
                ready[i] = first_fit(capacity.nodes, members[i], need, demand.length_s, start_s, before_s)
        enough_s = np.partition(ready, demand.nodes - 1)[demand.nodes - 1]
        if enough_s >= before_s:
            return NEVER_S
        if enough_s == start_s:
            return start_s
        start_s = enough_s


@compiled
def earliest_in_pool(capacity: Capacity, pool: int, demand: Demand, since_s: int, before_s: int) -> int:
    if since_s >= before_s:
        return NEVER_S
    if demand.nodes == 1:
        return earliest_of_one_node(capacity, pool, demand, since_s, before_s)
    best_s = NEVER_S
    for members in domains_of(capacity, pool, demand):
        best_s = min(best_s, earliest_of_gang(capacity, members, demand, since_s, min(before_s, best_s)))
    return best_s


@compiled
def earliest_within_limits(capacity: Capacity, demand: Demand, i: int, since_s: int, before_s: int) -> int:
    """As `first_in_pool` in its pool `i`, where the limits allow the box as well."""
    while since_s < before_s:
        since_s = earliest_below_limits(capacity, demand, i, since_s, NEVER_S)
        start_s = earliest_in_pool(capacity, demand.pools[i], demand, since_s, before_s)
        if start_s == NEVER_S or limits_allow(capacity, demand, i, start_s, NEVER_S):
            return start_s
        since_s = start_s
    return NEVER_S


@compiled
def earliest(capacity: Capacity, demand: Demand, since_s: int, before_s: int) -> tuple[int, int]:
    """(start, pool) of the first place in `[since_s, before_s)`, or (NEVER_S, NONE).

    Of several pools the one where it starts soonest, its handicap counted, then the one that the request likes better.
    Source: conservative backfill's earliest fit (Mu'alem and Feitelson, IEEE TPDS 2001), on nodes instead of counts.
    Cost: one look at each step of each node of the pools; for gangs once more for each moment that is tried.
    """
    best_s, best_pool, effective_s = NEVER_S, NONE, NEVER_S
    for i in range(len(demand.pools)):
        start_s = earliest_within_limits(capacity, demand, i, since_s, min(before_s, effective_s - demand.handicaps_s[i]))
        if start_s < NEVER_S:
            best_s, best_pool, effective_s = start_s, demand.pools[i], start_s + demand.handicaps_s[i]
    return best_s, best_pool


@lean
def effective_s(demand: Demand, pool: int, start_s: int) -> int:
    """What a start in this pool of its pools counts for: with its handicap."""
    for i in range(len(demand.pools)):
        if demand.pools[i] == pool:
            return start_s + int(demand.handicaps_s[i])
    return start_s


@compiled
def choose(capacity: Capacity, pool: int, demand: Demand, start_s: int) -> Ints:
    """The nodes of the pool on which a box that starts then stands best; fewer than it wants when they have no room.

    A gang near together; fewest GPUs left over in the window, then the shortest gap behind it: parts of nodes pack, whole nodes stay
    whole. Then in the order of the pool.
    """
    members = members_of(capacity, pool)
    free = np.empty(len(members), np.int64)
    left = np.empty(len(members), np.int64)
    until_s = np.empty(len(members), np.int64)
    count = 0
    for node in members:
        need = gpus_needed(capacity, node, demand.gpus)
        over = least_free(capacity.nodes, node, start_s, start_s + demand.length_s) - need
        if over >= 0:
            free[count], left[count] = node, over
            until_s[count] = free_until(capacity.nodes, node, need, start_s)
            count += 1
    return choose_closest(capacity, demand, free[:count], left[:count], until_s[:count])


@compiled
def choose_closest(capacity: Capacity, demand: Demand, free: Ints, left: Ints, until_s: Ints) -> Ints:
    """Of these nodes those that suit best: of one NVLink domain if it can be, else of one rack, else of as few racks as can be.

    Of several parts that are large enough the one with the fewest free nodes, so that larger ones stay whole. None where the kind wants
    one part, and none has enough.
    """
    if demand.nodes > 1 and len(free) >= demand.nodes:
        for level in range(len(capacity.domain_counts)):
            if demand.level in (NONE, level):
                domain = smallest_domain(capacity.domain_of[level][free], capacity.domain_counts[level], demand.nodes)
                if domain != NONE:
                    chosen = capacity.domain_of[level][free] == domain
                    return best_fitting(free[chosen], left[chosen], until_s[chosen], demand.nodes)
        if demand.level != NONE:
            return free[:0]
        if capacity.domain_counts[-1] > 0:
            chosen = fewest_domains(capacity.domain_of[-1][free], capacity.domain_counts[-1], demand.nodes)
            return best_fitting(free[chosen], left[chosen], until_s[chosen], demand.nodes)
    return best_fitting(free, left, until_s, demand.nodes)


@compiled
def smallest_domain(domains: Ints, domain_count: int, count: int) -> int:
    """The part with the fewest of these nodes that has so many, or NONE. `parts`: of each node."""
    found = np.zeros(domain_count + 1, np.int64)
    for domain in domains:
        found[domain] += 1  # the last place is of those whose part is not known
    best = NONE
    for domain in range(domain_count):
        if found[domain] >= count and (best == NONE or found[domain] < found[best]):
            best = domain
    return best


@compiled
def fewest_domains(domains: Ints, domain_count: int, count: int) -> Bools:
    """Which of these nodes: all of the parts that have most, until the rest fits into one."""
    chosen = np.zeros(len(domains), np.bool_)
    found = np.zeros(domain_count + 1, np.int64)
    for domain in domains:
        found[domain] += 1
    while count > 0:
        left = domains.copy()
        left[chosen] = domain_count
        domain = smallest_domain(left, domain_count, count)
        if domain == NONE:
            domain = int(np.argmax(found))
        if found[domain] == 0:
            break
        for i in range(len(domains)):
            chosen[i] |= domains[i] == domain or (domains[i] == NONE and domain == domain_count)
        count -= found[domain]
        found[domain] = 0
    return chosen


@compiled
def best_fitting(free: Ints, left: Ints, until_s: Ints, count: int) -> Ints:
    """The nodes with the fewest GPUs left over, then the shortest gap, then the first ones; in their own order."""
    if len(free) <= count:
        return free
    keys = (left << GAP_BITS) | np.minimum(until_s, (1 << GAP_BITS) - 1)
    if count == 1:
        best = np.argmin(keys)
        return free[best : best + 1]
    worst = np.partition(keys, count - 1)[count - 1]
    chosen: Bools = keys < worst
    ties = count - chosen.sum()
    for i in range(len(keys)):
        if ties > 0 and keys[i] == worst:
            chosen[i] = True
            ties -= 1
    return free[chosen]


@compiled
def place_earliest(capacity: Capacity, demand: Demand, since_s: int, now_s: int) -> tuple[int, int, Ints]:
    """Find the first place and take it: (start, pool, nodes), or (NEVER_S, NONE, ...) when there is none at all.

    What is over on its nodes is dropped.
    """
    start_s, pool = earliest(capacity, demand, since_s, NEVER_S)
    if pool == NONE:
        return start_s, pool, np.empty(0, np.int64)
    places = choose(capacity, pool, demand, start_s)
    for node in places:
        forget_before(capacity.nodes, node, now_s)
    take(capacity, places, demand, start_s, start_s + demand.length_s, 1)
    return start_s, pool, places


@compiled
def in_one_domain(capacity: Capacity, places: Ints, level: int) -> bool:
    """Are these nodes of one part, if that is wanted?"""
    if level == NONE or len(places) < 2:
        return True
    domain = capacity.domain_of[level, places[0]]
    return bool(domain != NONE and (capacity.domain_of[level][places] == domain).all())


@compiled
def has_room_at(capacity: Capacity, places: Ints, demand: Demand, start_s: int) -> bool:
    """Has it room on these very nodes?"""
    for node in places:
        if not stays_free(capacity.nodes, node, gpus_needed(capacity, node, demand.gpus), start_s, start_s + demand.length_s):
            return False
    return limits_allow(capacity, demand, pool_index(capacity, demand, places), start_s, gpus_of_whole_nodes(capacity, demand, places))


@compiled
def earliest_on(capacity: Capacity, places: Ints, demand: Demand, since_s: int, until_s: int) -> int:
    """The first start in `[since_s, until_s]` on these very nodes, or NEVER_S."""
    at_s, start_s, i, most = since_s, NONE, pool_index(capacity, demand, places), gpus_of_whole_nodes(capacity, demand, places)
    while start_s != at_s and at_s <= until_s:
        start_s = at_s
        for node in places:
            at_s = first_fit(capacity.nodes, node, gpus_needed(capacity, node, demand.gpus), demand.length_s, at_s, until_s + 1)
            if at_s == NEVER_S:
                return NEVER_S
        at_s = earliest_below_limits(capacity, demand, i, at_s, most)
    return at_s if at_s <= until_s else NEVER_S


@compiled
def latest_in_pool(capacity: Capacity, pool: int, demand: Demand, since_s: int, until_s: int) -> int:
    """The last start in `[since_s, until_s]`, or NONE."""
    best_s = NONE
    for members in domains_of(capacity, pool, demand):
        best_s = max(best_s, latest_of_gang(capacity, members, demand, max(since_s, best_s + 1), until_s))
    return best_s


@compiled
def latest_of_gang(capacity: Capacity, members: Ints, demand: Demand, since_s: int, until_s: int) -> int:
    """As `first_of_many`, from the other end; NONE if there is no place."""
    if len(members) < demand.nodes or since_s > until_s:
        return NONE
    ready = np.full(len(members), NEVER_S, np.int64)
    start_s = until_s
    while True:
        for i in range(len(members)):
            if ready[i] > start_s:
                need = gpus_needed(capacity, members[i], demand.gpus)
                ready[i] = last_fit(capacity.nodes, members[i], need, demand.length_s, since_s, start_s)
        place = len(members) - demand.nodes
        enough_s = int(np.partition(ready, place)[place])
        if enough_s in (NONE, start_s):
            return enough_s
        start_s = enough_s


@compiled
def latest_below_limits(capacity: Capacity, demand: Demand, i: int, since_s: int, until_s: int) -> int:
    """The last second in `[since_s, until_s]` from which all limits allow the whole box in its pool `i`; NONE if none does."""
    start_s, at_s = NEVER_S, until_s
    while at_s not in (start_s, NONE):
        start_s = at_s
        for k in range(demand.limits.shape[1]):
            if demand.limits[i, k] != NONE:
                at_s = last_fit(capacity.limits, demand.limits[i, k], demand.amounts[i, k], demand.length_s, since_s, at_s)
    return at_s


@compiled
def latest_within_limits(capacity: Capacity, demand: Demand, i: int, since_s: int, until_s: int) -> int:
    """As `latest_in_pool` in its pool `i`, where the limits allow the box as well."""
    while True:
        until_s = latest_below_limits(capacity, demand, i, since_s, until_s)
        if until_s < since_s:
            return NONE
        start_s = latest_in_pool(capacity, demand.pools[i], demand, since_s, until_s)
        if start_s == NONE or limits_allow(capacity, demand, i, start_s, NEVER_S):
            return start_s
        until_s = start_s


@compiled
def latest(capacity: Capacity, demand: Demand, since_s: int, until_s: int) -> tuple[int, int]:
    """(start, pool) of the last place in `[since_s, until_s]`, or (NONE, NONE): as `earliest`, from the other end."""
    best_s, best_pool, effective_s = NONE, NONE, -NEVER_S
    for i in range(len(demand.pools)):
        start_s = latest_within_limits(capacity, demand, i, max(since_s, effective_s + 1 + demand.handicaps_s[i]), until_s)
        if start_s != NONE:
            best_s, best_pool, effective_s = start_s, demand.pools[i], start_s - demand.handicaps_s[i]
    return best_s, best_pool
