"""Computes the course of a workload's GPUs over time, and its phases. It is pure but for `course_of`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from django.db.models import Q

from observability.models import Reading
from observability.telemetry.selectors import IDLE_PERCENT, levels_kept
from observability.workloads.selectors import WorkloadGpu

GPUS_MAX: Final = 32  # of a larger workload some are taken that lie evenly among all
POINTS_MAX: Final = 1100
BUSY_PERCENT: Final = 50
LOADING_PERCENT: Final = 25
GROWTH_MIB: Final = 512  # of the memory in use of a GPU, from one step to the next


class WorkPhase(StrEnum):
    IDLE = "idle"
    LOADING = "loading"  # memory fills while little is computed: a model or data is read
    LIGHT = "light"  # checkpoint, evaluation, few requests, or it waits for input
    BUSY = "busy"


@dataclass(frozen=True, slots=True)
class Point:
    """Means of its GPUs in a step, but the temperature of the hottest and the power of all."""

    at: datetime
    use_percent: float
    memory_mib: float
    temperature_c: int | None
    power_w: float | None


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    phase: WorkPhase
    since_at: datetime
    until_at: datetime
    use_percent: int


def course_of(gpus: Sequence[WorkloadGpu], *, since: datetime, now: datetime) -> tuple[list[Point], timedelta]:
    """Returns the course and its step. It tells of no time before the box took a GPU."""
    level = next(level for level in levels_kept(since, now) if (now - since) / level.STEP <= POINTS_MAX)
    known = [gpu for gpu in gpus if gpu.reading is not None]
    chosen = known[:: -(-len(known) // GPUS_MAX)] if known else []
    steps: dict[int, list[Any]] = defaultdict(list)
    step_s = level.STEP.total_seconds()
    for row in _rows(level, chosen, since):
        steps[int(row[0].timestamp() // step_s)].append(row)
    scale = len(known) / len(chosen) if chosen else 1.0
    return [_point(datetime.fromtimestamp(number * step_s, UTC), rows, scale) for number, rows in sorted(steps.items())], level.STEP


def phases_of(points: Sequence[Point], step: timedelta) -> list[PhaseSpan]:
    """Neighboring steps of one phase are one span. A gap without readings ends it."""
    spans: list[list[tuple[Point, WorkPhase]]] = []
    for point, phase in zip(points, _phases(points), strict=True):
        if spans and spans[-1][-1][1] is phase and point.at - spans[-1][-1][0].at <= 2 * step:
            spans[-1].append((point, phase))
        else:
            spans.append([(point, phase)])
    return [_span(span, step) for span in spans]


def _rows(level: type[Reading], gpus: Sequence[WorkloadGpu], since: datetime) -> Any:
    if not gpus:
        return ()
    series: dict[datetime, list[int]] = defaultdict(list)
    for gpu in gpus:
        series[max(gpu.since_at, since)].append(gpu.reading.pk)  # type: ignore[union-attr]  # only known ones
    is_seen = Q()
    for begin, ids in series.items():
        is_seen |= Q(series_id__in=ids, at__gte=begin)
    rows = level._default_manager.filter(is_seen, utilization_percent__isnull=False).order_by("at")
    return rows.values_list("at", "utilization_percent", "memory_used_mib", "temperature_c", "power_w").iterator()


def _point(at: datetime, rows: Sequence[Any], scale: float) -> Point:
    memory, heat, power = ([row[place] for row in rows if row[place] is not None] for place in (2, 3, 4))
    return Point(
        at=at,
        use_percent=sum(row[1] for row in rows) / len(rows),
        memory_mib=sum(memory) / len(memory) if memory else 0.0,
        temperature_c=max(heat, default=None),
        power_w=sum(power) * scale if power else None,
    )


def _phases(points: Sequence[Point]) -> Iterator[WorkPhase]:
    before: Point | None = None
    for point in points:
        yield _phase(point, before)
        before = point


def _phase(point: Point, before: Point | None) -> WorkPhase:
    if point.use_percent >= BUSY_PERCENT:
        return WorkPhase.BUSY
    if before is not None and point.use_percent < LOADING_PERCENT and point.memory_mib >= before.memory_mib + GROWTH_MIB:
        return WorkPhase.LOADING
    return WorkPhase.IDLE if point.use_percent < IDLE_PERCENT else WorkPhase.LIGHT


def _span(span: Iterable[tuple[Point, WorkPhase]], step: timedelta) -> PhaseSpan:
    points = [point for point, _ in span]
    phase = next(phase for _, phase in span)
    use = sum(point.use_percent for point in points) / len(points)
    return PhaseSpan(phase, points[0].at, points[-1].at + step, round(use))
