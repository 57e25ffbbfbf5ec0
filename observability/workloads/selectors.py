"""Workloads and pods that a reader may see: overseers see all, members those of their workspaces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Prefetch, Q, QuerySet, TextChoices

from accounts.models import User
from accounts.policy import ObjectKind, Verb, may_all, visible_rows
from core.rest.references import one_by_reference
from gpr.models import Gpr
from inventory.models import Gpu, ReservedGpu
from inventory.selectors import HELD, slice_ids_of
from observability.models import LatestReading
from observability.telemetry.selectors import IDLE_PERCENT, SERIES_NAMES, TOTALS
from observability.workloads.holders import Place, holders_among
from observability.workloads.models import Pod, Workload, WorkloadState
from protocol.gpus.telemetry import STALE_S


class WorkloadView(TextChoices):
    RUNNING = "running", "Running"
    WAITING = "waiting", "Waiting"
    IDLE = "idle", "Held, and idle"
    STRAGGLING = "straggling", "With a straggler"
    ENDED = "ended", "Ended"


class PodView(TextChoices):
    RUNNING = "running", "Running"
    HELD_BACK = "held-back", "Kept from running"
    ENDED = "ended", "Ended"


def workloads_visible_to(actor: User) -> QuerySet[Workload]:
    carriers = Gpr.objects.only("name", "state", "created_at").order_by("-created_at", "pk")
    rows = Workload.objects.select_related("slice", "cluster__agent").prefetch_related(Prefetch("gprs", carriers))
    return visible_rows(rows, actor, Q(slice__in=slice_ids_of(actor)))


def workload_for(actor: User, reference: str | UUID) -> Workload:
    """Finds a workload by id, or by the name of one that has not ended. Raises NotFound, Conflict."""
    rows = workloads_visible_to(actor)
    there = rows.exclude(state=WorkloadState.ENDED)
    return one_by_reference(there if there.filter(name=reference).exists() else rows, reference, what="workload")


def pods_visible_to(actor: User) -> QuerySet[Pod]:
    rows = Pod.objects.select_related("workload__slice", "cluster", "gpr")
    if may_all(actor, Verb.SEE, ObjectKind.WORKLOAD):
        return rows
    return rows.filter(workload__slice__in=slice_ids_of(actor))


def workloads_in(view: str) -> Q:
    idle = Q(state=WorkloadState.RUNNING, use_percent__lt=IDLE_PERCENT)
    conditions: dict[str, Q] = {
        WorkloadView.RUNNING: Q(state=WorkloadState.RUNNING),
        WorkloadView.WAITING: Q(state=WorkloadState.WAITING),
        WorkloadView.IDLE: idle,
        WorkloadView.STRAGGLING: Q(state=WorkloadState.RUNNING, straggler_count__gt=0),
        WorkloadView.ENDED: Q(state=WorkloadState.ENDED),
    }
    return conditions.get(view, Q())


def pods_in(view: str) -> Q:
    conditions: dict[str, Q] = {
        PodView.RUNNING: Q(gone_at=None, hold="") & ~Q(node=""),
        PodView.HELD_BACK: Q(gone_at=None) & (~Q(hold="") | Q(node="")),
        PodView.ENDED: Q(gone_at__isnull=False),
    }
    return conditions.get(view, Q())


def workloads_matching(text: str) -> Q:
    """Matches name, model, namespace, kind, or the name of a request that carries it."""
    own = Q(name__icontains=text) | Q(model__icontains=text) | Q(namespace__icontains=text) | Q(kind__iexact=text)
    return (
        own
        | Q(slice__name__icontains=text)
        | Q(pk__in=Workload.gprs.through._default_manager.filter(gpr__name__icontains=text).values("workload"))
    )


def pods_matching(text: str) -> Q:
    of = Q(workload__name__icontains=text) | Q(workload__namespace__icontains=text) | Q(workload__slice__name__icontains=text)
    return of | Q(name__icontains=text) | Q(node__icontains=text) | Q(gpr__name__icontains=text)


# -- the GPUs of workloads ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkloadGpu:
    """Describes a GPU that a box of the workspace holds and that the workload's pods have."""

    gpu: Gpu
    since_at: datetime  # when the box took it
    pod: Pod | None  # None: which of the pods has it is not known
    reading: LatestReading | None  # of the time of the box, without the totals, which began before it

    def is_fresh(self, now: datetime) -> bool:
        return self.reading is not None and self.reading.at > now - timedelta(seconds=STALE_S)


def gpus_of(workloads: Iterable[Workload]) -> dict[UUID, list[WorkloadGpu]]:
    """Returns GPUs by workload."""
    ids = [workload.pk for workload in workloads]
    running = Pod.objects.filter(gone_at=None, gpr__isnull=False).exclude(node="").only(*POD_COLUMNS)
    pods_at: dict[Place, list[Pod]] = defaultdict(list)
    for pod in running.filter(gpr__in=running.filter(workload__in=ids).values("gpr")):  # all that are in these boxes
        pods_at[pod.gpr_id, pod.node].append(pod)  # type: ignore[index]  # the filter leaves no None
    wanted, found = set(ids), defaultdict[UUID, list[WorkloadGpu]](list)
    for place, reserved in _reserved({gpr_id for gpr_id, _ in pods_at}).items():
        for workload_id, gpus in _shared_out(reserved, pods_at.get(place, ())).items():
            if workload_id in wanted:
                found[workload_id] += gpus
    return found


READ_COLUMNS: Final = tuple(f"gpu__latest_reading__{name}" for name in ("gpu", "at", *SERIES_NAMES))
POD_COLUMNS: Final = ("pk", "uid", "name", "workload", "gpr", "node", "gpus", "gpu_count", "role", "rank")


def _reserved(gpr_ids: Iterable[Any]) -> dict[Place, list[ReservedGpu]]:
    rows = ReservedGpu.objects.filter(HELD, reservation__gpr__in=gpr_ids).select_related("gpu__node", "gpu__latest_reading", "reservation")
    rows = rows.only("starts_at", "reservation__gpr", "gpu__uuid", "gpu__index", "gpu__model", "gpu__node__name", *READ_COLUMNS)
    found: dict[Place, list[ReservedGpu]] = defaultdict(list)
    for row in rows.order_by("gpu__node__name", "gpu__index"):
        found[row.reservation.gpr_id, row.gpu.node.name].append(row)
    return found


def _shared_out(reserved: Sequence[ReservedGpu], pods: Sequence[Pod]) -> dict[UUID, list[WorkloadGpu]]:
    holders = holders_among([row.gpu_id for row in reserved], pods)
    found: dict[UUID, list[WorkloadGpu]] = defaultdict(list)
    for row, pods_of_gpu in zip(reserved, holders, strict=True):
        for pod in pods_of_gpu[:1]:
            found[pod.workload_id].append(_workload_gpu(row, pod if str(row.gpu_id) in pod.gpus else None))
    return found


def _workload_gpu(row: ReservedGpu, pod: Pod | None) -> WorkloadGpu:
    reading = getattr(row.gpu, "latest_reading", None)
    if reading is None or reading.at < row.starts_at:
        return WorkloadGpu(row.gpu, row.starts_at, pod, None)
    for name in TOTALS:
        setattr(reading, name, None)
    return WorkloadGpu(row.gpu, row.starts_at, pod, reading)
