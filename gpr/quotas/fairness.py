"""Compares the decayed GPU-seconds of each project with its fair share. Source: the decayed usage of Slurm's priority/multifactor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import repeat
from typing import Final, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db.models import Count, F
from django.db.models.functions import Coalesce

from core.written_sql import WrittenQuery, rows_insert
from gpr.models import Gpr, ProjectUsage
from inventory.models import ReservedGpu
from planner.snapshot import Quota, Running
from slices.models import Project

# Every project is credited with this much of its due use, so that the first minutes of a new system do not order anybody.
CREDIT_S: Final = 3600.0
STEPS_PER_DOUBLING: Final = 2  # coarse, so that similar projects count as equal
# The step is capped at a factor of about a thousand.
STEPS_MOST: Final = 20


def decayed(gpu_s: float, age_s: float) -> float:
    return float(gpu_s * 2.0 ** (-max(age_s, 0.0) / settings.EGS_FAIRNESS_HALF_LIFE_S))


def box_use(gpu_count: int, ran_s: float) -> float:
    """Returns the decayed GPU-seconds of a box that began `ran_s` ago."""
    mean_life_s = settings.EGS_FAIRNESS_HALF_LIFE_S / math.log(2)
    return float(gpu_count * mean_life_s * -math.expm1(-max(ran_s, 0.0) / mean_life_s))


_HELD: Final = ReservedGpu.objects.filter(reservation__run=F("reservation__gpr__run"), reservation__replaces=None).order_by()
_HELD_COUNTS: Final = WrittenQuery(_HELD.values_list("reservation__gpr").annotate(Count("pk")), key="reservation__gpr__id")
_USAGE_OF: Final = WrittenQuery(ProjectUsage.objects.all(), key="project__id")


def usage_add(ran_s: Mapping[Gpr, float], *, now: datetime) -> None:
    """Takes as `ran_s` how long each box ran. The caller holds the plan lock."""
    # Without spares: the nodes that they replaced are counted.
    gpu_counts = dict(_HELD_COUNTS([gpr.pk for gpr in ran_s]))
    usages = {usage.pk: usage for usage in _USAGE_OF({gpr.slice.project_id for gpr in ran_s})}
    for gpr, box_s in ran_s.items():
        usage = usages.setdefault(gpr.slice.project_id, ProjectUsage(project_id=gpr.slice.project_id, summed_at=now))
        usage.gpu_s = decayed(usage.gpu_s, (now - usage.summed_at).total_seconds()) + box_use(gpu_counts.get(gpr.pk, 0), box_s)
        usage.summed_at = now
    rows_insert(list(usages.values()), unique="project_id")


class UsageRow(NamedTuple):
    """Holds the use of a project's ended boxes. `summed_at` None: there were none."""

    project_id: UUID
    gpu_s: float
    summed_at: datetime | None


_USAGES: Final = WrittenQuery(Project.objects.order_by("pk").values_list("pk", Coalesce("usage__gpu_s", 0.0), "usage__summed_at"))


def usage_rows() -> list[UsageRow]:
    return [UsageRow._make(row) for row in _USAGES()]


def usage_at(rows: Iterable[UsageRow], now: datetime) -> dict[str, float]:
    """Returns decayed GPU-seconds by project id."""
    return {str(pk): decayed(gpu_s, (now - (summed_at or now)).total_seconds()) for pk, gpu_s, summed_at in rows}


def held_gpus(running: Iterable[Running], gpu_counts: Mapping[str, int]) -> Counter[tuple[str, int]]:
    """Returns GPUs in boxes by project and start. `gpu_counts`: by node."""
    held: Counter[tuple[str, int]] = Counter()
    for box in running:
        counted = box.counted
        held[box.project, box.started_s] += len(counted) * box.gpus_per_node or sum(map(gpu_counts.get, counted, repeat(0)))
    return held


def shares_of(ended: Mapping[str, float], held: Mapping[tuple[str, int], int], quotas: Iterable[Quota], now_s: int) -> dict[str, int]:
    """Returns steps by project: 0 used its part, above 0 more; two steps are a factor of two. `held`: see `held_gpus`."""
    weights = dict.fromkeys(ended, 0)
    for quota in quotas:
        if quota.owner in weights:
            weights[quota.owner] += quota.guaranteed
    # The due part of a project is by its guaranteed GPUs, at least one.
    weights = {project: max(weight, 1) for project, weight in weights.items()}
    use = {project: gpu_s + CREDIT_S * weights[project] for project, gpu_s in ended.items()}
    for (project, started_s), gpu_count in held.items():
        use[project] += box_use(gpu_count, now_s - started_s)
    due_per_weight = sum(use.values()) / max(sum(weights.values()), 1)
    return {project: _step(use[project] / (weight * due_per_weight)) for project, weight in weights.items()}


def _step(ratio: float) -> int:
    step = round(STEPS_PER_DOUBLING * math.log2(ratio))
    return max(-STEPS_MOST, min(step, STEPS_MOST))
