"""Shows one alert: its life, what to do, its subjects, and the course of its signal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from core.pages import words
from core.pages.parts import Fact, ListFoot
from inventory.models import Gpu
from observability.alerts.models import Alert, AlertState, AlertSubject, RuleKind, SubjectState
from observability.alerts.selectors import alert_for, subjects_of
from observability.alerts.signals import SIGNALS, Subject
from observability.alerts.silences import Silences
from observability.alerts.telling import condition_words
from observability.telemetry.selectors import SERIES_NAMES, course_of
from portal_shared.access import PageRequest, moment_formatter, why_not_write
from portal_shared.parts.alerts.listing import AlertRow, may_change_row, value_words
from portal_shared.parts.gpu_courses import UNBROKEN_STEPS
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.parts.portals import Portal
from portal_shared.shell import Shell

AROUND: Final = timedelta(minutes=20)  # of the course, before the alert and after it
POINTS_MAX: Final = 180
SUBJECT_ORDER: Final = ("name", "id")
TONES: Final = {"error": "bad", "warning": "late"}


@dataclass(frozen=True, slots=True)
class SubjectRow:
    id: int
    name: str
    url: str
    state: str
    css: str
    since_at: datetime
    over_at: datetime | None
    first: str
    worst: str


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    at: datetime
    value: str


@dataclass(frozen=True, slots=True)
class AlertPage:
    shell: Shell
    row: AlertRow
    facts: tuple[Fact, ...]
    condition: str
    runbook: str
    life: tuple[tuple[datetime, str], ...]
    subjects: tuple[SubjectRow, ...]
    foot: ListFoot
    series: tuple[SeriesPoint, ...]
    longest_s: int
    series_of: str
    series_label: str
    level: str  # "": the rule's is no value, but how far it moves
    unit: str
    url: str
    head_url: str
    list_url: str
    read_only: str

    @classmethod
    def build(cls, request: PageRequest, portal: Portal, pk: UUID) -> AlertPage:
        alert = alert_for(request.user, pk)
        url = portal.url("alert", pk)
        found = page_of(request, subjects_of(alert), ordering=SUBJECT_ORDER)
        row = AlertRow.of(alert, portal, may_change=may_change_row(request, alert), is_silenced=Silences([alert], request.now).has(alert))
        signal = SIGNALS[alert.rule.signal]
        worst = subjects_of(alert).order_by("-worst" if alert.rule.direction == "above" else "worst", "pk").first()
        series, step_s = _series(request, alert, worst) if worst is not None else ([], 0)
        return cls(
            shell=portal.shell_of(request, "alerts"),
            row=row,
            facts=tuple(_facts(alert, row)),
            condition=condition_words(alert.rule),
            runbook=alert.rule.runbook,
            life=tuple(_life(alert, request)),
            subjects=tuple(_subject(one, alert, portal) for one in found.rows),
            foot=foot_of(found, url),
            series=tuple(series),
            longest_s=UNBROKEN_STEPS * step_s,
            series_of=worst.name if worst is not None else "",
            series_label=signal.label,
            level="" if alert.rule.kind == RuleKind.TREND else f"{alert.rule.level:g}",
            unit=signal.unit,
            url=url_with(url, {"cursor": request.GET.get("cursor", ""), "part": "body"}),
            head_url=url_with(url, {"part": "head"}),
            list_url=portal.url("alerts"),
            read_only=why_not_write(request),
        )


def _facts(alert: Alert, row: AlertRow) -> Iterator[Fact]:
    yield Fact("State", row.state, "silenced" if row.is_silenced else "", tone=row.css if alert.state != AlertState.RESOLVED else "good")
    yield Fact("Severity", alert.get_severity_display(), tone=TONES.get(alert.severity, ""))
    yield Fact("Firing now", str(alert.firing_count), f"{alert.most_count} at most" if alert.most_count > alert.firing_count else "")
    yield Fact("Worst", row.worst)
    if row.box:
        yield Fact("Box", row.box, row.mark.name if row.mark else "", url=row.box_url)
    elif row.mark:
        yield Fact("Workspace", row.mark.name)
    elif alert.cluster is not None:
        yield Fact("Cluster", alert.cluster.name)
    yield Fact("Owner", row.owner or "nobody", row.note)


def _life(alert: Alert, request: PageRequest) -> Iterator[tuple[datetime, str]]:
    say = moment_formatter(request)
    yield alert.began_at, "It began"
    if alert.fired_at is not None:
        yield alert.fired_at, "It fired"
    if alert.told_at is not None:
        yield alert.told_at, "People were told"
    if alert.acknowledged_at is not None and alert.owner is not None:
        yield alert.acknowledged_at, f"{alert.owner.name} took care of it{f': {alert.note}' if alert.note else ''}"
    if alert.resolved_at is not None:
        lasted = words.duration((alert.resolved_at - alert.began_at).total_seconds())
        yield alert.resolved_at, f"It was over after {lasted}, at {say(alert.resolved_at)}. {alert.resolved_why}".strip()


def _page_of(one: AlertSubject, kind: Subject, portal: Portal) -> str:
    match kind:
        case Subject.GPU:
            return portal.url("gpu", one.subject_id)
        case Subject.GPR:
            return portal.request_url(one.subject_id)
        case Subject.NODE if portal.is_admin:
            return portal.url("node", one.subject_id)
        case _:
            return ""


def _subject(one: AlertSubject, alert: Alert, portal: Portal) -> SubjectRow:
    state = SubjectState(one.state)
    return SubjectRow(
        id=one.pk,
        name=one.name,
        url=_page_of(one, SIGNALS[alert.rule.signal].subject, portal),
        state=f"{state.label}, severe" if one.is_severe and state == SubjectState.FIRING else state.label,
        css="late" if state == SubjectState.FIRING else "",
        since_at=one.since_at,
        over_at=one.over_at,
        first=value_words(alert.rule, one.first),
        worst=value_words(alert.rule, one.worst),
    )


def _series(request: PageRequest, alert: Alert, subject: AlertSubject) -> tuple[list[SeriesPoint], int]:
    """Returns the series that the reader may see, and their step in seconds; members see the time of their boxes."""
    gpu = Gpu.objects.filter(pk=subject.subject_id).first() if alert.rule.signal in SERIES_NAMES else None
    if gpu is None:
        return [], 0
    until = min(request.now, (subject.over_at or request.now) + AROUND)
    since = min(subject.since_at, until) - AROUND
    course = course_of(request.user, gpu, since=since, until=until, step_s=None, now=request.now)
    there = [(point["at"], point[alert.rule.signal]) for point in course.points if point[alert.rule.signal] is not None]
    per_row = -(-len(there) // POINTS_MAX) or 1
    pick = max if alert.rule.direction == "above" else min
    rows = [there[first : first + per_row] for first in range(0, len(there), per_row)]
    return [SeriesPoint(row[0][0], f"{pick(value for _, value in row):g}") for row in rows], course.step_s * per_row
