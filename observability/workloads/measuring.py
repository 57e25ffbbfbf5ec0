"""Adds up the work of the GPUs of workloads, and finds GPUs that stay behind their peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import transaction

from core.written_sql import rows_update
from observability.workloads.models import Workload, WorkloadState
from observability.workloads.selectors import WorkloadGpu, gpus_of
from observability.workloads.services import workloads_prune
from observability.workloads.stragglers import GpuWork, behind_since, stragglers_among

COUNTED_MOST_S: Final = 60.0  # of the time since the last measurement; of a longer gap nobody knows what was done
FIELDS: Final = ("measured_at", "use_percent", "temperature_c", "power_w", "held_gpu_s", "used_gpu_s", "behind", "straggler_count")


@dataclass(frozen=True, slots=True)
class Figures:
    use_percent: int | None
    temperature_c: int | None
    power_w: int | None


def workloads_step(*, now: datetime) -> None:
    """Measures all that run. Correct however often it runs."""
    workloads_prune(now=now)
    running = list(Workload.objects.filter(state=WorkloadState.RUNNING).order_by("pk"))
    gpus = gpus_of(running)
    changed = [workload for workload in running if _measure(workload, gpus.get(workload.pk, ()), now)]
    with transaction.atomic():
        rows_update(changed, FIELDS)


def figures_of(gpus: Sequence[WorkloadGpu], now: datetime) -> Figures:
    """Uses fresh readings alone."""
    readings: list[Any] = [gpu.reading for gpu in gpus if gpu.is_fresh(now)]
    used = [reading.utilization_percent for reading in readings if reading.utilization_percent is not None]
    hot = [reading.temperature_c for reading in readings if reading.temperature_c is not None]
    power = [reading.power_w for reading in readings if reading.power_w is not None]
    return Figures(round(sum(used) / len(used)) if used else None, max(hot, default=None), sum(power) if power else None)


def _measure(workload: Workload, gpus: Sequence[WorkloadGpu], now: datetime) -> bool:
    """Returns whether there is something to store."""
    fresh = [gpu for gpu in gpus if gpu.is_fresh(now)]
    if not fresh:
        return False
    figures = figures_of(fresh, now)
    passed_s = min((now - workload.measured_at).total_seconds(), COUNTED_MOST_S) if workload.measured_at else 0.0
    if figures.use_percent is not None and passed_s > 0:
        workload.held_gpu_s += passed_s * len(fresh)
        workload.used_gpu_s += passed_s * len(fresh) * figures.use_percent / 100
    workload.use_percent, workload.temperature_c, workload.power_w = figures.use_percent, figures.temperature_c, figures.power_w
    workload.behind = behind_since(map(_work, fresh), workload.behind)
    workload.straggler_count = len(stragglers_among(workload.behind, now=now))
    workload.measured_at = now
    return True


def _work(gpu: WorkloadGpu) -> GpuWork:
    reading: Any = gpu.reading
    return GpuWork(str(gpu.gpu.pk), gpu.gpu.model, reading.at, reading.utilization_percent, reading.sm_clock_mhz)
