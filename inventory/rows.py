"""Reads narrow rows for plans over thousands of nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from core.written_sql import TimeParam, WrittenQuery
from inventory.models import Cluster, Gpu, Node, ReservedGpu
from inventory.selectors import maintenance_ahead

# Only the columns that decide whether anything may start there.
CLUSTERS: Final = Cluster.objects.select_related("agent").only(
    "name", "is_enabled", "rewound_at", "node_failed_at", "agent__last_sync_at", "agent__locked_at"
)
CLUSTERS_THERE: Final = WrittenQuery(CLUSTERS)


class InventoryNode(NamedTuple):
    pk: UUID
    name: str
    cluster_id: UUID
    shape: str
    node_type: str
    gpu_memory_gib: int
    rdma: bool
    gpu_count: int
    zone: str
    rack: str
    nvlink_domain: str
    is_ready: bool
    is_cordoned: bool
    has_sick_gpu: bool

    @property
    def is_usable(self) -> bool:
        return self.is_ready and not self.is_cordoned and not self.has_sick_gpu


class WindowRow(NamedTuple):
    pk: UUID
    cluster_id: UUID
    node_id: UUID | None
    starts_at: datetime
    ends_at: datetime


_GPUS_OF: Final = WrittenQuery(ReservedGpu.objects.order_by().values_list("reservation", "gpu__uuid"), key="reservation__id")


def gpus_by_reservation(ids: Collection[UUID]) -> Mapping[UUID, Sequence[str]]:
    """Returns the UUIDs of their GPUs, in order."""
    found: dict[UUID, list[str]] = defaultdict(list)
    for reservation_id, uuid in sorted(_GPUS_OF(ids)):
        found[reservation_id].append(uuid)
    return found


_WINDOWS: Final = WrittenQuery(maintenance_ahead(TimeParam("since")).values_list(*WindowRow._fields))


def windows_since(moment: datetime) -> list[WindowRow]:
    """Returns maintenance windows that end later than that."""
    return [WindowRow._make(row) for row in _WINDOWS(since=moment)]


def nodes_there(ids: Collection[UUID] | None) -> list[InventoryNode]:
    """Returns these nodes; for None, all."""
    sick = Gpu.objects.filter(node=OuterRef("pk"), gone_at=None, is_healthy=False)
    there = Node.objects.filter(gone_at=None, gpu_count__gt=0)
    rows = (there if ids is None else there.filter(pk__in=ids)).annotate(
        has_sick_gpu=Exists(sick), is_cordoned=Q(cordoned_at__isnull=False)
    )
    return [InventoryNode._make(row) for row in rows.order_by().values_list(*InventoryNode._fields)]
