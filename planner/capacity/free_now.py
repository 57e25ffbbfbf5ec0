"""Compiled code tracks until when each node stays free from now on, sorted, so that one look tells whether enough nodes are free."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from planner.board.table import used
from planner.capacity.placement import Capacity, Demand, choose_closest, gpus_needed, members_of
from planner.capacity.profile import AFTER, AT_S, FREE, NEVER_S, NONE, IntGrid, Ints, end_of, least_free
from planner.kernels import compiled, lean

# Sorting one node costs about as much as scanning this many.
SORT_COST: Final = 16


class FreeNow(NamedTuple):
    """Holds the times until which each node stays free, for each size class: a pool with a number of GPUs per node."""

    first: Ints  # pool `p` has the size classes `first[p]` to less than `first[p + 1]`
    gpus: Ints  # by size class: GPUs per node
    scratch_s: Ints  # by size class: scratch for one node
    until_s: IntGrid  # by node and size class; NONE: not free now
    ranked_s: IntGrid  # by size class: the times of `until_s` but NONE in rising order; `fill` counts them
    ranked: IntGrid  # the nodes of `ranked_s`; ties in the order of nodes
    fill: Ints
    improved_s: Ints  # by size class: the latest time that rose since `mark_groups` last ran, or NONE
    size_classes: IntGrid  # by group: those of its pools, in order, then NONE
    nodes: Ints  # by group: how many nodes it wants
    enough_until_s: IntGrid  # by group and index of pool: until when enough nodes are free, or NONE


def new_free_now(first: Ints, gpus: Ints, size_classes: Ints, nodes: Ints, *, node_count: int) -> FreeNow:
    count = len(gpus)
    until_s, scratch_s = np.full((node_count, count), NONE, np.int64), np.zeros(count, np.int64)
    ranked_s, ranked = np.zeros((count, node_count), np.int64), np.zeros((count, node_count), np.int64)
    fill, improved_s = np.zeros(count, np.int64), np.full(count, NONE, np.int64)
    return FreeNow(
        first,
        gpus,
        scratch_s,
        until_s,
        ranked_s,
        ranked,
        fill,
        improved_s,
        size_classes,
        nodes,
        np.full(size_classes.shape, NONE, np.int64),
    )


@lean
def measure_node(capacity: Capacity, free_now: FreeNow, node: int, at_s: int) -> None:
    """Fill `scratch_s` for all size classes of the node's pool in one walk along its profile."""
    first, last = free_now.first[capacity.pool_of[node]], free_now.first[capacity.pool_of[node] + 1]
    free_now.scratch_s[first:last] = NEVER_S
    steps, step = capacity.nodes.steps, capacity.nodes.head[node]
    while end_of(capacity.nodes, step) <= at_s:
        step = steps[step, AFTER]
    left, gone_s = last - first, NONE
    while left > 0 and step != NONE:
        for k in range(first, last):
            if free_now.scratch_s[k] == NEVER_S and steps[step, FREE] < gpus_needed(capacity, node, free_now.gpus[k]):
                free_now.scratch_s[k] = gone_s
                left -= 1
        step = steps[step, AFTER]
        gone_s = steps[step, AT_S]


@compiled
def measure_all(capacity: Capacity, free_now: FreeNow, at_s: int) -> None:
    free_now.fill[:] = 0
    for pool in range(len(free_now.first) - 1):
        first, last = free_now.first[pool], free_now.first[pool + 1]
        for node in members_of(capacity, pool):
            measure_node(capacity, free_now, node, at_s)
            free_now.until_s[node, first:last] = free_now.scratch_s[first:last]
            for k in range(first, last):
                if free_now.scratch_s[k] != NONE:
                    free_now.ranked[k, free_now.fill[k]] = node
                    free_now.fill[k] += 1
        for k in range(first, last):
            free = free_now.ranked[k, : free_now.fill[k]]
            until_s = free_now.until_s[:, k][free]
            order = np.argsort(until_s, kind="mergesort")
            free_now.ranked_s[k, : free_now.fill[k]] = until_s[order]
            free[:] = free[order]


@lean
def remeasure_node(capacity: Capacity, free_now: FreeNow, node: int, at_s: int) -> bool:
    """Update a node that has changed. True if it stays free for longer than before, so that more requests may fit."""
    is_better = False
    measure_node(capacity, free_now, node, at_s)
    for k in range(free_now.first[capacity.pool_of[node]], free_now.first[capacity.pool_of[node] + 1]):
        old_s, new_s = free_now.until_s[node, k], free_now.scratch_s[k]
        if new_s == old_s:
            continue
        free_now.until_s[node, k] = new_s
        if new_s > old_s:
            is_better = True
            free_now.improved_s[k] = max(free_now.improved_s[k], new_s)
        rerank(free_now, k, node, old_s, new_s)
    return is_better


@lean
def rerank(free_now: FreeNow, k: int, node: int, old_s: int, new_s: int) -> None:
    place = rank_of(free_now, k, node, old_s)
    last = rank_of(free_now, k, node, new_s)
    if last > place:
        last -= 1
    move_element(free_now.ranked_s[k], place, last)
    move_element(free_now.ranked[k], place, last)
    free_now.ranked_s[k, last], free_now.ranked[k, last] = new_s, node
    free_now.fill[k] += int(old_s == NONE) - int(new_s == NONE)


@lean
def move_element(array: Ints, place: int, last: int) -> None:
    between = array[min(place, last) : max(place, last) + 1]  # one slice, so that the compiler builds this loop once
    if place < last:
        for i in range(len(between) - 1):
            between[i] = between[i + 1]
    else:
        for i in range(len(between) - 1, 0, -1):
            between[i] = between[i - 1]


@lean
def rank_of(free_now: FreeNow, k: int, node: int, until_s: int) -> int:
    """Returns the number of free nodes if it is not free."""
    low, high = 0, int(free_now.fill[k])
    while low < high and until_s != NONE:
        middle = (low + high) // 2
        ranked_s = free_now.ranked_s[k, middle]
        if ranked_s < until_s or (ranked_s == until_s and free_now.ranked[k, middle] < node):
            low = middle + 1
        else:
            high = middle
    return high


@lean
def update_enough(free_now: FreeNow) -> None:
    for g in range(len(free_now.nodes)):
        for i in range(len(used(free_now.size_classes[g]))):
            k = free_now.size_classes[g, i]
            place = free_now.fill[k] - free_now.nodes[g]
            free_now.enough_until_s[g, i] = free_now.ranked_s[k, place] if place >= 0 else NONE


@compiled
def nodes_free_until(capacity: Capacity, free_now: FreeNow, k: int, pool: int, end_s: int) -> Ints:
    """Returns nodes in the order of the pool."""
    free = free_now.ranked[k, np.searchsorted(free_now.ranked_s[k, : free_now.fill[k]], end_s) : free_now.fill[k]]
    members = members_of(capacity, pool)
    # A scan is faster unless few nodes are free.
    if len(free) * SORT_COST < len(members):
        return np.sort(free)
    return members[free_now.until_s[:, k][members] >= end_s]


@compiled
def choose_now(capacity: Capacity, free_now: FreeNow, k: int, pool: int, demand: Demand, at_s: int) -> Ints:
    """Like `choose` for a box that starts now, but reads `free_now`."""
    end_s = at_s + demand.length_s
    free = nodes_free_until(capacity, free_now, k, pool, end_s)
    left = np.empty(len(free), np.int64)
    for i in range(len(free)):
        left[i] = least_free(capacity.nodes, free[i], at_s, end_s) - gpus_needed(capacity, free[i], demand.gpus)
    return choose_closest(capacity, demand, free, left, free_now.until_s[:, k][free])
