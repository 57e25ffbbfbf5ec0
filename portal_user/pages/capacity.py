"""Shows total and free nodes, grouped by kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count

from accounts.models import User
from core.pages import words
from core.pages.parts import Fact
from inventory.models import Supply
from inventory.selectors import Availability, nodes_visible_to
from slices.models import Slice


@dataclass(frozen=True, slots=True)
class Stock:
    """Counts nodes of one kind in one cluster."""

    cluster: str
    shape: str
    memory_gib: int
    gpus_per_node: int
    node_type: str
    rdma: bool
    node_count: int
    free_count: int


@dataclass(frozen=True, slots=True)
class ShapeStock:
    """Sums a shape over all clusters."""

    shape: str
    memory_gib: int
    gpus_per_node: int
    node_count: int
    free_count: int

    @property
    def free_text(self) -> str:
        return f"{words.plural(self.free_count, 'node')} free"


def stock_for(actor: User, *, now: datetime, slice_: Slice | None = None) -> list[Stock]:
    """With a slice it returns nodes that its clusters and policy allow, including kinds that it can only order. Runs two queries."""
    nodes: Any = nodes_visible_to(actor, now=now).filter(gpu_count__gt=0).prefetch_related(None)
    if slice_ is not None:
        nodes = nodes.filter(cluster__slices=slice_)
        nodes = nodes.filter(shape__in=slice_.shapes) if slice_.shapes else nodes
    kinds = ("cluster__name", "shape", "gpu_memory_gib", "gpu_count", "node_type", "rdma")
    counts: dict[tuple[Any, ...], dict[str, int]] = {}
    for *kind, availability, count in nodes.order_by(*kinds).values_list(*kinds, "availability").annotate(n=Count("pk")):
        counts.setdefault(tuple(kind), {})[availability] = count
    there = [
        Stock(cluster, shape, memory_gib, gpu_count, node_type, rdma, sum(found.values()), found.get(Availability.FREE, 0))
        for (cluster, shape, memory_gib, gpu_count, node_type, rdma), found in counts.items()
    ]
    known = {(kind.cluster, kind.shape) for kind in there}
    return there + [kind for kind in _to_order(slice_) if (kind.cluster, kind.shape) not in known]


def _to_order(slice_: Slice | None) -> list[Stock]:
    if slice_ is None or not slice_.may_order:
        return []
    supplies = Supply.objects.filter(cluster__in=slice_.clusters.all(), is_enabled=True).select_related("cluster")
    rows = supplies.filter(shape__in=slice_.shapes) if slice_.shapes else supplies
    return [Stock(s.cluster.name, s.shape, s.gpu_memory_gib, s.gpus_per_node, "", False, 0, 0) for s in rows]


def shapes_in(stock: Iterable[Stock]) -> list[ShapeStock]:
    by_shape: dict[str, list[Stock]] = {}
    for kind in stock:
        by_shape.setdefault(kind.shape, []).append(kind)
    return [
        ShapeStock(
            shape=shape,
            memory_gib=min(kind.memory_gib for kind in kinds),
            gpus_per_node=max(kind.gpus_per_node for kind in kinds),
            node_count=sum(kind.node_count for kind in kinds),
            free_count=sum(kind.free_count for kind in kinds),
        )
        for shape, kinds in by_shape.items()
    ]


def capacity_facts(shapes: Sequence[ShapeStock], *, most: int = 4) -> list[Fact]:
    """Shows the shapes with the most nodes."""
    shown = sorted(shapes, key=lambda shape: (-shape.node_count, shape.shape))[:most]
    return [
        Fact(
            f"{'Free now: ' if number == 0 else ''}{shape.shape}",
            words.number(shape.free_count),
            f"of {words.plural(shape.node_count, 'node')}",
        )
        for number, shape in enumerate(shown)
    ]
