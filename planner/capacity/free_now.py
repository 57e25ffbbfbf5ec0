"""How long each node stays free from now on, compiled: ranked, so that a look at one place answers most questions of who may start."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from planner.board.table import used
from planner.capacity.placement import Ground, Kind, members_of, nearest, need_of
from planner.capacity.profile import AFTER, AT_S, FREE, NEVER_S, NONE, IntGrid, Ints, end_of, least_free
from planner.kernels import compiled, lean

# To sort one node costs about as much as to look at so many.
FEW: Final = 16


class Now(NamedTuple):
    """For each level (a pool and so many GPUs per node): how long each node stays free from now on, NONE where it is not.

    The levels of pool `p` are `first[p]` to less than `first[p + 1]`; `seen_s[k]` is scratch, for one node.
    `until_s[node, k]`; `ranked_s[k, :fill[k]]` the same in rising order without the NONEs, `ranked[k, :fill[k]]` whose they are;
    equal ones by node.
    `better_s[k]`: how long at most a node stays free that has become better since the groups were last touched; NONE: none has.
    Group `g` wants `nodes[g]` nodes of one of the levels `levels[g]`, which follow its pools; `reach_s[g, i]`: until when it would have
    them in its pool `i`, NONE where they are too few.
    """

    first: Ints
    gpus: Ints
    seen_s: Ints
    until_s: IntGrid
    ranked_s: IntGrid
    ranked: IntGrid
    fill: Ints
    better_s: Ints
    levels: IntGrid
    nodes: Ints
    reach_s: IntGrid


def new_now(first: Ints, gpus: Ints, levels: Ints, nodes: Ints, *, node_count: int) -> Now:
    count = len(gpus)
    until_s, seen_s = np.full((node_count, count), NONE, np.int64), np.zeros(count, np.int64)
    ranked_s, ranked = np.zeros((count, node_count), np.int64), np.zeros((count, node_count), np.int64)
    fill, better_s = np.zeros(count, np.int64), np.full(count, NONE, np.int64)
    return Now(first, gpus, seen_s, until_s, ranked_s, ranked, fill, better_s, levels, nodes, np.full(levels.shape, NONE, np.int64))


@lean
def look_at(ground: Ground, now: Now, node: int, at_s: int) -> None:
    """Fill `seen_s` for all levels of the node's pool, in one walk along its line."""
    first, last = now.first[ground.pool_of[node]], now.first[ground.pool_of[node] + 1]
    now.seen_s[first:last] = NEVER_S
    steps, step = ground.nodes.steps, ground.nodes.head[node]
    while end_of(ground.nodes, step) <= at_s:
        step = steps[step, AFTER]
    left, gone_s = last - first, NONE
    while left > 0 and step != NONE:
        for k in range(first, last):
            if now.seen_s[k] == NEVER_S and steps[step, FREE] < need_of(ground, node, now.gpus[k]):
                now.seen_s[k] = gone_s
                left -= 1
        step = steps[step, AFTER]
        gone_s = steps[step, AT_S]


@compiled
def look(ground: Ground, now: Now, at_s: int) -> None:
    """Fill `now` for all nodes."""
    now.fill[:] = 0
    for pool in range(len(now.first) - 1):
        first, last = now.first[pool], now.first[pool + 1]
        for node in members_of(ground, pool):
            look_at(ground, now, node, at_s)
            now.until_s[node, first:last] = now.seen_s[first:last]
            for k in range(first, last):
                if now.seen_s[k] != NONE:
                    now.ranked[k, now.fill[k]] = node
                    now.fill[k] += 1
        for k in range(first, last):
            free = now.ranked[k, : now.fill[k]]
            until_s = now.until_s[:, k][free]
            order = np.argsort(until_s, kind="mergesort")
            now.ranked_s[k, : now.fill[k]] = until_s[order]
            free[:] = free[order]


@lean
def look_again(ground: Ground, now: Now, node: int, at_s: int) -> bool:
    """A node has changed. True when it stays free for longer than it did, so that somebody may fit who did not."""
    is_better = False
    look_at(ground, now, node, at_s)
    for k in range(now.first[ground.pool_of[node]], now.first[ground.pool_of[node] + 1]):
        old_s, new_s = now.until_s[node, k], now.seen_s[k]
        if new_s == old_s:
            continue
        now.until_s[node, k] = new_s
        if new_s > old_s:
            is_better = True
            now.better_s[k] = max(now.better_s[k], new_s)
        rank_anew(now, k, node, old_s, new_s)
    return is_better


@lean
def rank_anew(now: Now, k: int, node: int, old_s: int, new_s: int) -> None:
    """It stays free until `new_s` instead of `old_s`."""
    place = rank_of(now, k, node, old_s)
    last = rank_of(now, k, node, new_s)
    if last > place:
        last -= 1
    move(now.ranked_s[k], place, last)
    move(now.ranked[k], place, last)
    now.ranked_s[k, last], now.ranked[k, last] = new_s, node
    now.fill[k] += int(old_s == NONE) - int(new_s == NONE)


@lean
def move(array: Ints, place: int, last: int) -> None:
    """Make room at `last` for what is at `place`: all between move by one."""
    between = array[min(place, last) : max(place, last) + 1]  # a compiler makes one copy of such loops
    if place < last:
        for i in range(len(between) - 1):
            between[i] = between[i + 1]
    else:
        for i in range(len(between) - 1, 0, -1):
            between[i] = between[i - 1]


@lean
def rank_of(now: Now, k: int, node: int, until_s: int) -> int:
    """Its place among all that are free, if it stays free until then; behind them if it is not free."""
    low, high = 0, int(now.fill[k])
    while low < high and until_s != NONE:
        middle = (low + high) // 2
        ranked_s = now.ranked_s[k, middle]
        if ranked_s < until_s or (ranked_s == until_s and now.ranked[k, middle] < node):
            low = middle + 1
        else:
            high = middle
    return high


@lean
def reach(now: Now) -> None:
    """Fill `reach_s`."""
    for g in range(len(now.nodes)):
        for i in range(len(used(now.levels[g]))):
            k = now.levels[g, i]
            place = now.fill[k] - now.nodes[g]
            now.reach_s[g, i] = now.ranked_s[k, place] if place >= 0 else NONE


@compiled
def free_now(ground: Ground, now: Now, k: int, pool: int, end_s: int) -> Ints:
    """The nodes of the pool that stay free until then, in its order. To sort them costs more than to look at all, unless they are few."""
    free = now.ranked[k, np.searchsorted(now.ranked_s[k, : now.fill[k]], end_s) : now.fill[k]]
    members = members_of(ground, pool)
    if len(free) * FEW < len(members):
        return np.sort(free)
    return members[now.until_s[:, k][members] >= end_s]


@compiled
def choose_now(ground: Ground, now: Now, k: int, pool: int, kind: Kind, at_s: int) -> Ints:
    """As `choose` for a box that starts now, from what is known of now."""
    end_s = at_s + kind.length_s
    free = free_now(ground, now, k, pool, end_s)
    left = np.empty(len(free), np.int64)
    for i in range(len(free)):
        left[i] = least_free(ground.nodes, free[i], at_s, end_s) - need_of(ground, free[i], kind.gpus)
    return nearest(ground, kind, free, left, now.until_s[:, k][free])
