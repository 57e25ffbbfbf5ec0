"""Judges all rules every few seconds.

One process at a time evaluates, in one transaction under a lock, so a killed process leaves nothing half done. Each source is its own
transaction, and one that fails stops no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction

from core.locks import single_runner, transaction_lock
from core.written_sql import rows_update
from journal.guard import Attempt, set_aside_on_error
from journal.hints import ALERTS, hint, slice_topic
from journal.models import Severity
from observability.alerts.causes import OpenAlerts, settle
from observability.alerts.defaults import defaults_ensure
from observability.alerts.judging import SubjectChange, advance, begins, end
from observability.alerts.models import WINDOW_MOST_S, Alert, AlertRule, AlertState, AlertSubject, RuleKind, SignalSample, SubjectState
from observability.alerts.signals import BEHIND, SIGNALS, Subject
from observability.alerts.sources.counters import counters_advance, gpu_counts
from observability.alerts.sources.fleet import clusters, nodes
from observability.alerts.sources.measured import Measured, Source
from observability.alerts.sources.peers import behind_peers
from observability.alerts.sources.readings import gpu_readings
from observability.alerts.sources.tenants import requests, tenants
from observability.alerts.sources.trends import gpu_trends, is_due, tenant_trends
from observability.alerts.telling import tell

LOCK: Final = "egs.alerts"
STEP: Final = "egs.alerts_step"  # another lock: who holds this one takes the other by another connection
KEPT: Final = timedelta(days=90)  # resolved alerts
PRUNED_AT_ONCE: Final = 1000
_TRENDS: Final = (RuleKind.TREND, RuleKind.FORECAST)
_BY_SUBJECT: Final[dict[Subject, Source]] = {
    Subject.NODE: nodes,
    Subject.CLUSTER: clusters,
    Subject.GPR: requests,
    Subject.QUOTA: tenants,
    Subject.BUDGET: tenants,
}


def alerts_step(*, now: datetime) -> None:
    """It is correct however often it runs, and by how many."""
    with single_runner(STEP) as is_mine:
        if is_mine:
            alerts_evaluate(now=now)


def alerts_evaluate(*, now: datetime) -> None:
    defaults_ensure(now=now)
    with _guard("counters", now), transaction.atomic():
        transaction_lock(LOCK)
        counters_advance(now=now)
    due = _spread([rule for rule in AlertRule.objects.filter(is_on=True) if is_due(rule, now)])
    for source in dict.fromkeys(map(source_of, due)):
        with _guard(source.__name__, now), transaction.atomic():
            transaction_lock(LOCK)
            judge(source, [rule for rule in due if source_of(rule) is source], now)
    with _guard("ends", now), transaction.atomic():
        transaction_lock(LOCK)
        _end_what_is_off(now)
        tell(now=now)
        _prune(now)


def _spread(due: Sequence[AlertRule]) -> list[AlertRule]:
    """Begins with one trend of GPUs in a pass. These cost most, and two that began apart are seldom due together."""
    new = [rule for rule in due if rule.judged_at is None and source_of(rule) is gpu_trends]
    return [rule for rule in due if rule not in new[1:]]


def _guard(code: str, now: datetime) -> AbstractContextManager[Attempt]:
    return set_aside_on_error(f"alerts_{code}", "Some alerts could not be judged", now=now)


def source_of(rule: AlertRule) -> Source:
    subject = SIGNALS[rule.signal].subject
    if rule.kind in _TRENDS:
        return gpu_trends if subject is Subject.GPU else tenant_trends
    if rule.signal == BEHIND:
        return behind_peers
    if subject is Subject.GPU:
        return gpu_counts if rule.kind == RuleKind.RATE else gpu_readings
    return _BY_SUBJECT[subject]


def judge(source: Source, rules: Sequence[AlertRule], now: datetime) -> None:
    """`rules`: all of this source that are due. The caller holds the lock of all alerts."""
    found = source(rules, now)
    subjects = list(AlertSubject.objects.filter(rule__in=[rule.pk for rule in rules]).exclude(state=SubjectState.OVER))
    known: dict[UUID, dict[str, AlertSubject]] = defaultdict(dict)
    for subject in subjects:
        known[subject.rule_id][subject.key] = subject
    alerts = Alert.objects.filter(rule__in=[rule.pk for rule in rules]).exclude(state=AlertState.RESOLVED)
    book = _Book(OpenAlerts(alerts, subjects), subjects, {rule.pk: rule for rule in rules}, now)
    for rule in rules:
        book.judge(rule, known[rule.pk], found.get(rule.pk, ()))
    book.write()
    AlertRule.objects.filter(pk__in=[rule.pk for rule in rules if rule.kind in _TRENDS]).update(judged_at=now)


class _Book:
    """Collects what changes, and writes it with some statements, however much it is."""

    def __init__(self, alerts: OpenAlerts, subjects: Sequence[AlertSubject], rules: dict[UUID, AlertRule], now: datetime) -> None:
        self._alerts, self._rules, self._now = alerts, rules, now
        self._stored = set(alerts.by_id)
        self._of: dict[UUID, dict[str, AlertSubject]] = defaultdict(dict)
        for subject in subjects:
            self._of[subject.alert_id][subject.key] = subject
        self._new: list[AlertSubject] = []
        self._changed: list[AlertSubject] = []
        self._dropped: list[AlertSubject] = []
        self._touched: set[UUID] = set()

    def judge(self, rule: AlertRule, known: dict[str, AlertSubject], found: Sequence[Measured]) -> None:
        left = dict(known)
        for one in found:
            if rule.is_for_admins:
                self._advance(rule, left, one, str(one.subject_id), one.value, is_of_box=False)
            if rule.is_for_boxes and one.slice_id is not None:
                key = f"{one.subject_id}/{one.gpr_id or one.slice_id}"
                self._advance(rule, left, one, key, one.box_value, is_of_box=True)
        for subject in left.values():
            self._move(subject, end(subject, self._now))

    def _advance(
        self, rule: AlertRule, left: dict[str, AlertSubject], one: Measured, key: str, value: float | None, *, is_of_box: bool
    ) -> None:
        subject = left.pop(key, None)
        if subject is None and value is not None and begins(rule, value):
            alert = self._alerts.join(rule, one, is_of_box=is_of_box, now=self._now)
            subject = AlertSubject(
                alert=alert, rule=rule, subject_id=one.subject_id, node_id=one.node_id, key=key, name=one.name,
                since_at=self._now, first=value, worst=value,
            )  # fmt: skip
            self._new.append(subject)
            self._of[alert.pk][key] = subject
            self._touched.add(alert.pk)
            advance(rule, subject, value, self._now)  # without a hold it fires at once
        elif subject is not None:
            self._move(subject, advance(rule, subject, value, self._now))

    def _move(self, subject: AlertSubject, move: SubjectChange) -> None:
        if move is SubjectChange.NONE:
            return
        (self._dropped if move is SubjectChange.DROPS else self._changed).append(subject)
        self._touched.add(subject.alert_id)
        if move in (SubjectChange.DROPS, SubjectChange.ENDS):
            del self._of[subject.alert_id][subject.key]

    def write(self) -> None:
        alerts = [self._alerts.by_id[pk] for pk in self._touched]
        for alert in alerts:
            alert.rule = self._rules[alert.rule_id]
            self._settle(alert)
        kept = [alert for alert in alerts if alert.fired_at is not None or self._of[alert.pk]]
        gone = [alert.pk for alert in alerts if alert.pk in self._stored and alert not in kept]
        Alert.objects.bulk_create([alert for alert in kept if alert.pk not in self._stored])
        rows_update([alert for alert in kept if alert.pk in self._stored], _ALERT_COLUMNS)
        AlertSubject.objects.bulk_create(self._new, batch_size=2000)
        rows_update(self._changed, _SUBJECT_COLUMNS)
        AlertSubject.objects.filter(pk__in=[subject.pk for subject in self._dropped]).delete()
        Alert.objects.filter(pk__in=gone).delete()
        hint(*{slice_topic(alert.slice_id) if alert.slice_id else ALERTS for alert in alerts})

    def _settle(self, alert: Alert) -> None:
        subjects = list(self._of[alert.pk].values())
        settle(alert, subjects, self._now)
        if alert.state == AlertState.RESOLVED:
            return
        if alert.severity != Severity.ERROR and any(subject.is_severe for subject in subjects):
            # Worse than what was told, or acknowledged.
            alert.severity, alert.told_at, alert.told_count = Severity.ERROR, None, 0
            if alert.state == AlertState.ACKNOWLEDGED:
                alert.state = AlertState.FIRING


_ALERT_COLUMNS: Final = [
    "state", "severity", "joined_at", "fired_at", "resolved_at", "places", "firing_count", "most_count", "worst", "told_at", "told_count",
]  # fmt: skip
_SUBJECT_COLUMNS: Final = [
    "state", "fired_at", "severe_since_at", "is_severe", "clear_since_at", "unmeasured_since_at", "over_at", "worst",
]  # fmt: skip


def _end_what_is_off(now: datetime) -> None:
    """Alerts of rules that were switched off."""
    off = Alert.objects.filter(rule__is_on=False).exclude(state=AlertState.RESOLVED)
    ids = list(off.values_list("pk", flat=True))
    if not ids:
        return
    AlertSubject.objects.filter(alert__in=ids, state=SubjectState.PENDING).delete()
    AlertSubject.objects.filter(alert__in=ids, state=SubjectState.FIRING).update(state=SubjectState.OVER, over_at=now)
    Alert.objects.filter(pk__in=ids, fired_at=None).delete()
    fired = Alert.objects.filter(pk__in=ids)
    fired.update(state=AlertState.RESOLVED, resolved_at=now, resolved_why="The rule was switched off.", firing_count=0)
    hint(ALERTS, *(slice_topic(slice_id) for slice_id in fired.exclude(slice=None).values_list("slice", flat=True)))


def _prune(now: datetime) -> None:
    old = Alert.objects.filter(resolved_at__lt=now - KEPT).order_by("resolved_at")
    Alert.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:PRUNED_AT_ONCE])).delete()
    SignalSample.objects.filter(at__lt=now - timedelta(seconds=WINDOW_MOST_S)).delete()
