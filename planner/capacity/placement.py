"""Compiled code tracks all nodes and shared limits over time, and finds the first place for one more box.

A box takes the same number of GPUs on each of its nodes, all in one pool, and part of each of its limits: one for its slice, which runs one
box at a time, and one for each quota that covers it.
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

# The sort key of a node: the GPUs left over, then the end of the gap, cut to this many bits.
GAP_BITS: Final = 44


class Capacity(NamedTuple):
    nodes: Profiles  # free GPUs
    limits: Profiles  # what each limit leaves
    gpu_counts: Ints  # by node
    members: Ints  # the nodes of pool `p` are `members[first[p]:first[p + 1]]`
    first: Ints
    pool_of: Ints
    domain_of: IntGrid  # by level (0: NVLink, 1: rack) and node; NONE: not known
    domain_counts: Ints  # by level; domains are numbered from 0


class Demand(NamedTuple):
    """Holds a request's demand in numbers. Whole nodes are admitted as if each were the largest of the pool; on given nodes they take of a
    quota only what these have.
    """

    nodes: int
    gpus: int  # per node; 0: all
    length_s: int
    level: int  # of the topology domain that must hold all nodes; NONE: any
    pools: Ints  # preferred first
    handicaps_s: Ints  # by index of pool: a start there counts as this much later
    limits: IntGrid  # by index of pool: numbers of limits; NONE: unused
    amounts: IntGrid  # what it takes of `limits`


class Boxes(NamedTuple):
    places: Ints  # the nodes of box `i` are `places[first[i]:first[i + 1]]`
    first: Ints
    gpus: Ints  # per node; 0: all
    start_s: Ints
    end_s: Ints
    limits: IntGrid  # as in `Demand`, for the one pool of the box
    amounts: IntGrid


NO_INTS: Ints = np.empty(0, np.int64)
NO_LIMITS: Ints = np.empty((0, 0), np.int64)
# The column of the slice in each row of limits; quotas follow.
OF_SLICE: Final = 0


def unlimited_demand(nodes: int, gpus: int, length_s: int) -> Demand:
    """Returns a demand for given nodes, below no limits."""
    return Demand(nodes, gpus, length_s, NONE, NO_INTS, NO_INTS, NO_LIMITS, NO_LIMITS)


def boxes_of(places: Sequence[Ints], gpus: Sequence[int], times_s: Sequence[tuple[int, int]], limits: Ints, amounts: Ints) -> Boxes:
    first = np.cumsum([0, *map(len, places)])
    starts_s, ends_s = np.array(times_s, np.int64).reshape(-1, 2).T
    return Boxes(np.concatenate([NO_INTS, *places]), first, np.array(gpus, np.int64), starts_s.copy(), ends_s.copy(), limits, amounts)


def copy_capacity(capacity: Capacity) -> Capacity:
    return capacity._replace(nodes=copy_profiles(capacity.nodes), limits=copy_profiles(capacity.limits))


@lean
def gpus_needed(capacity: Capacity, node: int, gpus: int) -> int:
    """NEVER_S, which no node has free, if the node is too small."""
    gpu_count = int(capacity.gpu_counts[node])
    if gpus == 0 and gpu_count > 0:
        return gpu_count
    return gpus if 0 < gpus <= gpu_count else NEVER_S


@lean
def pool_index(capacity: Capacity, demand: Demand, places: Ints) -> int:
    for i in range(len(demand.pools)):
        if len(places) > 0 and demand.pools[i] == capacity.pool_of[places[0]]:
            return i
    return 0


@lean
def gpus_of_whole_nodes(capacity: Capacity, demand: Demand, places: Ints) -> int:
    """Returns the most that a box takes of a quota on these nodes; NEVER_S unless it takes whole nodes."""
    if demand.gpus > 0:
        return NEVER_S
    gpus = 0
    for node in places:
        gpus += int(capacity.gpu_counts[node])
    return gpus


@lean
def amount_of(demand: Demand, i: int, k: int, most: int) -> int:
    """`most`: from `gpus_of_whole_nodes`; NEVER_S while the nodes are unknown."""
    amount = int(demand.amounts[i, k])
    return amount if k == OF_SLICE else min(amount, most)


@lean
def take(capacity: Capacity, places: Ints, demand: Demand, start_s: int, end_s: int, sign: int) -> None:
    """Add a box to these nodes and its limits (`sign` 1), or remove it (-1)."""
    for node in places:
        # Not `gpus_needed`: a node may have lost GPUs since the box came, and NEVER_S added several times would overflow.
        change(capacity.nodes, node, start_s, end_s, -sign * (demand.gpus if demand.gpus > 0 else capacity.gpu_counts[node]))
    i, most = pool_index(capacity, demand, places), gpus_of_whole_nodes(capacity, demand, places)
    for k in range(demand.limits.shape[1]):
        if demand.limits[i, k] != NONE:
            change(capacity.limits, demand.limits[i, k], start_s, end_s, -sign * amount_of(demand, i, k, most))


@lean
def take_all(capacity: Capacity, boxes: Boxes) -> None:
    for i in range(len(boxes.gpus)):
        start_s, end_s, gpus = boxes.start_s[i], boxes.end_s[i], boxes.gpus[i]
        for node in boxes.places[boxes.first[i] : boxes.first[i + 1]]:
            change(capacity.nodes, node, start_s, end_s, -(gpus if gpus > 0 else capacity.gpu_counts[node]))
        for k in range(boxes.limits.shape[1]):
            if boxes.limits[i, k] != NONE:
                change(capacity.limits, boxes.limits[i, k], start_s, end_s, -boxes.amounts[i, k])


@lean
def limits_allow(capacity: Capacity, demand: Demand, i: int, start_s: int, most: int) -> bool:
    for k in range(demand.limits.shape[1]):
        limit = demand.limits[i, k]
        if limit != NONE and not stays_free(capacity.limits, limit, amount_of(demand, i, k, most), start_s, start_s + demand.length_s):
            return False
    return True


@lean
def earliest_below_limits(capacity: Capacity, demand: Demand, i: int, since_s: int, most: int) -> int:
    """Returns the first second from which all limits allow the whole box, or NEVER_S."""
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
    """Sets of nodes of which one must hold the whole gang."""
    members = members_of(capacity, pool)
    if demand.level == NONE or demand.nodes < 2:
        return [members]
    domain_of = capacity.domain_of[demand.level]
    counts = np.zeros(capacity.domain_counts[demand.level] + 1, np.int64)
    for node in members:
        counts[domain_of[node]] += 1  # the last element counts nodes whose domain is unknown
    return [members[domain_of[members] == domain] for domain in range(len(counts) - 1) if counts[domain] >= demand.nodes]


@compiled
def earliest_of_gang(capacity: Capacity, members: Ints, demand: Demand, since_s: int, before_s: int) -> int:
    """Finds when enough nodes are ready, asks those that were ready earlier again, and repeats; NEVER_S if there is no place."""
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

    It chooses the pool with the earliest start counting handicaps, then the preferred one. Source: the earliest fit of conservative
    backfill (Mu'alem and Feitelson, IEEE TPDS 2001), on nodes instead of counts. Cost: one pass over the steps of the pools' nodes; for
    gangs one more for each start that is tried.
    """
    best_s, best_pool, effective_s = NEVER_S, NONE, NEVER_S
    for i in range(len(demand.pools)):
        start_s = earliest_within_limits(capacity, demand, i, since_s, min(before_s, effective_s - demand.handicaps_s[i]))
        if start_s < NEVER_S:
            best_s, best_pool, effective_s = start_s, demand.pools[i], start_s + demand.handicaps_s[i]
    return best_s, best_pool


@lean
def effective_s(demand: Demand, pool: int, start_s: int) -> int:
    for i in range(len(demand.pools)):
        if demand.pools[i] == pool:
            return start_s + int(demand.handicaps_s[i])
    return start_s


@compiled
def choose(capacity: Capacity, pool: int, demand: Demand, start_s: int) -> Ints:
    """Returns the nodes of the pool that suit a box with this start best; fewer than it wants if it does not fit.

    First those with the fewest GPUs left over in the window, then with the shortest gap after it, so that whole nodes stay whole; ties in
    the order of the pool.
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
    """Prefers one NVLink domain, else one rack, else as few racks as possible; of several domains the one with the fewest free nodes.

    Empty if the demand needs one domain and none is large enough.
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
    """Returns the domain with the fewest of these nodes, but at least `count`, or NONE."""
    found = np.zeros(domain_count + 1, np.int64)
    for domain in domains:
        found[domain] += 1  # the last element counts nodes whose domain is unknown
    best = NONE
    for domain in range(domain_count):
        if found[domain] >= count and (best == NONE or found[domain] < found[best]):
            best = domain
    return best


@compiled
def fewest_domains(domains: Ints, domain_count: int, count: int) -> Bools:
    """Returns a mask of all nodes of the largest domains, until one domain can hold the rest."""
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
    """(start, pool, nodes), or (NEVER_S, NONE, ...). Drops what is over on its nodes."""
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
    if level == NONE or len(places) < 2:
        return True
    domain = capacity.domain_of[level, places[0]]
    return bool(domain != NONE and (capacity.domain_of[level][places] == domain).all())


@compiled
def has_room_at(capacity: Capacity, places: Ints, demand: Demand, start_s: int) -> bool:
    for node in places:
        if not stays_free(capacity.nodes, node, gpus_needed(capacity, node, demand.gpus), start_s, start_s + demand.length_s):
            return False
    return limits_allow(capacity, demand, pool_index(capacity, demand, places), start_s, gpus_of_whole_nodes(capacity, demand, places))


@compiled
def earliest_on(capacity: Capacity, places: Ints, demand: Demand, since_s: int, until_s: int) -> int:
    """Returns the first start in `[since_s, until_s]`, or NEVER_S."""
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
    best_s = NONE
    for members in domains_of(capacity, pool, demand):
        best_s = max(best_s, latest_of_gang(capacity, members, demand, max(since_s, best_s + 1), until_s))
    return best_s


@compiled
def latest_of_gang(capacity: Capacity, members: Ints, demand: Demand, since_s: int, until_s: int) -> int:
    """`earliest_of_gang` in reverse; NONE if there is no place."""
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
    """`earliest_below_limits` in reverse; NONE if there is none."""
    start_s, at_s = NEVER_S, until_s
    while at_s not in (start_s, NONE):
        start_s = at_s
        for k in range(demand.limits.shape[1]):
            if demand.limits[i, k] != NONE:
                at_s = last_fit(capacity.limits, demand.limits[i, k], demand.amounts[i, k], demand.length_s, since_s, at_s)
    return at_s


@compiled
def latest_within_limits(capacity: Capacity, demand: Demand, i: int, since_s: int, until_s: int) -> int:
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
    """(start, pool) of the last place in `[since_s, until_s]`, or (NONE, NONE)."""
    best_s, best_pool, effective_s = NONE, NONE, -NEVER_S
    for i in range(len(demand.pools)):
        start_s = latest_within_limits(capacity, demand, i, max(since_s, effective_s + 1 + demand.handicaps_s[i]), until_s)
        if start_s != NONE:
            best_s, best_pool, effective_s = start_s, demand.pools[i], start_s - demand.handicaps_s[i]
    return best_s, best_pool
