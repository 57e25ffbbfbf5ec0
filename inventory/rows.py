"""Narrow rows of clusters and nodes, for plans over thousands of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q

from egs.readable import readable
from inventory.models import Cluster, Gpu, Node, Reservation, ReservationState
from inventory.selectors import maintenance_ahead
from worker_agent.protocol import Phase

# No node has more: what is stored of it makes no sense.
NODE_GPUS_MAX: Final = 10_000
# With its agent, and no more of the two than decides whether anything may start there.
CLUSTERS: Final = Cluster.objects.select_related("agent").only(
    "name", "is_enabled", "rewound_at", "agent__last_sync_at", "agent__locked_at"
)


class NodeRow(NamedTuple):
    """A node that is there. `is_sound`: whoever starts a box on it can read what is stored of it, and who holds it."""

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
    is_ready: bool
    is_cordoned: bool
    has_sick_gpu: bool
    is_sound: bool

    @property
    def is_usable(self) -> bool:
        """May something new start on it?"""
        return self.is_ready and not self.is_cordoned and not self.has_sick_gpu and self.is_sound


# As nodes are read; and times that decide nothing here, but must be readable to whoever locks the node.
_NODE_FIELDS: Final = tuple(name for name in NodeRow._fields if name != "is_sound")
_NODE_TIMES: Final = ("broken_at", "sick_gpus_at")


class WindowRow(NamedTuple):
    """Of a maintenance that is announced. A time that cannot be read is None."""

    pk: UUID
    cluster_id: UUID
    node_id: UUID | None
    starts_at: datetime | None
    ends_at: datetime | None


def clusters_there() -> tuple[dict[UUID, Cluster], list[UUID]]:
    """All by id, and the ids of those whose rows cannot be read: these are as if they were disabled."""
    found, lost = readable(CLUSTERS.all())
    named = Cluster.objects.filter(pk__in=lost).values_list("pk", "name") if lost else ()
    found += [Cluster(pk=pk, name=name, is_enabled=False) for pk, name in named]
    return {cluster.pk: cluster for cluster in found}, lost


def clusters_failed() -> list[tuple[str, datetime]]:
    """By name, those of which a node has failed, and when the last did. Without those of which that cannot be read."""
    found, _ = readable(Cluster.objects.filter(node_failed_at__isnull=False).order_by("name").values_list("name", "node_failed_at"))
    return found


def windows_ahead(now: datetime) -> list[WindowRow]:
    """What closes something now or later."""
    ahead = maintenance_ahead(now)
    found, lost = readable(ahead.values_list(*WindowRow._fields))
    rows = [WindowRow._make(row) for row in found]
    if lost:
        starts = dict(readable(ahead.filter(pk__in=lost).values_list("pk", "starts_at"))[0])
        places = ahead.filter(pk__in=lost).values_list("pk", "cluster_id", "node_id")
        rows += [WindowRow(pk, cluster_id, node_id, starts.get(pk), None) for pk, cluster_id, node_id in places]
    return rows


def nodes_there(clusters: Iterable[UUID]) -> list[NodeRow]:
    """With GPUs that can be counted with, in the order in which equals are chosen; those that cannot be read last."""
    sick = Gpu.objects.filter(node=OuterRef("pk"), gone_at=None, is_healthy=False)
    rows = Node.objects.filter(gone_at=None, gpu_count__gt=0, gpu_count__lte=NODE_GPUS_MAX, cluster__in=list(clusters))
    rows = rows.annotate(has_sick_gpu=Exists(sick), is_cordoned=Q(cordoned_at__isnull=False))
    rows, held = rows.order_by("name", "pk"), _held_unreadably()
    found, lost = readable(rows.values_list(*_NODE_FIELDS, *_NODE_TIMES))
    nodes = [NodeRow._make((*row[: len(_NODE_FIELDS)], row[0] not in held)) for row in found]
    if lost:
        nodes += [NodeRow._make((*row, False)) for row in rows.filter(pk__in=lost).values_list(*_NODE_FIELDS)]
    return nodes


def _held_unreadably() -> set[UUID]:
    """Nodes with a reservation in a state that is none, which its agent has not let go: nobody knows whether they are free."""
    told = Reservation.objects.exclude(phase=Phase.RELEASED).order_by()  # few, by an index
    return set(told.exclude(state__in=ReservationState.values).values_list("node_id", flat=True))
