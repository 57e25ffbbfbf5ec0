"""Finds faults in the newest readings, and sets their nodes aside."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from core.rest.output import utc_text
from core.written_sql import rows_derive
from inventory.models import Gpu, Node
from inventory.services.nodes import node_mark_faulty
from journal.guard import set_aside_on_error
from observability.models import FaultCount, LatestReading, RemediationPolicy
from observability.remediation.cases import fault_add
from observability.remediation.counts import counts_of, counts_store, known_counts
from observability.remediation.faults import COUNTS, DAY_S, TRENDS, Counts, GpuFault, faults_of
from observability.remediation.models import RemediationCase
from observability.remediation.policies import policies_by_cluster

FRESH: Final = timedelta(minutes=10)
# A count that grows all the time is kept this often; what sets a node aside at once is always kept.
APART: Final = timedelta(minutes=10)
AT_ONCE: Final = ("xid", "xid_counts", "rows_failed", "ecc_uncorrected")


@dataclass(frozen=True, slots=True)
class Found:
    gpu: Gpu
    at: datetime
    faults: list[GpuFault]


def faults_review(*, now: datetime) -> None:
    """Runs two statements when no count has changed."""
    _begin(now)
    changed = list(_changed(now))
    if not changed:
        return
    history = _history(changed, now)
    policies = policies_by_cluster({reading.gpu.node.cluster_id for reading in changed})
    returned = _returned({reading.gpu.node_id for reading in changed if history[reading.gpu_id]})
    by_node: dict[UUID, list[Found]] = defaultdict(list)
    for reading in changed:
        policy = policies[reading.gpu.node.cluster_id]
        found = _judged(reading, history[reading.gpu_id], policy, returned.get(reading.gpu.node_id))
        if found.faults:
            by_node[reading.gpu.node_id].append(found)
    # The nodes first: a crash in between finds the same faults again.
    for several in by_node.values():
        node = several[0].gpu.node
        failed = f"The faults of node {node.name} could not be acted upon"
        with set_aside_on_error("faults_review", failed, now=now, node_id=node.pk, cluster_id=node.cluster_id):
            _set_aside(node, several, now)
    _keep(changed, history, now)


def _begin(now: datetime) -> None:
    """Notes the counts of GPUs that are seen for the first time and have no fault: nothing of them needs to be judged."""
    is_well = Q()
    for name in AT_ONCE:
        is_well &= Q(**{name: ""}) if name == "xid_counts" else Q(**{name: None}) | Q(**{name: 0})
    counts = {name: F(name) if name == "xid_counts" else Coalesce(F(name), 0) for name in COUNTS}
    news = _fresh(now).filter(is_well, ~Exists(FaultCount.objects.filter(gpu=OuterRef("gpu"))))
    rows_derive(FaultCount, news, {"gpu": F("gpu_id"), "at": Value(now), "is_newest": Value(True), **counts})


def _fresh(now: datetime) -> QuerySet[LatestReading]:
    return LatestReading.objects.filter(at__gt=now - FRESH, gpu__gone_at=None, gpu__node__gone_at=None)


def _changed(now: datetime) -> QuerySet[LatestReading]:
    newest = FaultCount.objects.filter(gpu=OuterRef("gpu"), is_newest=True)
    same = Q()
    for name in COUNTS:
        same &= Q(**{name: Coalesce(OuterRef(name), F(name))})
    return _fresh(now).filter(~Exists(newest.filter(same))).select_related("gpu__node").order_by("gpu_id")


def _history(readings: Sequence[LatestReading], now: datetime) -> Mapping[UUID, list[FaultCount]]:
    """Returns the counts of the last day, the earliest first, and the newest in any case."""
    is_recent = Q(at__gte=now - timedelta(seconds=DAY_S) - APART) | Q(is_newest=True)
    found: dict[UUID, list[FaultCount]] = defaultdict(list)
    for row in FaultCount.objects.filter(is_recent, gpu__in=[reading.gpu_id for reading in readings]).order_by("at", "pk"):
        found[row.gpu_id].append(row)
    return found


def _judged(reading: LatestReading, history: Sequence[FaultCount], policy: RemediationPolicy, returned_at: datetime | None) -> Found:
    """Counts from before the node's last return do not count again."""
    last = history[-1] if history else None
    if not policy.watches_faults:
        return Found(reading.gpu, reading.at, [])
    base_of = {}
    for within_s in {trend.within_s for trend in TRENDS}:
        start = reading.at - timedelta(seconds=within_s)
        if base := _base(history, max(start, returned_at or start)):
            base_of[within_s] = known_counts(base)
    counts = counts_of(reading, last)
    known = known_counts(last) if last else None
    return Found(
        reading.gpu,
        reading.at,
        list(faults_of(counts, known, base_of, ignored_xids=policy.ignored_xids, limits=policy.limits)),
    )


def _returned(node_ids: Iterable[UUID]) -> dict[UUID, datetime]:
    """Returns the last return of each node."""
    rows = RemediationCase.objects.filter(node__in=set(node_ids), closed_at__isnull=False).order_by("closed_at")
    return {node_id: at for node_id, at in rows.values_list("node_id", "closed_at") if at is not None}


def _base(history: Sequence[FaultCount], start: datetime) -> FaultCount | None:
    """Returns the last count before the time; else the first one after it."""
    before = [row for row in history if row.at <= start]
    return before[-1] if before else next(iter(history), None)


@transaction.atomic
def _set_aside(node: Node, several: Sequence[Found], now: datetime) -> None:
    first = several[0]
    worst = first.faults[0]
    node_mark_faulty(node=node, why=f"GPU {first.gpu.index} {worst.text}.", code=worst.code, now=now)
    evidence = [_evidence(found, fault) for found in several for fault in found.faults]
    fault_add(node=node, evidence=evidence, faults=[fault for found in several for fault in found.faults], now=now)


def _evidence(found: Found, fault: GpuFault) -> dict[str, Any]:
    gpu = found.gpu
    told = {name: value for name, value in asdict(fault).items() if name != "action"}
    return {"at": utc_text(found.at), "gpu": gpu.index, "uuid": gpu.hardware_uuid or gpu.uuid, **told, "action": str(fault.action)}


def _keep(readings: Iterable[LatestReading], history: Mapping[UUID, Sequence[FaultCount]], now: datetime) -> None:
    kept: list[tuple[UUID, Counts]] = []
    for reading in readings:
        last = history[reading.gpu_id][-1] if history[reading.gpu_id] else None
        counts = counts_of(reading, last)
        is_urgent = last is None or any(counts[name] != getattr(last, name) for name in AT_ONCE)
        if last is None or is_urgent or now - last.at >= APART:
            kept.append((reading.gpu_id, counts))
    counts_store(kept, now)
