"""Shows what happened to GPUs as lines in their charts: boxes that took them and gave them back, checks, faults, Xids and alerts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from accounts.models import User
from core.pages import words
from inventory.models import StepResult
from observability.alerts.selectors import alerts_of_gpus
from observability.remediation.counts import xids_counted
from observability.telemetry.selectors import BoxSpan, ReadingCourse, sees_all_readings
from protocol.agents.events import Outcome
from protocol.gpus.xids import XIDS
from protocol.nodes.steps import EntryStep

MARKS_MAX: Final = 100
ENTRY_STEPS: Final = frozenset(EntryStep)
NamedCourses = Mapping[UUID, tuple[str, ReadingCourse]]  # by id of GPU; a name of "" is not said


@dataclass(frozen=True, slots=True)
class CourseMark:
    at: datetime
    text: str
    kind: str  # entry, exit, fault, check, failed or alert


def marks_of(actor: User, courses: NamedCourses) -> list[CourseMark]:
    """Returns the newest MARKS_MAX, in order."""
    if not courses:
        return []
    made = {mark for name, course in courses.values() for mark in _own_marks(name, course)}
    made.update(_check_marks(course for _, course in courses.values()))
    made.update(_xid_marks(actor, courses))
    made.update(_alert_marks(actor, courses))
    return sorted(made, key=lambda mark: (mark.at, mark.text))[-MARKS_MAX:]


def _own_marks(name: str, course: ReadingCourse) -> Iterator[CourseMark]:
    for span in course.spans:
        if span.since_at >= course.since_at:
            yield CourseMark(span.since_at, f"{span.gpr} of {span.slice} took {'it' if not name else 'its GPUs'}", "entry")
        if span.until_at:
            yield CourseMark(span.until_at, f"{span.gpr} of {span.slice} gave {'it' if not name else 'its GPUs'} back", "exit")
    for point in course.points:
        if point["new_faults"]:
            yield CourseMark(
                point["at"], _of(name, words.plural(point["new_faults"], "new fault") + ", by its counters or an Xid"), "fault"
            )


def _of(name: str, text: str) -> str:
    return f"{name}: {text}" if name else text


def _xid_marks(actor: User, courses: NamedCourses) -> Iterator[CourseMark]:
    sees_all, (since, until) = sees_all_readings(actor), _time_of(courses)
    for gpu_id, before_at, at, number, count in xids_counted(courses, since=since, until=until):
        name, course = courses[gpu_id]
        if sees_all or any(span.since_at <= before_at and (span.until_at is None or at <= span.until_at) for span in course.spans):
            said = f"Xid {number}" + (f", {XIDS[number].text}" if number in XIDS else "") + (f", {count} times" if count > 1 else "")
            yield CourseMark(at, _of(name, said), "fault")


def _time_of(courses: NamedCourses) -> tuple[datetime, datetime]:
    course = next(course for _, course in courses.values())
    return course.since_at, course.until_at


def _alert_marks(actor: User, courses: NamedCourses) -> Iterator[CourseMark]:
    since, until = _time_of(courses)
    for one in alerts_of_gpus(actor, courses, since=since, until=until)[:MARKS_MAX]:
        name = courses[one.subject_id][0]
        if one.since_at >= since:
            yield CourseMark(one.since_at, _of(name, f"Alert: {one.rule.name}"), "alert")
        if one.over_at is not None:
            yield CourseMark(one.over_at, _of(name, f"Over: {one.rule.name}"), "check")


def _check_marks(courses: Iterable[ReadingCourse]) -> list[CourseMark]:
    """Marks the moment in which each box passed its checks, and each failed check."""
    told_of = list(courses)
    boxes: dict[UUID, BoxSpan] = {span.reservation_id: span for course in told_of for span in course.spans}
    if not boxes:
        return []
    since_at = min(course.since_at for course in told_of)
    rows = StepResult.objects.filter(reservation__in=boxes, ended_at__gte=since_at).order_by("ended_at", "pk")
    told = list(rows.values_list("reservation", "step", "outcome", "ended_at"))
    passed = {boxes[box].gpr: at for box, step, outcome, at in told if outcome == Outcome.OK and step in ENTRY_STEPS}
    failed = {(boxes[box].gpr, step, at) for box, step, outcome, at in told if outcome == Outcome.FAILED}
    return [
        *(CourseMark(at, f"{gpr} passed its checks", "check") for gpr, at in passed.items()),
        *(CourseMark(at, f"{gpr} failed the check {step}", "failed") for gpr, step, at in failed),
    ]
