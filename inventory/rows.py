"""Narrow rows of nodes, for plans over thousands of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef

from inventory.models import Gpu, Node


class NodeRow(NamedTuple):
    """A node that is there."""

    pk: UUID
    cluster_id: UUID
    shape: str
    node_type: str
    gpu_memory_gib: int
    rdma: bool
    gpu_count: int
    zone: str
    rack: str
    nvlink_domain: str
    gone_at: datetime | None
    is_ready: bool
    cordoned_at: datetime | None
    has_sick_gpu: bool


def nodes_there(clusters: Iterable[UUID]) -> list[NodeRow]:
    """With GPUs, in the order in which equals are chosen."""
    sick = Gpu.objects.filter(node=OuterRef("pk"), gone_at=None, is_healthy=False)
    rows = Node.objects.filter(gone_at=None, gpu_count__gt=0, cluster__in=list(clusters)).annotate(has_sick_gpu=Exists(sick))
    return [NodeRow._make(row) for row in rows.order_by("name", "pk").values_list(*NodeRow._fields)]
