"""Makes an empty board."""

from __future__ import annotations

import numpy as np

from planner.board.table import Table
from planner.capacity.placement import NO_INTS, Capacity, take, unlimited_demand
from planner.capacity.profile import FOREVER_S, NONE, Ints, new_profiles
from planner.snapshot import Pool

# The limits of a box: its slice, and the quotas of its slice and its project.
LIMITS_MOST = 3
NO_POOLS: Ints = np.empty((0, LIMITS_MOST), np.int64)


def capacity_of(pools: tuple[Pool, ...], now_s: int) -> Capacity:
    nodes = [node for pool in pools for node in pool.nodes]
    unordered = {id_ for pool in pools if pool.supply is not None for id_ in pool.supply.unordered}
    gpu_counts = np.array([0 if node.id in unordered else node.gpu_count for node in nodes], np.int64)
    counts = [len(pool.nodes) for pool in pools]
    window_count = sum(len(node.closed) for node in nodes)
    domain_of = np.array(
        [_domain_numbers([node.nvlink_domain for node in nodes]), _domain_numbers([node.rack for node in nodes])], np.int64
    )
    capacity = Capacity(
        nodes=new_profiles(gpu_counts, since_s=now_s, unused_count=2 * (window_count + len(nodes))),
        limits=new_profiles(NO_INTS, since_s=now_s, unused_count=2 * LIMITS_MOST),
        gpu_counts=gpu_counts,
        members=np.arange(len(nodes), dtype=np.int64),
        first=np.cumsum([0, *counts]).astype(np.int64),
        pool_of=np.repeat(np.arange(len(pools)), counts).astype(np.int64),
        domain_of=domain_of,
        domain_counts=domain_of.max(axis=1, initial=NONE) + 1,
    )
    for number, node in enumerate(nodes):
        for window in node.closed if node.gpu_count else ():
            start_s, end_s = clamp_s(window.start_s), clamp_s(window.end_s)
            close_nodes(capacity, np.array([number], np.int64), node.gpu_count, start_s, end_s)
    return capacity


def _domain_numbers(names: list[str]) -> list[int]:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(filter(None, names)))}
    return [numbers.get(name, NONE) for name in names]


def close_nodes(capacity: Capacity, places: Ints, gpus: int, start_s: int, end_s: int, sign: int = 1) -> None:
    """Close these GPUs of each of these nodes (`sign` 1), or open them (-1)."""
    take(capacity, places, unlimited_demand(len(places), gpus, end_s - start_s), start_s, end_s, sign)


def clamp_s(at_s: int) -> int:
    """Sums of such times do not overflow."""
    return max(-FOREVER_S, min(at_s, FOREVER_S))


def new_table(rows: int, pool_count: int) -> Table:
    def column() -> Ints:
        return np.zeros(rows, np.int64)

    def columns(*widths: int) -> Ints:
        return np.full((rows, *widths), NONE, np.int64)

    return Table(
        state=column(),
        nodes=column(),
        gpus=column(),
        length_s=column(),
        level=column(),
        earliest_s=column(),
        slot_s=column(),
        pools=columns(pool_count),
        handicaps_s=np.zeros((rows, pool_count), np.int64),
        group=column(),
        limits=columns(pool_count, LIMITS_MOST),
        amounts=columns(pool_count, LIMITS_MOST),
        all_limits=columns((LIMITS_MOST - 1) * pool_count + 1),
        first_place=column(),
        places=np.zeros(rows, np.int64),
    )
