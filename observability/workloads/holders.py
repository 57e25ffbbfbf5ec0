"""Says which workload had a GPU of a box, now and before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from django.db.models import F, Q
from django.db.models.functions import Coalesce

from gpr.models.usage import WORKLOAD_NAME_MAX_CHARS
from observability.models import Reading1m
from observability.workloads.models import Pod, Workload

Place = tuple[UUID, str]  # request and node


class Holder(Protocol):
    @property
    def workload_id(self) -> UUID: ...
    @property
    def gpus(self) -> Sequence[str]: ...
    @property
    def gpu_count(self) -> int: ...


H = TypeVar("H", bound=Holder)


class PodTime(NamedTuple):
    workload_id: UUID
    gpus: Sequence[str]
    gpu_count: int
    begin_at: datetime
    end_at: datetime | None

    def has(self, minute: datetime) -> bool:
        return has_minute(minute, self.begin_at, self.end_at)


def has_minute(minute: datetime, begin_at: datetime, end_at: datetime | None) -> bool:
    """Tells whether the whole minute lies between these times. `end_at`: None if it has not ended."""
    return begin_at <= minute and (end_at is None or minute + Reading1m.STEP <= end_at)


def pods_between(begin: datetime, end: datetime) -> Mapping[Place, Sequence[PodTime]]:
    """Returns the pods that had a node of a box meanwhile. Runs one query."""
    there = Pod.objects.filter(Q(gone_at=None) | Q(gone_at__gt=begin), gpr__isnull=False).exclude(node="")
    rows: Any = there.order_by().annotate(begin_at=Coalesce(F("started_at"), F("created_at"))).filter(begin_at__lt=end)
    found: dict[Place, list[PodTime]] = defaultdict(list)
    for gpr_id, node, *pod in rows.values_list("gpr", "node", "workload", "gpus", "gpu_count", "begin_at", "gone_at"):
        found[gpr_id, node].append(PodTime(*pod))
    return found


def holders_among(gpu_ids: Collection[UUID], pods: Sequence[H]) -> list[Sequence[H]]:
    """Returns for each of a box's GPUs on a node the pods that have it. `pods`: all that the box has there. If a pod's own GPUs are not
    known, it takes all of them, unless another workload is there.
    """
    by_gpu: dict[str, list[H]] = defaultdict(list)
    for pod in pods:
        for gpu in pod.gpus:
            by_gpu[gpu].append(pod)
    # A box whose pods take all of its GPUs on the node, and are of one workload, leaves no doubt.
    is_full = len({pod.workload_id for pod in pods}) == 1 and sum(pod.gpu_count for pod in pods) >= len(gpu_ids)
    others = pods if is_full else ()
    return [by_gpu.get(str(gpu_id), others) for gpu_id in gpu_ids]


def names_of(workload_ids: Collection[UUID]) -> dict[UUID, str]:
    rows = Workload.objects.filter(pk__in=workload_ids).order_by().values_list("pk", "kind", "name")
    return {pk: f"{kind} {name}"[:WORKLOAD_NAME_MAX_CHARS] for pk, kind, name in rows}
