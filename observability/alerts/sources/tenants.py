"""Loads waits of requests, and the rest of quotas and budgets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Q

from gpr.budgets.selectors import budget_uses
from gpr.models import Gpr, GprState
from gpr.quotas.selectors import quota_usages
from observability.alerts.models import AlertRule
from observability.alerts.signals import BUDGET, QUOTA, WAIT
from observability.alerts.sources.measured import Found, Measured, RulesByWatched, in_scope
from slices.models import Budget, Quota
from slices.quotas.services import whose

TOLERANCE: Final = timedelta(minutes=1)  # a promise is kept by a start so much later


def requests(rules: Sequence[AlertRule], now: datetime) -> Found:
    """Runs one query. A request that may not start yet, such as a booking, does not wait."""
    rows = Gpr.objects.filter(Q(earliest_start_at=None) | Q(earliest_start_at__lte=now), state=GprState.QUEUED).order_by()
    fields = ("pk", "name", "slice", "shape", "queued_at", "earliest_start_at", "planned_start_at", "promise__promised_start_at")
    found: dict[UUID, list[Measured]] = defaultdict(list)
    by_watched = RulesByWatched(rules)
    for pk, name, slice_id, shape, queued_at, earliest_at, planned_at, promised_at in rows.values_list(*fields):
        since_at = max(filter(None, (queued_at, earliest_at)), default=now)
        wait_s = max((now - since_at).total_seconds(), 0.0)
        late_s = _late_s(planned_at, promised_at, now)
        for rule in by_watched.watching(slice_id):
            value = wait_s if rule.signal == WAIT else late_s
            one = Measured(pk, name, value, value, slice_id, pk, shape=shape)
            if in_scope(rule, one):
                found[rule.pk].append(one)
    return found


def _late_s(planned_at: datetime | None, promised_at: datetime | None, now: datetime) -> float | None:
    if promised_at is None:
        return None
    late = max(planned_at or now, now) - promised_at
    return late.total_seconds() if late > TOLERANCE else 0.0


def tenants(rules: Sequence[AlertRule], now: datetime) -> Found:
    levels = tenant_levels({rule.signal for rule in rules}, now)
    return {rule.pk: [one for one in levels[rule.signal] if in_scope(rule, one)] for rule in rules}


def tenant_levels(signals: Collection[str], now: datetime) -> dict[str, list[Measured]]:
    """Runs some eight queries for all of them."""
    levels = {}
    if QUOTA in signals:
        levels[QUOTA] = [
            _quota(usage.quota, usage.held_gpus) for usage in quota_usages(Quota.objects.select_related("project", "slice__project"))
        ]
    if BUDGET in signals:
        uses = budget_uses(Budget.objects.select_related("project", "slice__project"), now=now)
        levels[BUDGET] = [
            _tenant(use.budget, "budget", 100 * use.used_hours / use.budget.gpu_hours)
            for use in uses
            if use.span.starts_at <= now < use.span.ends_at
        ]
    return levels


def _quota(quota: Quota, held_gpus: int) -> Measured:
    most = quota.most_gpus if quota.most_gpus is not None else quota.guaranteed_gpus
    return _tenant(quota, "quota", 100 * held_gpus / most if most else None)


def _tenant(of: Quota | Budget, what: str, percent: float | None) -> Measured:
    shape = f" of {of.shape}" if of.shape else ""
    return Measured(of.pk, f"{what}{shape} of {whose(of)}", percent, percent, of.slice_id, shape=of.shape)
