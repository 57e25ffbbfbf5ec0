"""Finds GPUs that stay behind the others of their workload."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from inventory.models import Gpu
from observability.alerts.models import AlertRule
from observability.alerts.sources.measured import Found, GpuPlace, Measured, RulesByWatched, gpu_places, in_scope, open_subjects
from observability.models import LatestReading
from observability.workloads.models import Workload, WorkloadState
from observability.workloads.stragglers import since_of
from protocol.gpus.telemetry import STALE_S


def behind_peers(rules: Sequence[AlertRule], now: datetime) -> Found:
    """Runs four queries."""
    since, open_ids = _behind(now), set(open_subjects(rules))
    wanted = since.keys() | open_ids
    if not wanted:
        return {}
    fresh = _measured_now(open_ids - since.keys(), now)
    by_watched = RulesByWatched(rules)
    found: dict[UUID, list[Measured]] = defaultdict(list)
    for gpu_id, place in gpu_places(Gpu.objects.filter(pk__in=wanted)).items():
        one = _measured(place, since.get(gpu_id), now, is_measured=gpu_id in fresh)
        for rule in by_watched.watching(place.slice_id):
            if in_scope(rule, one):
                found[rule.pk].append(one)
    return found


def _behind(now: datetime) -> dict[UUID, datetime]:
    """Returns the time since which each GPU has been behind, of workloads that are measured now."""
    rows = Workload.objects.filter(state=WorkloadState.RUNNING, measured_at__gt=now - timedelta(seconds=STALE_S)).exclude(behind={})
    found: dict[UUID, datetime] = {}
    for behind in rows.order_by().values_list("behind", flat=True):
        found |= {UUID(gpu_id): at for gpu_id, at in since_of(behind).items()}
    return found


def _measured_now(gpu_ids: Iterable[UUID], now: datetime) -> set[UUID]:
    fresh = LatestReading.objects.filter(gpu__in=gpu_ids, at__gt=now - timedelta(seconds=STALE_S))
    return set(fresh.order_by().values_list("gpu", flat=True))


def _measured(place: GpuPlace, since_at: datetime | None, now: datetime, *, is_measured: bool) -> Measured:
    if since_at is None:
        value = 0.0 if is_measured else None
        return place.measured(value, box_value=value)
    # A lag that began before the present box belongs to another's work.
    value = max((now - since_at).total_seconds(), 0.0) if place.held_since(since_at) else None
    return place.measured(value, box_value=value)
