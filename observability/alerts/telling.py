"""Tells people of alerts: once when one fires, when it grows, when it gets worse, and when it is over.

The Event is written in the transaction that marks the alert as told, so it is written once whoever is killed.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Count, F

from core.words import duration_exact, number
from journal.models import Event, Severity
from journal.services import events_record
from observability.alerts.models import Alert, AlertRule, AlertState, Direction, RuleKind, Tells
from observability.alerts.signals import LENGTHS, SIGNALS
from observability.alerts.silences import Silences

GATHER: Final = timedelta(seconds=30)  # what has the same cause may join until then
GROWS_AFTER: Final = timedelta(minutes=10)
PER: Final = timedelta(hours=1)
TOLD_MOST: Final = 10  # alerts of one rule in that time, for administrators or for one workspace; others wait


def tell(*, now: datetime) -> None:
    """Runs some queries, whatever the number of alerts. The caller holds the lock of all alerts."""
    rows = Alert.objects.exclude(rule__tells=Tells.NOBODY).select_related("rule", "gpr", "slice", "cluster")
    new = list(rows.filter(state=AlertState.FIRING, told_at=None, fired_at__lte=now - GATHER).order_by("fired_at", "pk"))
    open_states = [AlertState.FIRING, AlertState.ACKNOWLEDGED]
    grown = list(
        rows.filter(state__in=open_states, told_at__lte=now - GROWS_AFTER, firing_count__gte=F("told_count") * 2).order_by("fired_at", "pk")
    )
    over = list(rows.filter(state=AlertState.RESOLVED, told_count__gt=0).order_by("resolved_at", "pk"))
    if not (new or grown or over):
        return
    silences = Silences([*new, *grown, *over], now)
    room = _Room(now)
    new = [alert for alert in new if not silences.has(alert) and room.has_for(alert)]
    grown = [alert for alert in grown if not silences.has(alert)]
    events = [*(_event(alert, "fired", now) for alert in new), *(_event(alert, "grew", now) for alert in grown)]
    events += [_event(alert, "resolved", now) for alert in over if not silences.has(alert)]
    events_record(events)
    for alert in (*new, *grown):
        alert.told_at, alert.told_count = now, alert.firing_count
    for alert in over:
        alert.told_count = 0
    Alert.objects.bulk_update((*new, *grown, *over), ["told_at", "told_count"], batch_size=500)


class _Room:
    """Counts how many more alerts of a rule may be told now."""

    def __init__(self, now: datetime) -> None:
        told = Alert.objects.filter(told_at__gt=now - PER).order_by().values_list("rule", "slice").annotate(n=Count("pk"))
        self._told: Counter[tuple[UUID, UUID | None]] = Counter({(rule_id, slice_id): n for rule_id, slice_id, n in told})

    def has_for(self, alert: Alert) -> bool:
        key = (alert.rule_id, alert.slice_id)
        self._told[key] += 1
        return self._told[key] <= TOLD_MOST


KINDS: Final = {
    "admins": {"fired": "alert.fired", "grew": "alert.grew", "resolved": "alert.resolved"},
    "box": {"fired": "gpr.alert_fired", "grew": "gpr.alert_grew", "resolved": "gpr.alert_resolved"},
    "workspace": {"fired": "slice.alert_fired", "grew": "slice.alert_grew", "resolved": "slice.alert_resolved"},
}


def _event(alert: Alert, what: str, now: datetime) -> Event:
    audience = "box" if alert.gpr_id else "workspace" if alert.slice_id else "admins"
    return Event(
        kind=KINDS[audience][what],
        message=_message(alert, what),
        at=now,
        severity=Severity.INFO if what == "resolved" else alert.severity,
        reason=alert.rule.code,
        gpr_id=alert.gpr_id,
        slice_id=alert.slice_id,
        cluster_id=alert.cluster_id,
        data={"alert": str(alert.pk), "rule": alert.rule.name, "count": alert.firing_count},
    )


def _message(alert: Alert, what: str) -> str:
    if what == "resolved":
        lasted = duration_exact(int(((alert.resolved_at or alert.began_at) - alert.began_at).total_seconds()))
        return f"Over after {lasted}: {alert.rule.name}. {alert.places}."
    grew = f", now {number(alert.firing_count)}" if what == "grew" else ""
    where = f" in cluster {alert.cluster.name}" if alert.cluster is not None and alert.cluster.name not in alert.places else ""
    return f"{alert.rule.name}{grew}: {alert.places}{where}. {condition_words(alert.rule)}. {alert.rule.runbook}"


def condition_words(rule: AlertRule) -> str:
    """Returns e.g. `Temperature is 83 °C or more for 2 min`."""
    signal = SIGNALS[rule.signal]
    level = f"{number(rule.level)} {signal.unit}".rstrip()
    window = duration_exact(rule.window_s)
    more = "more" if rule.direction == Direction.ABOVE else "less"
    moves = "rises" if rule.direction == Direction.ABOVE else "changes"
    said = {
        RuleKind.THRESHOLD: f"{signal.label} is {level} or {more}",
        RuleKind.RATE: f"{signal.label}: {level} or more within {window}",
        RuleKind.TREND: f"{signal.label} {moves} by {level} or {more} within {window}, steadily",
        RuleKind.FORECAST: f"{signal.label} would be {level} or {more} in {window}",
        RuleKind.ABSENCE: f"{signal.label}: nothing for {duration_exact(int(rule.level))}",
    }[RuleKind(rule.kind)]
    if rule.signal in LENGTHS:
        said = f"{signal.label} is {duration_exact(int(rule.level))} or more"
    return f"{said} for {duration_exact(rule.hold_s)}" if rule.hold_s else said
