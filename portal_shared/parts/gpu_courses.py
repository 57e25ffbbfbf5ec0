"""Draws the course of one GPU, or of several in one chart, for both portals; selectors decide what a reader may know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse

from core.errors import InvalidInput
from core.pages import words
from core.pages.parts import Fact, Pair, Tab
from inventory.models import Gpu
from observability.alerts.signals import SIGNALS
from observability.prometheus.services import sources_by_cluster
from observability.telemetry.selectors import (
    HOT_C,
    ReadingCourse,
    course_of,
    courses_of,
    gpu_known_to,
    gpus_with_readings,
    in_view,
    reading_of,
)
from portal_shared.access import PageRequest
from portal_shared.parts.gpu_marks import CourseMark, marks_of
from portal_shared.parts.gpus import ORDER, GpuFilters, line_of
from portal_shared.parts.paging import url_with
from portal_shared.parts.portals import Portal
from protocol.gpus.telemetry import FAULT_TOTALS

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
FROM_PROMETHEUS: Final = "from Prometheus"
UNBROKEN_STEPS: Final = 3  # a line goes on over so long a time without readings


@dataclass(frozen=True, slots=True)
class Measure:
    label: str
    column: str
    unit: str
    of: Callable[[list[int]], float]
    most: int | None = None  # of the chart's scale; None: what there is
    per: int = 1

    def said(self, values: list[int]) -> str:
        return str(round(self.of(values) / self.per)) if values else ""


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


MEASURES: Final = {
    "temperature": Measure("Temperature", "temperature_c", "°C", max, most=105),
    "memory-temperature": Measure("Memory temperature", "memory_temperature_c", "°C", max, most=115),
    "use": Measure("Use", "utilization_percent", "%", _mean, most=105),
    "power": Measure("Power", "power_w", "W", _mean),
    "memory": Measure("Memory", "memory_used_mib", "GiB", max, per=1024),
    "clock": Measure("Clock", "sm_clock_mhz", "MHz", _mean),
    "tensor": Measure("Tensor cores", "tensor_percent", "%", _mean, most=105),
    "bandwidth": Measure("Memory bandwidth", "memory_bandwidth_percent", "%", _mean, most=105),
    "nvlink": Measure("NVLink", "nvlink_mib_s", "MiB/s", _mean),
    "pcie": Measure("PCIe", "pcie_mib_s", "MiB/s", _mean),
    "throttled": Measure("Throttled", "throttled_percent", "%", _mean, most=105),
}
HEAT_AND_USE: Final = (MEASURES["temperature"], MEASURES["use"])  # what the page of a GPU draws first


@dataclass(frozen=True, slots=True)
class CoursePoint:
    at: datetime
    values: tuple[str, ...]  # by the columns
    note: str


@dataclass(frozen=True, slots=True)
class GpuCourse:
    name: str
    facts: tuple[Fact, ...]
    ranges: tuple[Tab, ...]
    measures: tuple[Tab, ...]
    drawn: tuple[Measure, ...]
    columns: tuple[Measure, ...]  # those drawn, then the others
    points: tuple[CoursePoint, ...]
    marks: tuple[CourseMark, ...]
    now: tuple[Pair, ...]
    step: str
    longest_s: int
    most: int | None
    limit_c: int | None
    source: str  # of the readings, where it is not EGS alone
    why_own: str
    url: str
    table_url: str
    node_url: str  # its GPUs in one chart
    box_url: str  # those of the request that holds it; "": none, or not the reader's

    @classmethod
    def build(cls, request: PageRequest, portal: Portal, pk: UUID) -> GpuCourse:
        gpu, wanted, name = gpu_known_to(request.user, str(pk)), range_of(request), measure_of(request, default="")
        course = course_of(request.user, gpu, since=request.now - RANGES[wanted], until=request.now, step_s=None, now=request.now)
        url, compared = portal.url("gpu", gpu.pk), portal.url("gpu-compare")
        drawn = (MEASURES[name],) if name else HEAT_AND_USE
        columns = (*drawn, *(each for each in MEASURES.values() if each not in drawn))
        points, step_s = _thinned(course, columns)
        row: Any = gpus_with_readings(request.user, now=request.now).filter(pk=gpu.pk).first()
        query = {"measure": name, "range": wanted}
        box = next((span for span in course.spans if span.until_at is None), None)
        return cls(
            name=f"{gpu.node.name}, GPU {gpu.index}",
            facts=tuple(_gpu_facts(row, gpu, portal, request.now)),
            ranges=range_tabs(url, query, wanted, [gpu]),
            measures=(Tab("Heat and use", url_with(url, query, measure=""), not name), *measure_tabs(url, query, name)),
            drawn=drawn,
            columns=columns,
            points=tuple(points),
            marks=tuple(marks_of(request.user, {gpu.pk: ("", course)})),
            now=tuple(_measured_now(row)),
            step=words.duration(step_s) if step_s >= 60 else f"{step_s} s",
            longest_s=UNBROKEN_STEPS * step_s,
            most=drawn[0].most,
            limit_c=HOT_C if drawn[0] == HEAT_AND_USE[0] else None,
            source=FROM_PROMETHEUS if course.is_of_prometheus else "",
            why_own=course.why_own,
            url=url_with(url, query, part="course"),
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
    """Offers the longest range only where a Prometheus knows more than EGS keeps."""
    has_more = bool(sources_by_cluster(gpu.node.cluster_id for gpu in gpus))
    names = [name for name in RANGES if has_more or name in (wanted, *KEPT_RANGES)]
    return tuple(Tab(RANGE_WORDS[name], url_with(url, {**query, "range": name}), name == wanted) for name in names)


def measure_of(request: PageRequest, *, default: str) -> str:
    name = request.GET.get("measure", "") or default
    if name and name not in MEASURES:
        raise InvalidInput({"measure": [f"There is no such measure. There are: {', '.join(MEASURES)}."]})
    return name


def measure_tabs(url: str, query: Mapping[str, str], wanted: str) -> Iterator[Tab]:
    for name, each in MEASURES.items():
        yield Tab(each.label, url_with(url, query, measure=name), name == wanted)


def _gpu_facts(row: Any, gpu: Gpu, portal: Portal, now: datetime) -> list[Fact]:
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


def _measured_now(row: Any) -> Iterator[Pair]:
    """Yields the values of the newest reading. Totals count from before the present box, so overseers alone read them."""
    reading = reading_of(row) if row is not None else None
    if reading is None:
        return
    for each in MEASURES.values():
        value = each.said([own] if (own := getattr(reading, each.column)) is not None else [])
        yield Pair(each.label, f"{value} {each.unit}" if value else "", "" if row.is_fresh else "a while ago")
    for name, label in TOTALS.items() if row.has_totals else ():
        value = getattr(reading, name)
        yield Pair(label, "" if value is None or (name == "xid" and not value) else words.number(value))


TOTALS: Final = {"xid": "Last Xid", **{name: SIGNALS[name].label for name in FAULT_TOTALS}}


def _thinned(course: ReadingCourse, columns: Sequence[Measure]) -> tuple[list[CoursePoint], int]:
    """Returns at most TWIN_ROWS points, each over a stretch."""
    per_row = -(-len(course.points) // TWIN_ROWS) or 1
    stretches = [course.points[first : first + per_row] for first in range(0, len(course.points), per_row)]
    return [_point(stretch, columns) for stretch in stretches], course.step_s * per_row


def _point(stretch: Sequence[dict[str, Any]], columns: Sequence[Measure]) -> CoursePoint:
    faults = sum(point["new_faults"] or 0 for point in stretch)
    values = (each.said([value for point in stretch if (value := point[each.column]) is not None]) for each in columns)
    return CoursePoint(stretch[0]["at"], tuple(values), words.plural(faults, "fault") if faults else "")


# -- several GPUs ------------------------------------------------------------------------------------------------------


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
        filters, wanted, name = GpuFilters.of(request), range_of(request), measure_of(request, default="temperature")
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
            measures=tuple(measure_tabs(url, query, name)),
            ranges=range_tabs(url, query, wanted, gpus),
            measure=MEASURES[name],
            rows=tuple(_rows(list(courses.values()), MEASURES[name], step_s)),
            marks=tuple(marks_of(request.user, {pk: (names[pk], course) for pk, course in courses.items()})),
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
        values = (measure.said(row.get(column, [])) for column in range(len(courses)))
        yield ComparedRow(datetime.fromtimestamp(number * row_s, UTC), tuple(values))


def render_gpu(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    template = "components/gpus/course.html" if request.GET.get("part") == "course" else f"{portal.name}/gpus/gpu.html"
    return portal.render(request, template, nav="gpus", course=GpuCourse.build(request, portal, pk))


def render_comparison(request: PageRequest, portal: Portal) -> HttpResponse:
    template = "components/gpus/compared.html" if request.GET.get("part") == "chart" else f"{portal.name}/gpus/compare.html"
    return portal.render(request, template, nav="gpus", compared=GpuComparison.build(request, portal))
