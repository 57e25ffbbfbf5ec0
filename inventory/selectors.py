"""Has the queries for the inventory that a user may see: the clusters of his slices and what is in them.

The slices app is above this one: queries reach it through relation names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from django.conf import settings
from django.db.models import (
    Case,
    CharField,
    Count,
    Exists,
    F,
    Model,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    Sum,
    TextChoices,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Greatest

from accounts.models import User
from accounts.policy import ObjectKind, Verb, may_all, own_workspace_ids, visible_rows
from core.rest.references import one_by_id, one_by_reference
from core.written_sql import TimeParam
from inventory.models import (
    CheckPolicy,
    Cluster,
    Gpu,
    HubAbsence,
    MaintenanceWindow,
    Node,
    Reservation,
    ReservationState,
    ReservedGpu,
    Supply,
    SupplyOrder,
    SupplyOrderState,
    agent_is_live,
)
from protocol.assignments import Desired, Phase

Row = TypeVar("Row", bound=Model)


class Availability(TextChoices):
    FREE = "free", "A box could start on it now"
    HELD = "held", "Held by a GPR, in whole or in part"
    DRAINING = "draining", "Every box on it has ended, and is being cleared away: not free before that is done"
    UNUSABLE = "unusable", "Not ready, set aside, sick, or its cluster takes nothing new"


HELD = Q(state=ReservationState.HELD)
# The columns of a GPR and of its slice that describe the holder of a node.
NAMED_BY: Final = frozenset({"id", "name", "number", "state"})
# The columns of a reservation that only its agent needs.
FOR_AGENTS: Final = ("gang_count", "namespaces", "entry_steps", "exit_steps", "enter_by_at", "duration_s")


def stays(path: str = "") -> Q:
    """Returns a filter for reservations that neither the hub nor the agent is ending."""
    leaves = [Phase.FAILED, Phase.EXITING, Phase.RELEASED]
    return ~Q(**{f"{path}phase__in": leaves}) & Q(**{f"{path}desired": Desired.PRESENT})


def slice_ids_of(actor: User) -> QuerySet[Any]:
    return own_workspace_ids(actor)


def cluster_ids_of(actor: User) -> QuerySet[Any]:
    return Cluster.objects.filter(slices__in=own_workspace_ids(actor)).values("pk")


def clusters_visible_to(actor: User) -> QuerySet[Cluster]:
    return visible_rows(Cluster.objects.select_related("agent"), actor, Q(pk__in=cluster_ids_of(actor)))


def cluster_for(actor: User, reference: str) -> Cluster:
    return one_by_reference(clusters_visible_to(actor), reference, what="cluster")


def cluster_is_open(cluster: Cluster, now: datetime, *, absence: HubAbsence | None = None) -> bool:
    """Tell whether boxes may start there."""
    if not cluster.is_enabled or cluster.rewound_at is not None:
        return False
    return agent_is_live(getattr(cluster, "agent", None), now, within_s=settings.EGS_AGENT_UNREACHABLE_S, absence=absence)


def cluster_is_silent(cluster: Cluster, now: datetime) -> bool:
    """Tell whether only the agent's silence closes it."""
    agent = getattr(cluster, "agent", None)
    if agent is None or agent.last_sync_at is None or agent.locked_at is not None:
        return False
    is_allowed = cluster.is_enabled and cluster.rewound_at is None
    return is_allowed and not agent_is_live(agent, now, within_s=settings.EGS_AGENT_UNREACHABLE_S)


def nodes_visible_to(actor: User, *, now: datetime) -> QuerySet[Node]:
    """Adds `availability`, `gpus_free` and `held_by` (the reservations that the actor may see)."""
    mine = with_holders(reservations_visible_to(actor).filter(HELD)).annotate(gpu_count=Count("gpus"))
    held_by = Prefetch("reservations", queryset=mine.order_by("starts_at", "pk"), to_attr="held_by")
    return _nodes_in(clusters_visible_to(actor), now).prefetch_related(held_by)


def node_counts(*, now: datetime) -> dict[str, int]:
    nodes: QuerySet[Any] = _nodes_in(Cluster.objects.select_related("agent"), now)
    counts = nodes.order_by().values_list("availability").annotate(n=Count("pk"))
    return dict.fromkeys(Availability.values, 0) | dict(counts)


def _nodes_in(clusters: QuerySet[Cluster], now: datetime) -> QuerySet[Node]:
    cluster_ids = [cluster.pk for cluster in clusters]
    open_ids = [cluster.pk for cluster in clusters if cluster_is_open(cluster, now)]
    held = Reservation.objects.filter(HELD, node=OuterRef("pk"))
    held_gpus = ReservedGpu.objects.filter(HELD, gpu__node=OuterRef("pk")).values("gpu__node").annotate(n=Count("pk")).values("n")
    sick = Gpu.objects.filter(node=OuterRef("pk"), gone_at=None, is_healthy=False)
    rows = Node.objects.filter(gone_at=None, cluster__in=cluster_ids).select_related("cluster")
    rows = rows.annotate(is_held=Exists(held), is_kept=Exists(held.filter(stays())), is_in_maintenance=Exists(_closing(now, node="pk")))
    is_usable = Q(is_ready=True, cordoned_at=None, cluster__in=open_ids, is_in_maintenance=False) & ~Exists(sick)
    rows = rows.annotate(
        is_usable=Case(When(is_usable, then=Value(True)), default=Value(False)),
        held_gpus=Coalesce(Subquery(held_gpus), 0),
    )
    return rows.annotate(
        availability=_availability(),
        gpus_free=Case(When(is_usable=True, then=Greatest(F("gpu_count") - F("held_gpus"), 0)), default=Value(0)),
    )


def shapes_known() -> set[str]:
    """Includes the shapes of nodes that are gone or can be ordered."""
    return {*Node.objects.values_list("shape", flat=True).distinct(), *Supply.objects.values_list("shape", flat=True).distinct()}


def gpus_of_shape(shape: str) -> int:
    return int(Node.objects.filter(shape=shape, gone_at=None).aggregate(n=Sum("gpu_count"))["n"] or 0)


def nodes_known_to(actor: User) -> QuerySet[Node]:
    return visible_rows(Node.objects.select_related("cluster"), actor, Q(cluster__in=cluster_ids_of(actor)))


def node_for(actor: User, reference: str, *, now: datetime) -> Node:
    """Finds a node by id, or by name if only one cluster uses the name."""
    return one_by_reference(nodes_visible_to(actor, now=now), reference, what="node")


def node_known_to(actor: User, reference: str) -> Node:
    """Finds the node as `node_for`, without what is shown of it."""
    return one_by_reference(nodes_known_to(actor).filter(gone_at=None), reference, what="node")


def gpus_visible_to(actor: User, *, now: datetime) -> QuerySet[Gpu]:
    """Adds `availability`, `held_by` (the reservation that the actor may see) and `hardware_known` (the driver's UUID, or empty)."""
    clusters = list(clusters_visible_to(actor))
    open_ids = [cluster.pk for cluster in clusters if cluster_is_open(cluster, now)]
    rows = Gpu.objects.filter(gone_at=None, node__gone_at=None, node__cluster__in=[cluster.pk for cluster in clusters])
    sick = Gpu.objects.filter(node=OuterRef("node"), gone_at=None, is_healthy=False)
    is_ready = Q(node__is_ready=True, node__cordoned_at=None, node__cluster__in=open_ids)
    is_usable = is_ready & ~Exists(sick) & ~Exists(_closing(now, node="node", cluster="node__cluster"))
    # If boxes share a node, EGS does not know which box has which GPU.
    whole = reservations_visible_to(actor).filter(HELD, node=OuterRef("node")).alias(n=Count("gpus")).filter(n=F("node__gpu_count"))
    known = (
        F("hardware_uuid")
        if may_all(actor, Verb.INSPECT, ObjectKind.GPU)
        else Case(When(Exists(whole), then=F("hardware_uuid")), default=Value(""))
    )
    mine = with_holders(ReservedGpu.objects.filter(HELD, reservation__in=reservations_visible_to(actor)), path="reservation__")
    return (
        rows.select_related("node__cluster")
        .annotate(
            is_held=Exists(ReservedGpu.objects.filter(HELD, gpu=OuterRef("pk"))),
            is_kept=Exists(ReservedGpu.objects.filter(HELD, stays("reservation__"), gpu=OuterRef("pk"))),
            is_usable=Case(When(is_usable, then=Value(True)), default=Value(False)),
            hardware_known=known,
        )
        .annotate(availability=_availability())
        .prefetch_related(Prefetch("reserved", queryset=mine, to_attr="held_by"))
    )


def maintenance_visible_to(actor: User) -> QuerySet[MaintenanceWindow]:
    rows = MaintenanceWindow.objects.select_related("cluster", "node")
    return visible_rows(rows, actor, Q(cluster__in=cluster_ids_of(actor)))


def maintenance_for(actor: User, window_id: str | UUID) -> MaintenanceWindow:
    return one_by_id(maintenance_visible_to(actor), window_id, what="maintenance")


def supply_for(actor: User, reference: str) -> Supply:
    return one_by_reference(supplies_known_to(actor), reference, what="supply")


def supplies_known_to(actor: User) -> QuerySet[Supply]:
    """Adds the counts of nodes that are ordered, that have arrived and that can still be ordered."""
    rows: QuerySet[Any] = Supply.objects.select_related("cluster").annotate(
        open_count=Count("orders", distinct=True, filter=Q(orders__state=SupplyOrderState.ORDERED)),
        arrived_count=Count("orders__node", distinct=True, filter=Q(orders__state=SupplyOrderState.ARRIVED, orders__node__gone_at=None)),
    )
    rows = rows.annotate(possible_count=Greatest(F("node_count") - F("open_count") - F("arrived_count"), 0))
    return visible_rows(rows, actor)


def supply_orders_known_to(actor: User) -> QuerySet[SupplyOrder]:
    rows = SupplyOrder.objects.select_related("supply__cluster", "gpr__slice", "node", "ended_by")
    return visible_rows(rows, actor)


def supply_order_for(actor: User, order_id: str | UUID) -> SupplyOrder:
    return one_by_id(supply_orders_known_to(actor), order_id, what="order")


def check_policies_known_to(actor: User) -> QuerySet[CheckPolicy]:
    return visible_rows(CheckPolicy.objects.select_related("cluster"), actor)


def check_policy_for(actor: User, policy_id: str | UUID) -> CheckPolicy:
    return one_by_id(check_policies_known_to(actor), policy_id, what="check policy")


def maintenance_ahead(now: datetime | TimeParam) -> QuerySet[MaintenanceWindow]:
    return MaintenanceWindow.objects.filter(canceled_at=None, ends_at__gt=now).order_by("starts_at", "pk")


def maintenance_over(nodes: Iterable[Node], *, starts_at: datetime, ends_at: datetime) -> QuerySet[MaintenanceWindow]:
    """Windows that overlap `[starts_at, ends_at)` on one of these nodes."""
    nodes = list(nodes)
    is_theirs = Q(node__in=nodes) | Q(node=None, cluster__in={node.cluster_id for node in nodes})
    return MaintenanceWindow.objects.filter(is_theirs, canceled_at=None, starts_at__lt=ends_at, ends_at__gt=starts_at).order_by("starts_at")


def boxes_reaching_into(windows: Sequence[MaintenanceWindow], *, now: datetime) -> dict[UUID, list[Reservation]]:
    """Returns held reservations that overlap each window, overdue ones included: one per GPR, the latest end first."""
    rows = Reservation.objects.filter(HELD, cluster__in={window.cluster_id for window in windows})
    held = list(rows.select_related("gpr", "slice", "node").order_by("-ends_at", "node__name", "pk"))
    found: dict[UUID, list[Reservation]] = {}
    for window in windows:
        first: dict[UUID, Reservation] = {}
        for row in held:
            if _reaches(row, window, now):
                first.setdefault(row.gpr_id, row)
        found[window.pk] = list(first.values())
    return found


def _reaches(row: Reservation, window: MaintenanceWindow, now: datetime) -> bool:
    is_there = row.node_id == window.node_id if window.node_id else row.cluster_id == window.cluster_id
    return is_there and row.starts_at < window.ends_at and max(row.ends_at, now) > window.starts_at


def _closing(now: datetime, *, node: str, cluster: str = "cluster") -> QuerySet[MaintenanceWindow]:
    is_its = Q(node=OuterRef(node)) | Q(node=None, cluster=OuterRef(cluster))
    return MaintenanceWindow.objects.filter(is_its, canceled_at=None, starts_at__lte=now, ends_at__gt=now)


def reservations_visible_to(actor: User) -> QuerySet[Reservation]:
    return visible_rows(Reservation.objects.all(), actor, Q(slice__in=slice_ids_of(actor)))


def with_holders(rows: QuerySet[Row], *, path: str = "") -> QuerySet[Row]:
    """Loads only what describes the GPR and the slice, and nothing that only agents need."""
    unread = [f"{path}{name}" for name in FOR_AGENTS]
    for holder in ("gpr", "slice"):
        model: Any = Reservation._meta.get_field(holder).related_model
        unread += [f"{path}{holder}__{field.name}" for field in model._meta.concrete_fields if field.name not in NAMED_BY]
    return rows.select_related(f"{path}gpr", f"{path}slice").defer(*unread)


def schedule_visible_to(actor: User) -> QuerySet[Reservation]:
    """`is_own` marks rows in full detail. A member does not see the past of other slices."""
    rows = with_holders(Reservation.objects.select_related("node", "cluster"))
    if may_all(actor, Verb.SEE, ObjectKind.RESERVATION):
        return rows.annotate(is_own=Value(True))
    own = Q(slice__in=slice_ids_of(actor))
    rows = rows.annotate(is_own=Case(When(own, then=Value(True)), default=Value(False)))
    busy = Q(cluster__in=cluster_ids_of(actor), node__gone_at=None) & ~Q(state=ReservationState.RELEASED)
    return rows.filter(own | busy)


@dataclass(slots=True)
class ShapeInCluster:
    id: UUID
    name: str
    node_types: list[str]
    rdma: bool = False
    gpus_per_node: int = 0
    nodes: int = 0
    nodes_free: int = 0
    gpus: int = 0
    gpus_free: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    gpu_memory_gib: int
    clusters: list[ShapeInCluster]

    @property
    def id(self) -> str:
        return self.name


def shapes_visible_to(actor: User, *, now: datetime) -> list[Shape]:
    """Returns the shapes that the clusters and policy of one of the actor's slices allow."""
    made: dict[str, dict[UUID, ShapeInCluster]] = defaultdict(dict)
    memory: dict[str, int] = {}
    is_allowed = _allowed_shapes(actor)
    for node in nodes_visible_to(actor, now=now).filter(gpu_count__gt=0).prefetch_related(None).order_by("shape", "cluster__name"):
        if not is_allowed(node.cluster_id, node.shape):
            continue
        memory[node.shape] = min(node.gpu_memory_gib, memory.get(node.shape, node.gpu_memory_gib))
        there = made[node.shape].setdefault(node.cluster_id, ShapeInCluster(node.cluster_id, node.cluster.name, []))
        _count_in(there, node)
    return [Shape(name, memory[name], list(clusters.values())) for name, clusters in made.items()]


def _count_in(there: ShapeInCluster, node: Any) -> None:
    there.nodes += 1
    there.gpus += node.gpu_count
    there.gpus_free += node.gpus_free
    there.nodes_free += node.availability == Availability.FREE
    there.gpus_per_node = max(there.gpus_per_node, node.gpu_count)
    there.rdma = there.rdma or node.rdma
    if node.node_type and node.node_type not in there.node_types:
        there.node_types.append(node.node_type)


def _allowed_shapes(actor: User) -> Any:
    if may_all(actor, Verb.SEE, ObjectKind.NODE):
        return lambda cluster_id, shape: True
    allowed: dict[UUID, list[list[str]]] = defaultdict(list)
    rows = Cluster.objects.filter(slices__in=own_workspace_ids(actor))
    for cluster_id, shapes in rows.values_list("pk", "slices__shapes"):
        allowed[cluster_id].append(shapes)
    return lambda cluster_id, shape: any(not shapes or shape in shapes for shapes in allowed[cluster_id])


def _availability() -> Case:
    return Case(
        When(is_kept=True, then=Value(Availability.HELD.value)),
        When(is_held=True, then=Value(Availability.DRAINING.value)),
        When(is_usable=True, then=Value(Availability.FREE.value)),
        default=Value(Availability.UNUSABLE.value),
        output_field=CharField(),
    )
