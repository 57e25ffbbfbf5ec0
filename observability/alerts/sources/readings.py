"""Judges the newest readings: levels, and how long there was none. It runs one query for all rules, which returns only readings that may
matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db.models import Case, F, FloatField, Q, Value, When

from gpr.allocation.absence import was_just_away
from gpr.models import GprState
from observability.alerts.models import AlertRule, Direction, RuleKind
from observability.alerts.signals import POWER
from observability.alerts.sources.measured import (
    Found,
    GpuPlace,
    Measured,
    RulesByWatched,
    in_scope,
    open_subjects,
    place_columns,
    with_boxes,
)
from observability.models import LatestReading
from protocol.gpus.telemetry import STALE_S

# Most power of a board in watts, by the beginning of its shape, as its vendor's data sheet says. The longest beginning counts.
BOARD_W: Final = {
    "A10": 150, "A100": 400, "A30": 165, "A40": 300, "B200": 1000, "B300": 1400, "GB200": 1200, "H100": 700, "H200": 700,
    "L4": 72, "L40": 300, "L40S": 350, "MI250X": 560, "MI300X": 750, "MI325X": 1000, "MI355X": 1400, "T4": 70, "V100": 300,
}  # fmt: skip
_UP, _HEARD = "gpu__node__is_ready", "gpu__node__cluster__agent__last_sync_at__gt"


def gpu_readings(rules: Sequence[AlertRule], now: datetime) -> Found:
    fresh_at = now - timedelta(seconds=STALE_S)
    wanted = Q(gpu__in=open_subjects(rules))
    for alike in _alike(rules):
        wanted |= _may_matter(alike, now, fresh_at)
    by_watched = RulesByWatched(rules)
    names = sorted({rule.signal for rule in rules if rule.kind == RuleKind.THRESHOLD})
    up = Q(**{_UP: True, _HEARD: now - timedelta(seconds=settings.EGS_AGENT_UNREACHABLE_S)})
    rows = with_boxes(LatestReading.objects.all(), "gpu__").annotate(**_computed(names))
    rows = rows.annotate(is_up=Case(When(up, then=Value(True)), default=Value(False))).filter(wanted)
    # A silent cluster has an alert of its own, and after an outage of EGS itself agents get time.
    is_late = not was_just_away(now=now)
    found: dict[UUID, list[Measured]] = defaultdict(list)
    for gpu_id, at, is_up, *rest in rows.values_list("gpu_id", "at", "is_up", *place_columns("gpu__"), *names):
        place = GpuPlace(gpu_id, *rest[: -len(names) or None])
        values = dict(zip(names, rest[-len(names) :], strict=True)) if names else {}
        for rule in by_watched.watching(place.slice_id):
            one = _measured(rule, place, at, values, is_fresh=at > fresh_at, is_up=is_up and is_late, now=now)
            if one is not None and in_scope(rule, one):
                found[rule.pk].append(one)
    return found


def _computed(names: Sequence[str]) -> dict[str, Any]:
    if POWER not in names:
        return {}
    longest_first = sorted(BOARD_W.items(), key=lambda item: -len(item[0]))
    limits = (
        When(Q(gpu__node__shape=name) | Q(gpu__node__shape__startswith=f"{name}-"), then=Value(watts)) for name, watts in longest_first
    )
    limit = Case(*limits, default=None, output_field=FloatField())
    return {POWER: F("power_w") * 100.0 / limit}


def _alike(rules: Sequence[AlertRule]) -> list[list[AlertRule]]:
    """Returns one condition for rules that all workspaces share: a database takes no expression with a part for each rule."""
    alike: dict[tuple[Any, ...], list[AlertRule]] = defaultdict(list)
    for rule in rules:
        place = None if rule.slice_id else (rule.cluster_id, rule.shape)
        alike[place, rule.signal, rule.kind, rule.direction].append(rule)
    return list(alike.values())


def _may_matter(alike: Sequence[AlertRule], now: datetime, fresh_at: datetime) -> Q:
    """Selects readings that may be beyond the loosest level of these rules."""
    rule, scope = alike[0], Q()
    is_above = rule.direction == Direction.ABOVE
    level = (min if is_above else max)(each.level for each in alike)
    if rule.slice_id:
        scope &= Q(box__reservation__slice__in={each.slice_id for each in alike})
    else:
        if rule.cluster_id:
            scope &= Q(gpu__node__cluster=rule.cluster_id)
        if rule.shape:
            scope &= Q(gpu__node__shape=rule.shape)
    if rule.kind == RuleKind.ABSENCE:
        return scope & Q(at__lte=now - timedelta(seconds=level))
    if not is_above:  # a GPU that is in no active box has nothing to do
        return scope & Q(box__reservation__gpr__state=GprState.ACTIVE, at__gt=fresh_at, **{f"{rule.signal}__lte": level})
    return scope & Q(at__gt=fresh_at, **{f"{rule.signal}__gte": level})


def _measured(
    rule: AlertRule, place: GpuPlace, at: datetime, values: dict[str, float | None], *, is_fresh: bool, is_up: bool, now: datetime
) -> Measured | None:
    if rule.kind == RuleKind.ABSENCE:
        age_s = (now - at).total_seconds() if is_up else None
        return place.measured(age_s, box_value=age_s if place.held_since(at) else None)
    if rule.direction == Direction.BELOW and not place.is_active:
        return None
    value = values[rule.signal] if is_fresh else None
    return place.measured(value, box_value=value if place.held_since(at) else None)
