"""Computes trends and forecasts of a signal from a window.

A movement counts only if it goes on from each sixth of the window to the next. A load that starts or ends moves one of these alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from django.db.models import Avg, Q, QuerySet

from inventory.models import Gpu, ReservationState
from observability.alerts.models import AlertRule, Direction, RuleKind, SignalSample
from observability.alerts.sources.measured import Found, Measured, gpu_places, in_scope, open_subjects
from observability.alerts.sources.tenants import tenant_levels
from observability.models import LEVELS, LatestReading, Reading, Reading1m
from protocol.gpus.telemetry import STALE_S

POINTS_LEAST: Final = 18  # of a course
BEHIND: Final = timedelta(minutes=2)  # how late the newest point of a course is
SAMPLE_EVERY: Final = timedelta(minutes=5)
PARTS: Final = 6
EVEN: Final = 0.2  # the least step between two parts, as a share of the mean one
Means = Sequence[float | None]  # of the parts


def is_due(rule: AlertRule, now: datetime) -> bool:
    """Trends are computed as often as they can tell something new."""
    if rule.kind not in (RuleKind.TREND, RuleKind.FORECAST):
        return True
    pause = timedelta(seconds=max(60.0, rule.window_s / 60))
    return rule.judged_at is None or not rule.judged_at <= now < rule.judged_at + pause


def gpu_trends(rules: Sequence[AlertRule], now: datetime) -> Found:
    """Runs two queries a rule."""
    return {rule.pk: list(_gpus_of(rule, now)) for rule in rules}


def _gpus_of(rule: AlertRule, now: datetime) -> list[Measured]:
    until = now - BEHIND
    since = until - timedelta(seconds=rule.window_s)
    fresh = _watched(rule).filter(at__gt=now - timedelta(seconds=STALE_S), **{f"{rule.signal}__isnull": False})
    series = dict(fresh.order_by().values_list("pk", "gpu"))
    found = {}
    for series_id, *means in _courses(_course_for(rule), rule.signal, fresh, since, until):
        value = value_of(rule, means)
        if value is not None and series_id in series:
            found[series[series_id]] = value
    open_ids = set(open_subjects([rule]))
    wanted = open_ids | {gpu_id for gpu_id, value in found.items() if rule.is_beyond(value)}
    places = gpu_places(Gpu.objects.filter(pk__in=wanted)) if wanted else {}
    rows = []
    for gpu_id, place in places.items():
        value = found.get(gpu_id)
        one = place.measured(value, box_value=value if place.held_since(since) else None)
        if in_scope(rule, one):
            rows.append(one)
    return rows


def _watched(rule: AlertRule) -> QuerySet[LatestReading]:
    """A rule of a workspace costs a look at the courses of its own GPUs alone."""
    rows = LatestReading.objects.all()
    if rule.slice_id:
        rows = rows.filter(gpu__reserved__state=ReservationState.HELD, gpu__reserved__reservation__slice=rule.slice_id)
    if rule.cluster_id:
        rows = rows.filter(gpu__node__cluster=rule.cluster_id)
    return rows.filter(gpu__node__shape=rule.shape) if rule.shape else rows


def _course_for(rule: AlertRule) -> type[Reading]:
    coarse = [model for model in LEVELS if rule.window_s / model.STEP.total_seconds() >= POINTS_LEAST]
    return coarse[-1] if coarse else Reading1m


def _courses(model: type[Reading], name: str, of: Any, since: datetime, until: datetime) -> Any:
    part = (until - since) / PARTS
    rows = model._default_manager.filter(series_id__in=of.values("pk"), at__gte=since, at__lt=until).order_by().values("series_id")
    means = {f"mean_{n}": Avg(name, filter=Q(at__gte=since + n * part, at__lt=since + (n + 1) * part)) for n in range(PARTS)}
    return rows.annotate(**means).values_list("series_id", *means)


def value_of(rule: AlertRule, means: Means) -> float | None:
    """Returns a trend's change within the window, or a forecast's value one window later. Returns None if the value is unknown or already
    beyond the level.
    """
    known = [mean for mean in means if mean is not None]
    if len(known) < PARTS:
        return None
    sign = 1 if rule.direction == Direction.ABOVE else -1
    steps = [sign * (after - before) for before, after in pairwise(known)]
    is_steady = min(steps) > 0 and min(steps) >= EVEN * sum(steps) / len(steps)
    change = sign * sum(steps) * PARTS / len(steps) if is_steady else 0.0
    if rule.kind == RuleKind.TREND:
        return change
    if rule.is_beyond(known[-1]):  # another rule tells of it
        return None
    return known[-1] + change * (1 + 1 / (2 * PARTS))  # the last mean is of half a part ago


def tenant_trends(rules: Sequence[AlertRule], now: datetime) -> Found:
    """Judges quotas and budgets. It also writes their course."""
    levels = tenant_levels({rule.signal for rule in rules}, now)
    _sample(levels, now)
    found: dict[UUID, list[Measured]] = {}
    for rule in rules:
        means = _sampled(rule, now)
        rows = []
        for one in levels[rule.signal]:
            value = value_of(rule, means.get(one.subject_id, ()))
            rows.append(one.with_value(value))
        found[rule.pk] = [one for one in rows if in_scope(rule, one)]
    return found


def _sample(levels: dict[str, list[Measured]], now: datetime) -> None:
    newest = set(SignalSample.objects.filter(signal__in=levels, at__gt=now - SAMPLE_EVERY, at__lte=now).values_list("signal", "subject_id"))
    new = [
        SignalSample(signal=signal, subject_id=one.subject_id, at=now, value=one.value)
        for signal, rows in levels.items()
        for one in rows
        if one.value is not None and (signal, one.subject_id) not in newest
    ]
    SignalSample.objects.bulk_create(new)


def _sampled(rule: AlertRule, now: datetime) -> dict[UUID, Means]:
    since = now - timedelta(seconds=rule.window_s)
    parts: dict[UUID, list[list[float]]] = defaultdict(lambda: [[] for _ in range(PARTS)])
    rows = SignalSample.objects.filter(signal=rule.signal, at__gt=since, at__lte=now).order_by()
    for subject_id, at, value in rows.values_list("subject_id", "at", "value"):
        parts[subject_id][min(int((at - since).total_seconds() * PARTS / rule.window_s), PARTS - 1)].append(value)
    return {key: [sum(part) / len(part) if part else None for part in of] for key, of in parts.items()}
