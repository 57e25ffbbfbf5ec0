"""What could ever start: the planner's NEVER_FITS, and what a request is told before it is submitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpr.planner.snapshot import Pool, Request


@dataclass(frozen=True, slots=True)
class Most:
    """The most that the pools of a request could ever hold. `node_count`: with its GPUs on each; `gpus_per_node`: on its nodes,
    or on all there are where it wants more. Both 0: it has no pool with GPUs.
    """

    fits: bool
    node_count: int
    gpus_per_node: int


def most_that_fits(pools: Iterable[Pool], request: Request) -> Most:
    """As if every pool were empty and open. A box stands in one pool. O(nodes log nodes); never fails."""
    sizes = [_sizes(pool) for pool in pools if pool.id in request.pools]
    node_count = max((_node_count(of_pool, request.gpus_per_node) for of_pool in sizes), default=0)
    gpus_per_node = max((of_pool[max(1, min(request.node_count, len(of_pool))) - 1] for of_pool in sizes if of_pool), default=0)
    return Most(0 < request.node_count <= node_count and request.gpus_per_node >= 0, node_count, gpus_per_node)


def _sizes(pool: Pool) -> list[int]:
    return sorted((node.gpu_count for node in pool.nodes if node.gpu_count > 0), reverse=True)


def _node_count(sizes: list[int], gpus_per_node: int) -> int:
    return sum(size >= gpus_per_node for size in sizes)
