"""The course of one GPU, and of several in one chart, for both portals: what a reader may know is the selectors' matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse

from accounts.models import User
from core.errors import InvalidInput
from core.pages import words
from core.pages.parts import Fact, Tab
from inventory.models import Gpu, StepResult
from observability.alerts.selectors import alerts_of_gpu
from observability.prometheus.services import sources_by_cluster
from observability.telemetry.selectors import (
    HOT_C,
    BoxSpan,
    ReadingCourse,
    course_of,
    courses_of,
    gpu_known_to,
    gpus_with_readings,
    in_view,
)
from portal_shared.access import PageRequest
from portal_shared.parts.gpus import ORDER, GpuFilters, line_of
from portal_shared.parts.paging import url_with
from portal_shared.parts.portals import Portal
from protocol.agents.events import Outcome
from protocol.nodes.steps import EntryStep

RANGES: Final = {
    "1h": timedelta(hours=1),
    "12h": timedelta(hours=12),
    "7d": timedelta(days=7),
    "90d": timedelta(days=90),
    "1y": timedelta(days=365),
}
KEPT_RANGES: Final = ("1h", "12h", "7d", "90d")
RANGE_WORDS: Final = {"1h": "Hour", "12h": "12 hours", "7d": "7 days", "90d": "90 days", "1y": "Year"}
TWIN_ROWS: Final = 180
COMPARED_MAX: Final = 8
MARKS_MAX: Final = 100
FROM_PROMETHEUS: Final = "from Prometheus"
UNBROKEN_STEPS: Final = 3  # a line goes on over so long a time without readings


@dataclass(frozen=True, slots=True)
class CoursePoint:
    at: datetime
    temperature: str
    use: str
    power: str
    memory: str
    note: str


@dataclass(frozen=True, slots=True)
class CourseMark:
    at: datetime
    text: str
    kind: str  # entry, exit, fault, check, failed or alert


@dataclass(frozen=True, slots=True)
class GpuCourse:
    name: str
    facts: tuple[Fact, ...]
    tabs: tuple[Tab, ...]
    points: tuple[CoursePoint, ...]
    marks: tuple[CourseMark, ...]
    step: str
    longest_s: int
    limit_c: int
    source: str  # of the readings, where it is not EGS alone
    why_own: str
    url: str
    table_url: str
    node_url: str  # its GPUs in one chart
    box_url: str  # those of the request that holds it; "": none, or not the reader's

    @classmethod
    def build(cls, request: PageRequest, portal: Portal, pk: UUID) -> GpuCourse:
        gpu, wanted = gpu_known_to(request.user, str(pk)), range_of(request)
        course = course_of(request.user, gpu, since=request.now - RANGES[wanted], until=request.now, step_s=None, now=request.now)
        url, compared = portal.url("gpu", gpu.pk), portal.url("gpu-compare")
        points, step_s = _thinned(course)
        box = next((span for span in course.spans if span.until_at is None), None)
        return cls(
            name=f"{gpu.node.name}, GPU {gpu.index}",
            facts=tuple(_gpu_facts(request.user, gpu, portal, request.now)),
            tabs=range_tabs(url, {}, wanted, [gpu]),
            points=tuple(points),
            marks=tuple(sorted([*marks_of({"": course}), *_alert_marks(request.user, gpu, course)], key=lambda mark: mark.at)),
            step=words.duration(step_s) if step_s >= 60 else f"{step_s} s",
            longest_s=UNBROKEN_STEPS * step_s,
            limit_c=HOT_C,
            source=FROM_PROMETHEUS if course.is_of_prometheus else "",
            why_own=course.why_own,
            url=url_with(url, {"range": wanted, "part": "course"}),
            table_url=portal.url("gpus"),
            node_url=url_with(compared, {"q": gpu.node.name, "range": wanted}),
            box_url=url_with(compared, {"q": box.gpr, "range": wanted}) if box else "",
        )


def range_of(request: PageRequest) -> str:
    wanted = request.GET.get("range", "1h")
    if wanted not in RANGES:
        raise InvalidInput({"range": [f"There is no such range. There are: {', '.join(RANGES)}."]})
    return wanted


def range_tabs(url: str, query: Mapping[str, str], wanted: str, gpus: Sequence[Gpu]) -> tuple[Tab, ...]:
    """The longest only where a Prometheus knows more than EGS keeps."""
    has_more = bool(sources_by_cluster(gpu.node.cluster_id for gpu in gpus))
    names = [name for name in RANGES if has_more or name in (wanted, *KEPT_RANGES)]
    return tuple(Tab(RANGE_WORDS[name], url_with(url, {**query, "range": name}), name == wanted) for name in names)


def _gpu_facts(actor: User, gpu: Gpu, portal: Portal, now: datetime) -> list[Fact]:
    row: Any = gpus_with_readings(actor, now=now).filter(pk=gpu.pk).first()
    facts = [Fact("Cluster", gpu.node.cluster.name), Fact("Shape", gpu.node.shape)]
    if row is None:
        return facts
    line = line_of(row, portal, None, now)
    tone = "bad" if row.heat >= HOT_C else ""
    holder = [Fact("Held by", line.holder.name, line.holder.mark.name, url=line.holder.url)] if line.holder else [Fact("Held by", "nobody")]
    return [
        *facts,
        *holder,
        Fact("Temperature", line.temperature, tone=tone),
        Fact("Use", line.use),
        Fact("Power", line.power),
        Fact("Memory", line.memory, "; ".join(line.notes)),
    ]


def _thinned(course: ReadingCourse) -> tuple[list[CoursePoint], int]:
    """Returns at most TWIN_ROWS points: the hottest moment of each stretch."""
    per_row = -(-len(course.points) // TWIN_ROWS) or 1
    stretches = [course.points[first : first + per_row] for first in range(0, len(course.points), per_row)]
    return [_point(stretch) for stretch in stretches], course.step_s * per_row


def _point(stretch: Sequence[dict[str, Any]]) -> CoursePoint:
    def over(name: str, of: Callable[[list[int]], float]) -> str:
        there = [point[name] for point in stretch if point[name] is not None]
        return str(round(of(there))) if there else ""

    faults = over("new_faults", sum)
    memory = over("memory_used_mib", max)
    return CoursePoint(
        at=stretch[0]["at"],
        temperature=over("temperature_c", max),
        use=over("utilization_percent", _mean),
        power=over("power_w", _mean),
        memory=f"{int(memory) / 1024:.0f}" if memory else "",
        note=words.plural(int(faults), "fault") if faults not in ("", "0") else "",
    )


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


# -- marks -------------------------------------------------------------------------------------------------------------


def marks_of(courses: Mapping[str, ReadingCourse]) -> list[CourseMark]:
    """The newest MARKS_MAX, in order. Courses by names of GPUs; a name of "" is not said."""
    checks = _check_marks(courses.values())
    made = {mark for name, course in courses.items() for mark in _own_marks(name, course)} | set(checks)
    return sorted(made, key=lambda mark: (mark.at, mark.text))[-MARKS_MAX:]


def _own_marks(name: str, course: ReadingCourse) -> Iterator[CourseMark]:
    for span in course.spans:
        if span.since_at >= course.since_at:
            yield CourseMark(span.since_at, f"{span.gpr} of {span.slice} took {'it' if not name else 'its GPUs'}", "entry")
        if span.until_at:
            yield CourseMark(span.until_at, f"{span.gpr} of {span.slice} gave {'it' if not name else 'its GPUs'} back", "exit")
    for point in course.points:
        if point["new_faults"]:
            text = words.plural(point["new_faults"], "new fault") + ", by its counters or an Xid"
            yield CourseMark(point["at"], f"{name}: {text}" if name else text, "fault")


def _alert_marks(actor: User, gpu: Gpu, course: ReadingCourse) -> Iterator[CourseMark]:
    for one in alerts_of_gpu(actor, gpu.pk, since=course.since_at, until=course.until_at)[:MARKS_MAX]:
        if one.since_at >= course.since_at:
            yield CourseMark(one.since_at, f"Alert: {one.rule.name}", "alert")
        if one.over_at is not None:
            yield CourseMark(one.over_at, f"Over: {one.rule.name}", "check")


def _check_marks(courses: Iterable[ReadingCourse]) -> list[CourseMark]:
    """Marks the moment in which each box passed its checks, and each failed check."""
    boxes: dict[UUID, BoxSpan] = {span.reservation_id: span for course in courses for span in course.spans}
    since_at = min((course.since_at for course in courses), default=None)
    if since_at is None or not boxes:
        return []
    rows = StepResult.objects.filter(reservation__in=boxes, ended_at__gte=since_at).order_by("ended_at", "pk")
    told = list(rows.values_list("reservation", "step", "outcome", "ended_at"))
    passed = {boxes[box].gpr: at for box, step, outcome, at in told if outcome == Outcome.OK and step in ENTRY_STEPS}
    failed = {(boxes[box].gpr, step, at) for box, step, outcome, at in told if outcome == Outcome.FAILED}
    return [
        *(CourseMark(at, f"{gpr} passed its checks", "check") for gpr, at in passed.items()),
        *(CourseMark(at, f"{gpr} failed the check {step}", "failed") for gpr, step, at in failed),
    ]


ENTRY_STEPS: Final = frozenset(EntryStep)


# -- several GPUs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measure:
    label: str
    column: str
    unit: str
    of: Callable[[list[int]], float]
    most: int | None = None  # of the chart's scale; None: what there is
    per: int = 1


MEASURES: Final = {
    "temperature": Measure("Temperature", "temperature_c", "°C", max, most=105),
    "use": Measure("Use", "utilization_percent", "%", _mean, most=105),
    "power": Measure("Power", "power_w", "W", _mean),
    "memory": Measure("Memory", "memory_used_mib", "GiB", max, per=1024),
    "throttled": Measure("Throttled", "throttled_percent", "%", _mean, most=105),
}


@dataclass(frozen=True, slots=True)
class ComparedGpu:
    name: str
    url: str
    hue: int


@dataclass(frozen=True, slots=True)
class ComparedRow:
    at: datetime
    values: tuple[str, ...]  # one of each GPU


@dataclass(frozen=True, slots=True)
class GpuComparison:
    filters: GpuFilters
    gpus: tuple[ComparedGpu, ...]
    found: str
    measures: tuple[Tab, ...]
    ranges: tuple[Tab, ...]
    measure: Measure
    rows: tuple[ComparedRow, ...]
    marks: tuple[CourseMark, ...]
    step: str
    longest_s: int
    limit_c: int | None
    source: str
    why_own: str
    asked: Mapping[str, str]
    url: str
    table_url: str

    @classmethod
    def build(cls, request: PageRequest, portal: Portal) -> GpuComparison:
        filters, wanted, name = GpuFilters.of(request), range_of(request), request.GET.get("measure", "temperature")
        if name not in MEASURES:
            raise InvalidInput({"measure": [f"There is no such measure. There are: {', '.join(MEASURES)}."]})
        known = filters.narrow(gpus_with_readings(request.user, now=request.now).filter(in_view(filters.view)))
        gpus = list(known.order_by(*ORDER)[:COMPARED_MAX])
        begin = request.now - RANGES[wanted]
        courses = courses_of(request.user, gpus, since=begin, until=request.now, step_s=None, now=request.now)
        names = {gpu.pk: f"{gpu.node.name} GPU {gpu.index}" for gpu in gpus}
        step_s = _row_s(courses.values())
        url, query = portal.url("gpu-compare"), {**filters.in_url, "measure": name, "range": wanted}
        return cls(
            filters=filters,
            gpus=tuple(ComparedGpu(names[gpu.pk], portal.url("gpu", gpu.pk), hue) for hue, gpu in enumerate(gpus)),
            found=_found(len(gpus), known.order_by().count()),
            measures=tuple(Tab(each.label, url_with(url, {**query, "measure": key}), key == name) for key, each in MEASURES.items()),
            ranges=range_tabs(url, query, wanted, gpus),
            measure=MEASURES[name],
            rows=tuple(_rows(list(courses.values()), MEASURES[name], step_s)),
            marks=tuple(marks_of({names[pk]: course for pk, course in courses.items()})),
            step=words.duration(step_s) if step_s >= 60 else f"{step_s} s",
            longest_s=UNBROKEN_STEPS * step_s,
            limit_c=HOT_C if name == "temperature" else None,
            source=FROM_PROMETHEUS if any(course.is_of_prometheus for course in courses.values()) else "",
            why_own=next((course.why_own for course in courses.values() if course.why_own), ""),
            asked={"measure": name, "range": wanted},
            url=url_with(url, {**query, "part": "chart"}),
            table_url=url_with(portal.url("gpus"), filters.in_url),
        )


def _found(shown: int, count: int) -> str:
    return f"The {shown} hottest of {words.plural(count, 'GPU')}" if count > shown else words.plural(count, "GPU")


def _row_s(courses: Iterable[ReadingCourse]) -> int:
    """Returns the length of a row, so that there are TWIN_ROWS rows at most, and none is shorter than a step."""
    course = max(courses, key=lambda each: each.step_s, default=None)
    if course is None:
        return 1
    steps = (course.until_at - course.since_at).total_seconds() / course.step_s
    return course.step_s * max(1, -int(-steps // TWIN_ROWS))


def _rows(courses: Sequence[ReadingCourse], measure: Measure, row_s: int) -> Iterator[ComparedRow]:
    found: dict[int, dict[int, list[int]]] = {}
    for column, course in enumerate(courses):
        for point in course.points:
            if point[measure.column] is not None:
                row = found.setdefault(int(point["at"].timestamp()) // row_s, {})
                row.setdefault(column, []).append(point[measure.column])
    for number, row in sorted(found.items()):
        values = (str(round(measure.of(row[column]) / measure.per)) if column in row else "" for column in range(len(courses)))
        yield ComparedRow(datetime.fromtimestamp(number * row_s, UTC), tuple(values))


def render_gpu(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    template = "components/gpus/course.html" if request.GET.get("part") == "course" else f"{portal.name}/gpus/gpu.html"
    return portal.render(request, template, nav="gpus", course=GpuCourse.build(request, portal, pk))


def render_comparison(request: PageRequest, portal: Portal) -> HttpResponse:
    template = "components/gpus/compared.html" if request.GET.get("part") == "chart" else f"{portal.name}/gpus/compare.html"
    return portal.render(request, template, nav="gpus", compared=GpuComparison.build(request, portal))
