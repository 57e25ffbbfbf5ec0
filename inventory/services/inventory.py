"""Stores an agent's full report of a cluster. It writes only differences, equal changes together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from django.db import models, transaction
from django.db.models import F, Q, Value
from django.db.models.functions import Cast, Concat

from core.errors import InvalidInput
from core.rest.output import utc_text
from core.words import are, plural
from inventory.models import Cluster, Gpu, Node, SupplyKind
from inventory.selectors import maintenance_ahead
from inventory.services.supplies import NodeArrival, orders_fulfil
from journal.hints import TICK, hint
from journal.models import Event, Severity
from journal.services import events_record
from protocol.nodes.inventory import GpuView, NodeCondition, NodeView

# Not node.gone: the node may have been removed on purpose.
FAILURES: Final = frozenset({"node.not_ready", "node.gpus_lost"})
GPU_FIELDS: Final = ("index", "model", "memory_gib", "is_healthy", "gone_at", "hardware_uuid")


@transaction.atomic
def inventory_store(*, cluster: Cluster, nodes: Sequence[NodeView], now: datetime) -> None:
    """Nodes and GPUs that the report does not name are marked as gone. Raises InvalidInput when it names one twice."""
    _refuse_twins(nodes)
    seen = {view.uid for view in nodes}
    known = {node.uid: node for node in _lock_known(cluster, seen)}
    gpus = _gpus_of(known.values())
    # First, since new nodes may reuse the names of nodes that are gone.
    gone = [node for node in known.values() if node.uid not in seen]
    Node.objects.filter(pk__in=[node.pk for node in gone]).update(gone_at=now, is_ready=False)
    reports = [_NodeReport.of(view, known.get(view.uid), gpus, now, cluster) for view in nodes]
    _nodes_write(reports)
    _conditions_write(reports)
    _gpus_write(reports, gpus, now)
    Node.objects.filter(cluster=cluster, gone_at=None).update(seen_at=now)
    left = (_event(node, "node.gone", f"Node {node.name} is gone from cluster {cluster.name}.", Severity.WARNING, now) for node in gone)
    events = [*left, *(event for report in reports for event in report.events(cluster, now))]
    events_record(events)
    _failure_note(cluster, [event.node_id for event in events if event.node_id and event.kind in FAILURES], now)
    orders_fulfil(cluster=cluster, arrivals=[arrival for report in reports for arrival in report.arrivals()], now=now)
    hint(TICK)


@dataclass(frozen=True, slots=True)
class _NodeReport:
    """Holds a node as reported, beside its state before."""

    view: NodeView
    node: Node  # as it is now
    changes: Mapping[str, Any]  # none for a new one
    was_here: tuple[bool, datetime | None] | None  # (is_ready, gone_at); None: new
    was_kind: tuple[str, int]  # shape and count of GPUs
    had_conditions: Sequence[Mapping[str, Any]]
    had_uuids: frozenset[str]  # of all GPUs it ever had
    had_healthy_count: int
    had_hardware: frozenset[str]  # the driver's UUIDs of its present GPUs

    @classmethod
    def of(cls, view: NodeView, old: Node | None, gpus: Mapping[UUID, Mapping[str, Gpu]], now: datetime, cluster: Cluster) -> _NodeReport:
        node = old or Node(cluster=cluster, uid=view.uid, seen_at=now, shape="", gpu_count=0)
        was_here = (old.is_ready, old.gone_at) if old else None
        was_kind = (node.shape, node.gpu_count)
        had_conditions, node.conditions = node.conditions, [_condition(each, now) for each in view.conditions]
        changes = {name: value for name, value in _fields_of(view, node, now).items() if value != getattr(node, name)}
        for name, value in changes.items():
            setattr(node, name, value)
        had = gpus.get(node.pk, {})
        healthy_count = sum(gpu.is_healthy and gpu.gone_at is None for gpu in had.values())
        hardware = frozenset(gpu.hardware_uuid for gpu in had.values() if gpu.hardware_uuid and gpu.gone_at is None)
        return cls(view, node, changes if old else {}, was_here, was_kind, had_conditions, frozenset(had), healthy_count, hardware)

    @property
    def is_new(self) -> bool:
        return self.was_here is None

    def arrivals(self) -> Iterable[NodeArrival]:
        """GPUs and labels may come in several reports: until its first use a node may match an order."""
        was_empty = not self.is_new and self.was_kind[1] == 0
        has_become = self.node.epoch == 0 and self.was_kind != (self.node.shape, self.node.gpu_count)
        had = self.had_uuids if was_empty else frozenset[str]()
        # GPUs that return were not ordered. A node may exist before its GPUs do.
        if self.view.gpus and (self.is_new or was_empty or has_become) and had.isdisjoint(gpu.uuid for gpu in self.view.gpus):
            kinds = (SupplyKind.ATTACH,) if had else tuple(SupplyKind)
            yield NodeArrival(self.node, kinds, self.view.order, self.view.supply)

    def events(self, cluster: Cluster, now: datetime) -> Iterable[Event]:
        node, hardware = self.node, {gpu.hardware_uuid for gpu in self.view.gpus if gpu.hardware_uuid}
        if self.had_hardware and hardware and hardware != self.had_hardware:
            yield _replaced_event(node, gone=self.had_hardware - hardware, new=hardware - self.had_hardware, now=now)
        yield from _condition_events(node, self.had_conditions, now)
        if self.is_new:
            text = f"Node {node.name} joined cluster {cluster.name} with {node.gpu_count} x {node.shape}."
            yield _event(node, "node.joined", text, Severity.INFO, now)
        elif self.was_here != (node.is_ready, None):
            if node.is_ready:
                yield _event(node, "node.ready", f"Node {node.name} is ready.", Severity.INFO, now)
            else:
                yield _event(node, "node.not_ready", f"Node {node.name} is not ready.", Severity.WARNING, now)
        else:
            yield from _gpu_events(node, had=self.had_healthy_count, has=sum(gpu.healthy for gpu in self.view.gpus), now=now)


def _lock_known(cluster: Cluster, seen: Set[str]) -> list[Node]:
    return list(Node.objects.select_for_update().filter(Q(gone_at=None) | Q(uid__in=seen), cluster=cluster).order_by("pk"))


def _refuse_twins(nodes: Sequence[NodeView]) -> None:
    lists = [[view.uid for view in nodes], [view.name for view in nodes], *([gpu.uuid for gpu in view.gpus] for view in nodes)]
    if any(len(set(names)) < len(names) for names in lists):
        raise InvalidInput({"nodes": ["Each node is named once, and each GPU of it once."]})


def _gpus_of(nodes: Iterable[Node]) -> dict[UUID, dict[str, Gpu]]:
    """Includes GPUs that are gone."""
    found: dict[UUID, dict[str, Gpu]] = defaultdict(dict)
    for gpu in Gpu.objects.filter(node__in=[node.pk for node in nodes]).order_by():
        found[gpu.node_id][gpu.uuid] = gpu
    return found


def _fields_of(view: NodeView, node: Node, now: datetime) -> dict[str, Any]:
    is_sick = any(not gpu.healthy for gpu in view.gpus)
    return {
        "name": view.name,
        "shape": view.shape,
        "node_type": view.node_type,
        "gpu_count": len(view.gpus),
        "gpu_memory_gib": min((gpu.memory_gib for gpu in view.gpus), default=0),
        "rdma": view.rdma,
        "zone": view.zone,
        "rack": view.rack,
        "nvlink_domain": view.nvlink_domain,
        "is_ready": view.ready,
        "broken_at": (node.broken_at or now) if view.broken else None,
        "sick_gpus_at": (node.sick_gpus_at or now) if is_sick else None,
        "gone_at": None,
    }


def _nodes_write(reports: Sequence[_NodeReport]) -> None:
    """Nodes may have exchanged names, so renamed ones first get a temporary name."""
    alike: dict[tuple[tuple[str, Any], ...], list[UUID]] = defaultdict(list)
    for report in reports:
        if report.changes:
            alike[tuple(report.changes.items())].append(report.node.pk)
    renamed = [report.node.pk for report in reports if "name" in report.changes]
    if renamed:
        aside = Concat(Value("renamed "), Cast(F("pk"), models.CharField()))
        Node.objects.filter(pk__in=renamed).update(name=aside)
    for changes, pks in alike.items():
        Node.objects.filter(pk__in=pks).update(**dict(changes))
    Node.objects.bulk_create([report.node for report in reports if report.is_new])


def _conditions_write(reports: Sequence[_NodeReport]) -> None:
    changed = [report.node for report in reports if not report.is_new and report.node.conditions != report.had_conditions]
    Node.objects.bulk_update(changed, ["conditions"])


def _condition(view: NodeCondition, now: datetime) -> dict[str, Any]:
    """Times ahead of the hub's clock are not kept."""
    since_at = datetime.fromtimestamp(view.since_s, UTC) if view.since_s is not None and view.since_s <= now.timestamp() else None
    told = {"type": view.type, "status": view.status, "reason": view.reason, "message": view.message}
    return {**told, "since_at": utc_text(since_at) if since_at else None}


def _gpus_write(reports: Sequence[_NodeReport], known: Mapping[UUID, Mapping[str, Gpu]], now: datetime) -> None:
    new, gone = [], []
    for report in reports:
        had = known.get(report.node.pk, {})
        new += [gpu for view in report.view.gpus if _differs(gpu := _gpu(report.node, view, had.get(view.uuid)), had.get(gpu.uuid))]
        uuids = {view.uuid for view in report.view.gpus}
        gone += [gpu.pk for gpu in had.values() if gpu.gone_at is None and gpu.uuid not in uuids]
    Gpu.objects.filter(pk__in=gone).update(gone_at=now)
    Gpu.objects.bulk_create(new, update_conflicts=True, unique_fields=["node", "uuid"], update_fields=GPU_FIELDS)


def _gpu(node: Node, view: GpuView, known: Gpu | None) -> Gpu:
    return Gpu(
        node=node,
        uuid=view.uuid,
        index=view.index,
        model=view.model,
        memory_gib=view.memory_gib,
        is_healthy=view.healthy,
        # Kept while the agent cannot read it, so that a later replacement is noticed.
        hardware_uuid=view.hardware_uuid or (known.hardware_uuid if known else ""),
    )


def _differs(gpu: Gpu, known: Gpu | None) -> bool:
    return known is None or any(getattr(gpu, name) != getattr(known, name) for name in GPU_FIELDS)


def _replaced_event(node: Node, *, gone: Set[str], new: Set[str], now: datetime) -> Event:
    told = {words: sorted(uuids) for words, uuids in (("gone", gone), ("new", new)) if uuids}
    said = "; ".join(f"{words}: {', '.join(uuids)}" for words, uuids in told.items())
    event = _event(node, "node.gpus_replaced", f"GPUs of node {node.name} were replaced. By their UUIDs, {said}", Severity.INFO, now)
    event.data = told
    return event


def _gpu_events(node: Node, *, had: int, has: int, now: datetime) -> Iterable[Event]:
    if has < had:
        lost = had - has
        text = f"{plural(lost, 'GPU')} of node {node.name} {are(lost)} sick or gone; nothing new starts on it until all are well."
        yield _event(node, "node.gpus_lost", text, Severity.WARNING, now)
    elif has > had:
        text = f"{plural(has - had, 'GPU')} of node {node.name} {are(has - had)} well again."
        yield _event(node, "node.gpus_back", text, Severity.INFO, now)


def _condition_events(node: Node, had: Sequence[Mapping[str, Any]], now: datetime) -> Iterable[Event]:
    """Ready has events of its own."""
    was, is_bad = ({each["type"]: each for each in some if each["type"] != "Ready"} for some in (had, node.conditions))
    for name in sorted(is_bad.keys() - was.keys()):
        why = ": ".join(text for text in (is_bad[name]["reason"], is_bad[name]["message"]) if text)
        text = f"Node {node.name} tells {name}" + (f" ({why})." if why else ".")
        yield _event(node, "node.condition_bad", text, Severity.WARNING, now)
    for name in sorted(was.keys() - is_bad.keys()):
        yield _event(node, "node.condition_well", f"Node {node.name} does not tell {name} any more.", Severity.INFO, now)


def _failure_note(cluster: Cluster, node_ids: Sequence[UUID], now: datetime) -> None:
    """Later promises keep a failure reserve. Cordons and maintenance do not count."""
    if not node_ids:
        return
    maintained = set(maintenance_ahead(now).filter(cluster=cluster, starts_at__lte=now).values_list("node_id", flat=True))
    left = set(Node.objects.filter(pk__in=node_ids, cordoned_at=None).values_list("pk", flat=True)) - maintained
    if left and None not in maintained:
        Cluster.objects.filter(pk=cluster.pk).update(node_failed_at=now)


def _event(node: Node, kind: str, text: str, severity: Severity, now: datetime) -> Event:
    return Event(kind=kind, message=text, at=now, severity=severity, node_id=node.pk, cluster_id=node.cluster_id)
