"""Computes what could ever start on empty nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from planner.snapshot import Node, Pool, Quota, Request, Within


@dataclass(frozen=True, slots=True)
class LargestRequest:
    """It is the largest request of this kind that could ever start: most nodes first, then most GPUs; both 0 if none could."""

    fits: bool
    node_count: int
    gpus_per_node: int  # of whole nodes, each has at least these


def largest_that_fits(pools: Iterable[Pool], request: Request, quotas: Iterable[Quota] = ()) -> LargestRequest:
    """Counts quotas and topology, but no boxes and closures. O(nodes log nodes)."""
    wanted = [pool for pool in pools if pool.id in request.pools]
    sizes_of_pools = [
        pool_sizes
        for pool in wanted
        for nodes in _parts(pool, request)
        if (pool_sizes := _PoolSizes.of(pool, nodes, request, quotas)).sizes
    ]
    as_asked = max((pool_sizes.as_asked(request.gpus_per_node) for pool_sizes in sizes_of_pools), default=(0, 0))
    nearest = as_asked if as_asked[0] else max((pool_sizes.fewer_gpus(request.node_count) for pool_sizes in sizes_of_pools), default=(0, 0))
    return LargestRequest(0 < request.node_count <= as_asked[0] and request.gpus_per_node >= 0, *nearest)


def _parts(pool: Pool, request: Request) -> Iterable[list[Node]]:
    # A booking does not order nodes.
    missing = pool.supply.unordered if pool.supply is not None and request.is_fixed else frozenset()
    nodes = [node for node in pool.nodes if node.id not in missing]
    if request.within == Within.ANY or request.node_count == 1:
        return [nodes]
    parts: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        parts[node.rack if request.within == Within.RACK else node.nvlink_domain].append(node)
    alone = [[node] for node in parts.pop("", [])]
    return [*parts.values(), *alone]


@dataclass(frozen=True, slots=True)
class _PoolSizes:
    sizes: tuple[int, ...]  # GPUs of the nodes of a pool, most first
    most: int | None  # that the request may hold at once; None: no limit

    @classmethod
    def of(cls, pool: Pool, nodes: Iterable[Node], request: Request, quotas: Iterable[Quota]) -> _PoolSizes:
        sizes = sorted((node.gpu_count for node in nodes if node.gpu_count > 0), reverse=True)
        owners = {request.project, request.slice}
        ceilings = (q.most for q in quotas if q.most is not None and q.owner in owners and q.shape == pool.shape)
        return cls(tuple(sizes), min(ceilings, default=None))

    def as_asked(self, gpus_per_node: int) -> tuple[int, int]:
        """Return (nodes, GPUs on each). Below a quota whole nodes count as the largest."""
        count = sum(size >= gpus_per_node for size in self.sizes)
        if self.most is not None:
            count = min(count, self.most // (max(gpus_per_node, 0) or self.sizes[0]))
        return (count, gpus_per_node if gpus_per_node > 0 else self.sizes[count - 1]) if count else (0, 0)

    def fewer_gpus(self, node_count: int) -> tuple[int, int]:
        count = min(node_count, len(self.sizes), *([] if self.most is None else [self.most]))
        if count < 1:
            return 0, 0
        return count, self.sizes[count - 1] if self.most is None else min(self.sizes[count - 1], self.most // count)
