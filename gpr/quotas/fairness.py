"""Fairness over time: what each project has used lately, held against what is due to it.

Use is GPU-seconds, and fades: half of it is forgotten after EGS_FAIRNESS_HALF_LIFE_S. Due is a part of all use, by weight: the GPUs that
a project is guaranteed, one at least. Source of the form: the decayed use of Slurm's priority/multifactor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from django.conf import settings
from django.db.models import Value
from django.db.models.functions import Coalesce

from gpr.models import Gpr, ProjectUsage
from inventory.models import ReservedGpu
from planner.snapshot import Pool, Quota, Running
from slices.models import Project

# Everybody is credited with so much use of what is due to him: the first minutes of a new system order nobody.
CREDIT_S: Final = 3600.0
STEPS_PER_DOUBLING: Final = 2
# Further apart is as far apart: a thousand times.
STEPS_MOST: Final = 20


def faded(gpu_s: float, age_s: float) -> float:
    """What is left of it after so long."""
    return float(gpu_s * 2.0 ** (-max(age_s, 0.0) / settings.EGS_FAIRNESS_HALF_LIFE_S))


def use_of(gpu_count: int, ran_s: float) -> float:
    """Of a box that began `ran_s` ago, as it counts now: the integral of its GPUs over that time, each moment faded by its age."""
    mean_life_s = settings.EGS_FAIRNESS_HALF_LIFE_S / math.log(2)
    return float(gpu_count * mean_life_s * -math.expm1(-max(ran_s, 0.0) / mean_life_s))


def usage_add(gpr: Gpr, *, ran_s: float, now: datetime) -> None:
    """Its nodes are back. Inside a transaction: two boxes of a project that end at once are added one after the other.

    A spare counts no more than the node that it replaced.
    """
    gpu_count = ReservedGpu.objects.filter(reservation__gpr=gpr, reservation__run=gpr.run, reservation__replaces=None).count()
    ProjectUsage.objects.get_or_create(project_id=gpr.slice.project_id, defaults={"summed_at": now})
    usage = ProjectUsage.objects.select_for_update().get(project_id=gpr.slice.project_id)
    usage.gpu_s = faded(usage.gpu_s, (now - usage.summed_at).total_seconds()) + use_of(gpu_count, ran_s)
    usage.summed_at = now
    usage.save(update_fields=["gpu_s", "summed_at"])


def usage_load(*, now: datetime) -> dict[str, float]:
    """Of every project, what its ended boxes used; one query."""
    rows = Project.objects.order_by("pk").values_list("pk", Coalesce("usage__gpu_s", 0.0), Coalesce("usage__summed_at", Value(now)))
    return {str(pk): faded(gpu_s, (now - at).total_seconds()) for pk, gpu_s, at in rows}


def shares_of(
    ended: Mapping[str, float], running: Iterable[Running], pools: Iterable[Pool], quotas: Iterable[Quota], now_s: int
) -> dict[str, int]:
    """By project, in steps: 0 has used about what is due to it, below 0 less, above 0 more; two steps are a factor of two.

    Coarse, so that projects near each other count as equal and the least work goes first among them.
    """
    weights = dict.fromkeys(ended, 0)
    for quota in quotas:
        if quota.owner in weights:
            weights[quota.owner] += quota.guaranteed
    weights = {project: max(weight, 1) for project, weight in weights.items()}
    use = {project: gpu_s + CREDIT_S * weights[project] for project, gpu_s in ended.items()}
    gpus_of = {node.id: node.gpu_count for pool in pools for node in pool.nodes}
    for box in running:
        gpu_count = len(box.counted) * box.gpus_per_node or sum(gpus_of.get(node, 0) for node in box.counted)
        use[box.project] += use_of(gpu_count, now_s - box.started_s)
    due_per_weight = sum(use.values()) / max(sum(weights.values()), 1)
    return {project: _step(use[project] / (weight * due_per_weight)) for project, weight in weights.items()}


def _step(ratio: float) -> int:
    step = round(STEPS_PER_DOUBLING * math.log2(ratio))
    return max(-STEPS_MOST, min(step, STEPS_MOST))
