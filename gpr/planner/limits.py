"""What could ever start: the planner's NEVER_FITS, and what a request is told before it is submitted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gpr.planner.snapshot import Node, Pool, Quota, Request, Within


@dataclass(frozen=True, slots=True)
class Most:
    """The most that the pools of a request could ever hold. `node_count`: with its GPUs on each; `gpus_per_node`: on its nodes,
    or on all there are where it wants more. Both 0: it has no pool with GPUs.
    """

    fits: bool
    node_count: int
    gpus_per_node: int


def most_that_fits(pools: Iterable[Pool], request: Request, quotas: Iterable[Quota] = ()) -> Most:
    """As if every pool were empty and open. A box stands in one pool, or in one part of it if it wants that, and below the ceilings of its
    slice and its project.

    O(nodes log nodes); never fails.
    """
    wanted = [pool for pool in pools if pool.id in request.pools]
    rooms = [room for pool in wanted for nodes in _parts(pool, request) if (room := _Room.of(pool, nodes, request, quotas)).sizes]
    node_count = max((room.node_count(request.gpus_per_node) for room in rooms), default=0)
    gpus_per_node = max((room.gpus_per_node(request.node_count) for room in rooms), default=0)
    return Most(0 < request.node_count <= node_count and request.gpus_per_node >= 0, node_count, gpus_per_node)


def _parts(pool: Pool, request: Request) -> Iterable[list[Node]]:
    """Sets of nodes, all of a box on one of them."""
    if request.within == Within.ANY or request.node_count == 1:
        return [list(pool.nodes)]
    parts: dict[str, list[Node]] = defaultdict(list)
    for node in pool.nodes:
        parts[node.rack if request.within == Within.RACK else node.nvlink_domain].append(node)
    alone = [[node] for node in parts.pop("", [])]
    return [*parts.values(), *alone]


@dataclass(frozen=True, slots=True)
class _Room:
    """GPUs of the nodes of a pool, most first, and how many the request may hold at once; None: no limit."""

    sizes: tuple[int, ...]
    most: int | None

    @classmethod
    def of(cls, pool: Pool, nodes: Iterable[Node], request: Request, quotas: Iterable[Quota]) -> _Room:
        sizes = sorted((node.gpu_count for node in nodes if node.gpu_count > 0), reverse=True)
        owners = {request.project, request.slice}
        ceilings = (q.most for q in quotas if q.most is not None and q.owner in owners and q.shape == pool.shape)
        return cls(tuple(sizes), min(ceilings, default=None))

    def node_count(self, gpus_per_node: int) -> int:
        """Of whole nodes each counts as the largest."""
        count = sum(size >= gpus_per_node for size in self.sizes)
        return count if self.most is None else min(count, self.most // (max(gpus_per_node, 0) or self.sizes[0]))

    def gpus_per_node(self, node_count: int) -> int:
        count = max(1, min(node_count, len(self.sizes)))
        return self.sizes[count - 1] if self.most is None else min(self.sizes[count - 1], self.most // count)
