"""Nodes and GPUs: kept current by the agents, set aside by administrators and by failed checks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction

from accounts.models import User
from egs.errors import Conflict, InvalidInput
from egs.words import are, plural
from inventory.models import Cluster, Gpu, Node, SupplyKind
from inventory.services.supplies import Arrival, orders_fulfil
from journal.hints import TICK, hint
from journal.models import Severity
from journal.services import event_record
from worker_agent.protocol import GpuView, NodeView

NODE_FIELDS = [
    "name",
    "shape",
    "node_type",
    "gpu_count",
    "gpu_memory_gib",
    "rdma",
    "zone",
    "rack",
    "nvlink_domain",
    "is_ready",
    "broken_at",
    "sick_gpus_at",
    "seen_at",
    "gone_at",
]


@transaction.atomic
def inventory_store(*, cluster: Cluster, nodes: Sequence[NodeView], now: datetime) -> None:
    """Make the cluster's nodes and GPUs what the agent sees: the whole of it, so whatever is not in it is gone.

    Raises InvalidInput when it names a node, or a GPU of one, twice.
    """
    _refuse_twins(nodes)
    known = {node.uid: node for node in Node.objects.select_for_update().filter(cluster=cluster).order_by("pk")}
    # Nodes that left make room for the names of those that came.
    seen = {view.uid for view in nodes}
    _mark_gone(cluster, [node for node in known.values() if node.uid not in seen and node.gone_at is None], now)
    _make_way(known, nodes)
    healthy = _healthy_counts(known.values())
    empty = {node.pk for node in known.values() if node.gpu_count == 0}
    had: dict[UUID, set[str]] = defaultdict(set)
    for node_id, uuid in Gpu.objects.filter(node__in=empty).values_list("node", "uuid") if empty else ():
        had[node_id].add(uuid)
    arrivals: list[Arrival] = []
    for view in nodes:
        old = known.get(view.uid)
        before = (old.is_ready, old.gone_at) if old else None
        kind = (old.shape, old.gpu_count) if old else None
        node = _apply(old or Node(cluster=cluster, uid=view.uid), view, now)
        _gpus_apply(node, view.gpus, now)
        # Its GPUs and labels may come in several reports: until it is used it may still become what was ordered.
        is_new = old is None or node.pk in empty or (node.epoch == 0 and kind != (node.shape, node.gpu_count))
        # GPUs that only come back were not ordered; a node may be there before its GPUs are.
        if view.gpus and is_new and had[node.pk].isdisjoint(gpu.uuid for gpu in view.gpus):
            kinds = (SupplyKind.ATTACH,) if had[node.pk] else tuple(SupplyKind)
            arrivals.append(Arrival(node, kinds, view.order, view.supply))
        if before != (node.is_ready, None):
            _tell_node(cluster, node, is_new=before is None, now=now)
        elif old is not None:
            _tell_gpus(node, had=healthy[node.pk], has=sum(gpu.healthy for gpu in view.gpus), now=now)
    orders_fulfil(cluster=cluster, arrivals=arrivals, now=now)
    hint(TICK)


@transaction.atomic
def node_cordon(*, node: Node, actor: User | None, why: str, now: datetime) -> None:
    """Nothing new starts on it; what runs, runs to its end. Raises Conflict when it is set aside already."""
    if not Node.objects.filter(pk=node.pk, cordoned_at=None).update(cordoned_at=now, cordon_reason=why[:200]):
        raise Conflict("This node is set aside already.")
    _tell(node, "node.cordoned", f"Node {node.name} was set aside: {why}", Severity.WARNING, actor, now)


def node_set_aside(*, node: Node, why: str, now: datetime) -> None:
    """As `node_cordon`, by EGS itself: no complaint when it is so already."""
    try:
        with transaction.atomic():
            node_cordon(node=node, actor=None, why=why, now=now)
    except Conflict:
        return


@transaction.atomic
def node_uncordon(*, node: Node, actor: User, now: datetime) -> None:
    if not Node.objects.filter(pk=node.pk, cordoned_at__isnull=False).update(cordoned_at=None, cordon_reason=""):
        raise Conflict("This node is not set aside.")
    _tell(node, "node.uncordoned", f"Node {node.name} is usable again.", Severity.INFO, actor, now)


def _refuse_twins(nodes: Sequence[NodeView]) -> None:
    lists = [[view.uid for view in nodes], [view.name for view in nodes], *([gpu.uuid for gpu in view.gpus] for view in nodes)]
    if any(len(set(names)) < len(names) for names in lists):
        raise InvalidInput({"nodes": ["Each node is named once, and each GPU of it once."]})


def _apply(node: Node, view: NodeView, now: datetime) -> Node:
    node.name, node.shape, node.node_type = view.name, view.shape, view.node_type
    node.gpu_count = len(view.gpus)
    node.gpu_memory_gib = min((gpu.memory_gib for gpu in view.gpus), default=0)
    node.rdma, node.zone, node.rack, node.nvlink_domain = view.rdma, view.zone, view.rack, view.nvlink_domain
    node.is_ready, node.seen_at, node.gone_at = view.ready, now, None
    node.broken_at = (node.broken_at or now) if view.broken else None
    is_sick = any(not gpu.healthy for gpu in view.gpus)
    node.sick_gpus_at = (node.sick_gpus_at or now) if is_sick else None
    if node._state.adding:
        node.save(force_insert=True)
    else:
        # Never the epoch or the cordon: others write those.
        node.save(update_fields=NODE_FIELDS)
    return node


def _gpus_apply(node: Node, views: Sequence[GpuView], now: datetime) -> None:
    Gpu.objects.filter(node=node, gone_at=None).exclude(uuid__in=[view.uuid for view in views]).update(gone_at=now)
    Gpu.objects.bulk_create(
        [
            Gpu(node=node, uuid=view.uuid, index=view.index, model=view.model, memory_gib=view.memory_gib, is_healthy=view.healthy)
            for view in views
        ],
        update_conflicts=True,
        unique_fields=["node", "uuid"],
        update_fields=["index", "model", "memory_gib", "is_healthy", "gone_at"],
    )


def _mark_gone(cluster: Cluster, nodes: Sequence[Node], now: datetime) -> None:
    for node in nodes:
        Node.objects.filter(pk=node.pk).update(gone_at=now, is_ready=False)
        _tell(node, "node.gone", f"Node {node.name} is gone from cluster {cluster.name}.", Severity.WARNING, None, now)


def _make_way(known: Mapping[str, Node], views: Sequence[NodeView]) -> None:
    """Nodes may have exchanged names: whoever changes his steps aside first, so that no two bear one for a moment."""
    changing = [known[view.uid].pk for view in views if view.uid in known and known[view.uid].name != view.name]
    for pk in changing:
        Node.objects.filter(pk=pk).update(name=f"renamed {pk}")


def _healthy_counts(nodes: Iterable[Node]) -> Counter[UUID]:
    rows = Gpu.objects.filter(node__in=[node.pk for node in nodes], gone_at=None, is_healthy=True)
    return Counter(rows.values_list("node", flat=True))


def _tell_gpus(node: Node, *, had: int, has: int, now: datetime) -> None:
    if has < had:
        lost = had - has
        text = f"{plural(lost, 'GPU')} of node {node.name} {are(lost)} sick or gone; nothing new starts on it until all are well."
        _tell(node, "node.gpus_lost", text, Severity.WARNING, None, now)
    elif has > had:
        text = f"{plural(has - had, 'GPU')} of node {node.name} {are(has - had)} well again."
        _tell(node, "node.gpus_back", text, Severity.INFO, None, now)


def _tell_node(cluster: Cluster, node: Node, *, is_new: bool, now: datetime) -> None:
    if is_new:
        text = f"Node {node.name} joined cluster {cluster.name} with {node.gpu_count} x {node.shape}."
        _tell(node, "node.joined", text, Severity.INFO, None, now)
    elif node.is_ready:
        _tell(node, "node.ready", f"Node {node.name} is ready.", Severity.INFO, None, now)
    else:
        _tell(node, "node.not_ready", f"Node {node.name} is not ready.", Severity.WARNING, None, now)


def _tell(node: Node, kind: str, text: str, severity: Severity, actor: User | None, now: datetime) -> None:
    event_record(kind=kind, message=text, at=now, actor=actor, severity=severity, node_id=node.pk, cluster_id=node.cluster_id)
    hint(TICK)
