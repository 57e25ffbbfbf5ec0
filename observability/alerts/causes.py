"""Puts subjects into alerts: what has one cause is one alert."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

from core.words import number
from observability.alerts.models import Alert, AlertRule, AlertState, AlertSubject, SubjectState
from observability.alerts.signals import SIGNALS, Subject
from observability.alerts.sources.measured import Measured

# Faults in one cluster within this time have one cause.
TOGETHER: Final = timedelta(minutes=5)
NAMED_MOST: Final = 3
PLACES_MAX_CHARS: Final = 200


class OpenAlerts:
    """Holds the open alerts of some rules, and which subjects are in them."""

    def __init__(self, alerts: Iterable[Alert], subjects: Iterable[AlertSubject]) -> None:
        self.by_id = {alert.pk: alert for alert in alerts}
        self._of_rule: dict[UUID, list[Alert]] = defaultdict(list)
        for alert in self.by_id.values():
            self._of_rule[alert.rule_id].append(alert)
        self._nodes = {(subject.alert_id, subject.node_id) for subject in subjects if subject.node_id}

    def join(self, rule: AlertRule, of: Measured, *, is_of_box: bool, now: datetime) -> Alert:
        """Returns the alert of the same cause, or a new one."""
        slice_id, gpr_id = (of.slice_id, of.gpr_id) if is_of_box else (None, None)
        cluster_id = None if is_of_box else of.cluster_id
        mates = [one for one in self._of_rule[rule.pk] if (one.slice_id, one.gpr_id, one.cluster_id) == (slice_id, gpr_id, cluster_id)]
        alert = self._of_same_cause(rule, mates, of, now)
        if alert is None:
            alert = Alert(
                id=uuid4(), rule=rule, slice_id=slice_id, gpr_id=gpr_id, cluster_id=cluster_id, severity=rule.severity, began_at=now
            )
            self.by_id[alert.pk] = alert
            self._of_rule[rule.pk].append(alert)
        alert.joined_at = now
        if of.node_id:
            self._nodes.add((alert.pk, of.node_id))
        return alert

    def _of_same_cause(self, rule: AlertRule, mates: Sequence[Alert], of: Measured, now: datetime) -> Alert | None:
        kind = SIGNALS[rule.signal].subject
        if kind in (Subject.QUOTA, Subject.BUDGET):
            return None
        on_node = next((one for one in mates if (one.pk, of.node_id) in self._nodes), None)
        is_whole = kind == Subject.GPR or (of.gpr_id is not None and any(one.gpr_id for one in mates))
        return on_node or next((one for one in mates if is_whole or now - one.joined_at <= TOGETHER), None)


def settle(alert: Alert, subjects: Sequence[AlertSubject], now: datetime) -> None:
    """Brings the alert up to what its subjects say. `subjects`: those that are not over."""
    firing = [subject for subject in subjects if subject.state == SubjectState.FIRING]
    alert.firing_count, alert.most_count = len(firing), max(alert.most_count, len(firing))
    shown = firing or subjects
    if shown:
        alert.places = places_of([subject.name for subject in shown])
        rule, worst = alert.rule, alert.worst
        for subject in shown:
            worst = subject.worst if worst is None or rule.is_worse(subject.worst, worst) else worst
        alert.worst = worst
    if firing and alert.state == AlertState.PENDING:
        alert.state, alert.fired_at = AlertState.FIRING, now
    if not subjects and alert.fired_at is not None:
        alert.state, alert.resolved_at = AlertState.RESOLVED, now


def places_of(names: Sequence[str]) -> str:
    """Returns e.g. `node-1 GPU 0, node-1 GPU 1 and 38 others`."""
    ordered = sorted(names)
    named, more = ordered[:NAMED_MOST], len(ordered) - NAMED_MOST
    tail = f" and {number(more)} others" if more > 1 else " and 1 other" if more == 1 else ""
    return f"{', '.join(named)[: PLACES_MAX_CHARS - len(tail)]}{tail}"
