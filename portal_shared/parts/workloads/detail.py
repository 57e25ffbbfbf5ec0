from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse

from core.errors import InvalidInput
from core.pages import words
from core.pages.parts import Fact, Pair, Tab
from observability.telemetry.selectors import HOT_C
from observability.workloads.models import Pod, Workload, WorkloadState
from observability.workloads.phases import PhaseSpan, Point, WorkPhase, course_of, phases_of
from observability.workloads.selectors import WorkloadGpu, gpus_of, pods_visible_to, workload_for
from observability.workloads.stragglers import stragglers_of
from portal_shared.access import PageRequest
from portal_shared.parts.gpu_courses import UNBROKEN_STEPS
from portal_shared.parts.gpus import heat_class, with_unit
from portal_shared.parts.paging import url_with
from portal_shared.parts.portals import Portal
from portal_shared.parts.usage import WORKLOAD
from portal_shared.parts.workloads.listing import Carrier, gpus_said, is_silent, pods_said
from portal_shared.parts.workloads.pods import PodLine
from portal_shared.shell import WorkspaceMark

RANGES: Final = {"1h": timedelta(hours=1), "12h": timedelta(hours=12), "7d": timedelta(days=7)}
RANGE_WORDS: Final = {"1h": "Hour", "12h": "12 hours", "7d": "7 days"}
SORTS: Final = {"": "Hottest first", "power": "Most power first", "use": "Least used first"}
GPUS_SHOWN: Final = 50
PODS_SHOWN: Final = 25
PHASES_SHOWN: Final = 40
TWIN_ROWS: Final = 180
PHASE_WORDS: Final = {
    WorkPhase.IDLE: "Idle",
    WorkPhase.LOADING: "Loads",
    WorkPhase.LIGHT: "Light load",
    WorkPhase.BUSY: "Busy",
}


@dataclass(frozen=True, slots=True)
class GpuRow:
    id: UUID
    node: str
    index: int
    url: str
    temperature: str
    heat: str
    use: str
    power: str
    pod: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Straggler:
    where: str
    url: str
    pod: str
    since_at: datetime


@dataclass(frozen=True, slots=True)
class CourseRow:
    at: datetime
    temperature: str
    use: str
    power: str
    phase: str


@dataclass(frozen=True, slots=True)
class PhaseRow:
    id: int
    word: str
    since_at: datetime
    until_at: datetime
    took_s: float
    use: str


@dataclass(frozen=True, slots=True)
class WorkloadPage:
    name: str
    kind: str
    state_word: str
    is_silent: bool
    heard_of: str  # the cluster
    mark: WorkspaceMark
    facts: tuple[Fact, ...]
    config: tuple[Pair, ...]
    arguments: str
    carriers: tuple[Carrier, ...]
    stragglers: tuple[Straggler, ...]
    gpus: tuple[GpuRow, ...]
    gpu_count: int
    sorts: tuple[Tab, ...]
    ranges: tuple[Tab, ...]
    course: tuple[CourseRow, ...]
    step: str
    longest_s: int
    phases: tuple[PhaseRow, ...]
    shares: str
    pods: tuple[PodLine, ...]
    pods_url: str
    list_url: str
    url: str
    limit_c: int

    @classmethod
    def build(cls, request: PageRequest, portal: Portal, pk: UUID) -> WorkloadPage:
        row = workload_for(request.user, pk)
        wanted, sort = _choice(request, "range", RANGES, "1h"), _choice(request, "sort", SORTS, "")
        gpus = gpus_of([row]).get(row.pk, []) if row.state == WorkloadState.RUNNING else []
        points, step = course_of(gpus, since=max(row.created_at, request.now - RANGES[wanted]), now=request.now)
        phases, stride = phases_of(points, step), -(-len(points) // TWIN_ROWS) or 1
        late = stragglers_of(row, now=request.now)
        url, chosen = portal.url("workload", row.pk), {"range": wanted, "sort": sort}
        pods = pods_visible_to(request.user).filter(workload=row).order_by("gone_at", "rank", "-created_at", "pk")
        return cls(
            name=row.name,
            kind=row.kind,
            state_word=row.get_state_display(),
            is_silent=row.state != WorkloadState.ENDED and is_silent(row, request),
            heard_of=row.cluster.name,
            mark=WorkspaceMark.of(row.slice),
            facts=tuple(_facts(row, gpus, portal, request)),
            config=tuple(_config(row)),
            arguments=" ".join(row.config.get("arguments", [])),
            carriers=tuple(Carrier(gpr.name, portal.request_url(gpr.pk)) for gpr in row.gprs.all()),
            stragglers=tuple(_stragglers(gpus, late, portal)),
            gpus=tuple(_gpu_row(gpu, late, portal, request.now) for gpu in _sorted(gpus, sort)[:GPUS_SHOWN]),
            gpu_count=len(gpus),
            sorts=tuple(Tab(word, url_with(url, chosen, sort=name), name == sort) for name, word in SORTS.items()),
            ranges=tuple(Tab(RANGE_WORDS[name], url_with(url, chosen, range=name), name == wanted) for name in RANGES),
            course=tuple(_course(points, phases, stride)),
            step=words.duration(step.total_seconds()) if step >= timedelta(minutes=1) else f"{step.total_seconds():g} s",
            longest_s=int(UNBROKEN_STEPS * stride * step.total_seconds()),
            phases=tuple(_phase_rows(phases)),
            shares=_shares(phases),
            pods=tuple(PodLine.of(pod, portal) for pod in pods[:PODS_SHOWN]),
            pods_url=url_with(portal.url("pods"), {"workload": str(row.pk)}),
            list_url=portal.url("workloads"),
            url=url_with(url, chosen, part="body"),
            limit_c=HOT_C,
        )


def _choice(request: PageRequest, name: str, known: Mapping[str, Any], default: str) -> str:
    given = request.GET.get(name, default)
    if given not in known:
        raise InvalidInput({name: [f"There is no such choice. There are: {', '.join(filter(None, known))}."]})
    return given


def _facts(row: Workload, gpus: Sequence[WorkloadGpu], portal: Portal, request: PageRequest) -> Iterator[Fact]:
    yield Fact("State", row.get_state_display(), f"{pods_said(row)} pods running", url=_pods_of(row, portal))
    yield Fact("GPUs", gpus_said(row), f"{row.gpus_asked} more asked for" if row.gpus_held and row.gpus_asked else "")
    fresh = [gpu for gpu in gpus if gpu.is_fresh(request.now)]
    use = [gpu.reading.utilization_percent for gpu in fresh if gpu.reading and gpu.reading.utilization_percent is not None]
    yield Fact("Average use", f"{round(sum(use) / len(use))} %" if use else "none", "of its GPUs now")
    yield Fact(
        "Efficiency",
        with_unit(row.efficiency_percent, "%"),
        f"{words.hours(row.used_hours)} of {words.hours(row.held_hours)} GPU-hours of readings, since its start",
        url=url_with(portal.url("usage"), {"by": WORKLOAD, WORKLOAD: str(row.pk)}),
    )
    yield _most("Hottest GPU", "temperature_c", "°C", fresh, portal)
    yield _most("Highest power", "power_w", "W", fresh, portal)
    count = row.straggler_count if row.state == WorkloadState.RUNNING else 0
    yield Fact("Stragglers", words.number(count), tone="late" if count else "")


def _most(label: str, metric: str, unit: str, gpus: Sequence[WorkloadGpu], portal: Portal) -> Fact:
    known = [(value, gpu) for gpu in gpus if (value := getattr(gpu.reading, metric)) is not None]
    if not known:
        return Fact(label, "none")
    value, gpu = max(known, key=lambda each: each[0])
    tone = "bad" if metric == "temperature_c" and value >= HOT_C else ""
    return Fact(label, f"{value} {unit}", f"{gpu.gpu.node.name}, GPU {gpu.gpu.index}", url=_gpu_url(gpu, portal), tone=tone)


def _config(row: Workload) -> Iterator[Pair]:
    config = row.config
    yield Pair("Model", row.model)
    yield Pair("Framework", row.framework)
    yield Pair("Parallelism", ", ".join(f"{name} {count}" for name, count in config.get("parallelism", {}).items()))
    yield Pair("Requests", ", ".join(f"{name} {amount}" for name, amount in config.get("requests", {}).items()), "each pod")
    yield Pair("Image", config.get("image", ""), is_code=True)
    yield Pair("Namespace", f"{row.namespace} in {row.cluster.name}")
    yield Pair("Owner", f"{row.kind} ({row.api})")


def _stragglers(gpus: Sequence[WorkloadGpu], late: Mapping[str, datetime], portal: Portal) -> Iterator[Straggler]:
    for gpu in gpus:
        if since_at := late.get(str(gpu.gpu.pk)):
            yield Straggler(f"{gpu.gpu.node.name}, GPU {gpu.gpu.index}", _gpu_url(gpu, portal), _pod_said(gpu.pod), since_at)


def _gpu_row(gpu: WorkloadGpu, late: Mapping[str, datetime], portal: Portal, now: datetime) -> GpuRow:
    reading, is_fresh = gpu.reading, gpu.is_fresh(now)
    notes = ["Behind its peers"] if str(gpu.gpu.pk) in late else []
    notes += [] if is_fresh else ["No reading yet" if reading is None else "Stale"]
    notes += [f"Throttled {reading.throttled_percent} %"] if reading and is_fresh and reading.throttled_percent else []
    return GpuRow(
        id=gpu.gpu.pk,
        node=gpu.gpu.node.name,
        index=gpu.gpu.index,
        url=_gpu_url(gpu, portal),
        temperature=with_unit(reading.temperature_c if reading else None, "°C"),
        heat=heat_class(reading, is_fresh=is_fresh),
        use=with_unit(reading.utilization_percent if reading else None, "%"),
        power=with_unit(reading.power_w if reading else None, "W"),
        pod=_pod_said(gpu.pod),
        notes=tuple(notes),
    )


def _pod_said(pod: Pod | None) -> str:
    return "" if pod is None else f"{pod.name} ({pod.place})" if pod.place else pod.name


def _sorted(gpus: Sequence[WorkloadGpu], sort: str) -> list[WorkloadGpu]:
    metric, sign = {"": ("temperature_c", -1), "power": ("power_w", -1), "use": ("utilization_percent", 1)}[sort]

    def key(gpu: WorkloadGpu) -> tuple[bool, int]:
        value = getattr(gpu.reading, metric) if gpu.reading else None
        return value is None, sign * (value or 0)

    return sorted(gpus, key=key)


def _course(points: Sequence[Point], phases: Sequence[PhaseSpan], stride: int) -> Iterator[CourseRow]:
    """Returns the hottest moment and the mean use of each stretch of so many points."""
    for first in range(0, len(points), stride):
        stretch = points[first : first + stride]
        hot = [point.temperature_c for point in stretch if point.temperature_c is not None]
        power = [point.power_w for point in stretch if point.power_w is not None]
        at = stretch[0].at
        yield CourseRow(
            at=at,
            temperature=str(max(hot)) if hot else "",
            use=str(round(sum(point.use_percent for point in stretch) / len(stretch))),
            power=f"{sum(power) / len(power) / 1000:.1f}" if power else "",
            phase=next((PHASE_WORDS[span.phase] for span in phases if span.since_at <= at < span.until_at), ""),
        )


def _phase_rows(phases: Sequence[PhaseSpan]) -> Iterator[PhaseRow]:
    for number, span in enumerate(reversed(phases[-PHASES_SHOWN:])):
        took_s = (span.until_at - span.since_at).total_seconds()
        yield PhaseRow(number, PHASE_WORDS[span.phase], span.since_at, span.until_at, took_s, f"{span.use_percent} %")


def _shares(phases: Sequence[PhaseSpan]) -> str:
    took_s = {phase: sum((span.until_at - span.since_at).total_seconds() for span in phases if span.phase is phase) for phase in WorkPhase}
    whole_s = sum(took_s.values())
    if not whole_s:
        return ""
    return ", ".join(
        f"{PHASE_WORDS[phase].lower()} {round(100 * took_s[phase] / whole_s)} %" for phase in reversed(WorkPhase) if took_s[phase]
    )


def _gpu_url(gpu: WorkloadGpu, portal: Portal) -> str:
    return portal.url("gpu", gpu.gpu.pk)


def _pods_of(row: Workload, portal: Portal) -> str:
    return url_with(portal.url("pods"), {"workload": str(row.pk)})


def render_workload(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    template = "components/workloads/body.html" if request.GET.get("part") == "body" else f"{portal.name}/workloads/workload.html"
    return portal.render(request, template, nav="workloads", page=WorkloadPage.build(request, portal, pk))
