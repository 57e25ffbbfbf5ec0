"""Alerts as rows, for tests of lists and pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

from accounts.models import User
from core.clock import db_now
from observability.alerts.models import Alert, AlertRule, AlertState, AlertSubject
from slices.models import Slice


def rule_of(slice_: Slice | None, owner: User | None, **terms: Any) -> AlertRule:
    given = {"name": "hot", "signal": "temperature_c", "kind": "threshold", "level": 70, "clear_level": 65, "severity": "warning"}
    given |= {"tells": "box" if slice_ else "both", "runbook": "Look at the fans.", "created_at": db_now()}
    return AlertRule.objects.create(slice=slice_, owner=owner, **{**given, **terms})


def alert_of(slice_: Slice | None, owner: User | None, *, rule: AlertRule | None = None, subjects: int = 1, **fields: Any) -> Alert:
    """Makes an alert that fires on some GPUs."""
    at = db_now() - timedelta(minutes=10)
    rule = rule or rule_of(slice_, owner)
    given = {"state": AlertState.FIRING, "severity": rule.severity, "began_at": at, "joined_at": at, "fired_at": at + timedelta(minutes=2)}
    given |= {"places": "aurora-0 GPU 0", "firing_count": subjects, "most_count": subjects, "worst": 74}
    alert = Alert.objects.create(rule=rule, slice=slice_, **{**given, **fields})
    AlertSubject.objects.bulk_create(
        AlertSubject(
            alert=alert,
            rule=rule,
            subject_id=uuid4(),
            key=f"{alert.pk}/{n}",
            name=f"aurora-0 GPU {n}",
            state="FIRING",
            since_at=at,
            fired_at=alert.fired_at,
            first=71,
            worst=74,
        )
        for n in range(subjects)
    )
    return alert
