"""What could ever start: the planner's NEVER_FITS, and what a request is told before it is submitted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from planner.snapshot import Node, Pool, Quota, Request, Within


@dataclass(frozen=True, slots=True)
class Most:
    """The most of its kind that could ever start: so many nodes, with so many GPUs on each; of whole nodes, each has at least these.

    As many nodes as could have the GPUs that are asked for; where none could, the GPUs that as many nodes as are asked for could have.
    Both 0: it has no pool with GPUs, or may hold none there.
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
    as_asked = max((room.as_asked(request.gpus_per_node) for room in rooms), default=(0, 0))
    nearest = as_asked if as_asked[0] else max((room.fewer_gpus(request.node_count) for room in rooms), default=(0, 0))
    return Most(0 < request.node_count <= as_asked[0] and request.gpus_per_node >= 0, *nearest)


def _parts(pool: Pool, request: Request) -> Iterable[list[Node]]:
    """Sets of nodes, all of a box on one of them. For a booking nobody orders any."""
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

    def as_asked(self, gpus_per_node: int) -> tuple[int, int]:
        """How many nodes with so many GPUs on each. 0: whole nodes, of which each counts as the largest below a limit."""
        count = sum(size >= gpus_per_node for size in self.sizes)
        if self.most is not None:
            count = min(count, self.most // (max(gpus_per_node, 0) or self.sizes[0]))
        return (count, gpus_per_node if gpus_per_node > 0 else self.sizes[count - 1]) if count else (0, 0)

    def fewer_gpus(self, node_count: int) -> tuple[int, int]:
        """How many GPUs on each of so many nodes, or of all that it may have."""
        count = min(node_count, len(self.sizes), *([] if self.most is None else [self.most]))
        if count < 1:
            return 0, 0
        return count, self.sizes[count - 1] if self.most is None else min(self.sizes[count - 1], self.most // count)
