"""Moves the subjects of an alert on by their values. It is pure: no query.

Noise makes nothing flap: what is pending or fires ends only beyond `clear_level`, and fires only after `hold_s` on the bad side of it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from observability.alerts.models import AlertRule, AlertSubject, Direction, SubjectState
from observability.alerts.signals import SIGNALS

UNMEASURED_MOST: Final = timedelta(minutes=15)  # how long an alert stands without values
GROWTH: Final = 0.1  # of a time; what is less is not noted


class SubjectChange(Enum):
    NONE = auto()
    CHANGED = auto()
    FIRES = auto()
    WORSENS = auto()  # it has become severe
    ENDS = auto()
    DROPS = auto()  # it never fired


def begins(rule: AlertRule, value: float | None) -> bool:
    return value is not None and rule.is_beyond(value)


def advance(rule: AlertRule, subject: AlertSubject, value: float | None, now: datetime) -> SubjectChange:
    """Changes the subject in memory."""
    if value is None:
        return _unmeasured(subject, now)
    before = _columns(subject)
    subject.unmeasured_since_at = None
    if _is_worse(rule, value, subject.worst):
        subject.worst = value
    _note_severe(rule, subject, value, now)
    if rule.is_clear(value):
        return _clear(rule, subject, now, before)
    subject.clear_since_at = None
    hold = timedelta(seconds=rule.hold_s)
    is_severe_now = subject.severe_since_at is not None and now - subject.severe_since_at >= hold
    if subject.state == SubjectState.PENDING and rule.is_beyond(value) and now - subject.since_at >= hold:
        subject.state, subject.fired_at, subject.is_severe = SubjectState.FIRING, now, is_severe_now
        return SubjectChange.FIRES
    if subject.state == SubjectState.FIRING and is_severe_now and not subject.is_severe:
        subject.is_severe = True
        return SubjectChange.WORSENS
    return SubjectChange.CHANGED if _columns(subject) != before else SubjectChange.NONE


def end(subject: AlertSubject, now: datetime) -> SubjectChange:
    """Ends a subject whose object is gone."""
    if subject.state == SubjectState.PENDING:
        return SubjectChange.DROPS
    subject.state, subject.over_at = SubjectState.OVER, now
    return SubjectChange.ENDS


def _unmeasured(subject: AlertSubject, now: datetime) -> SubjectChange:
    if subject.state == SubjectState.PENDING:
        return SubjectChange.DROPS
    if subject.unmeasured_since_at is None:
        subject.unmeasured_since_at = now
        return SubjectChange.CHANGED
    return end(subject, now) if now - subject.unmeasured_since_at >= UNMEASURED_MOST else SubjectChange.NONE


def _is_worse(rule: AlertRule, value: float, worst: float) -> bool:
    """A time grows by itself from pass to pass, which is not worth a write each."""
    least = GROWTH * abs(worst) if SIGNALS[rule.signal].unit == "s" else 0.0
    return rule.is_worse(value, worst + least if rule.direction == Direction.ABOVE else worst - least)


def _note_severe(rule: AlertRule, subject: AlertSubject, value: float, now: datetime) -> None:
    if rule.severe_level is None:
        return
    if rule.is_beyond(value, rule.severe_level):
        subject.severe_since_at = subject.severe_since_at or now
    elif not rule.is_beyond(value, rule.severe_level - (rule.level - rule.clear_level)):
        subject.severe_since_at = None


def _clear(rule: AlertRule, subject: AlertSubject, now: datetime, before: tuple[object, ...]) -> SubjectChange:
    if subject.state == SubjectState.PENDING:
        return SubjectChange.DROPS
    subject.clear_since_at = subject.clear_since_at or now
    if now - subject.clear_since_at >= timedelta(seconds=rule.clear_s):
        return end(subject, now)
    return SubjectChange.CHANGED if _columns(subject) != before else SubjectChange.NONE


def _columns(subject: AlertSubject) -> tuple[object, ...]:
    return (subject.worst, subject.severe_since_at, subject.clear_since_at, subject.unmeasured_since_at)
