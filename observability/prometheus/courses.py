"""Long courses of GPUs from the Prometheus of their cluster, for the periods that the caller names: whose they may be is his matter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from inventory.models import Gpu
from observability.prometheus.models import BEYOND_LEAST, PrometheusSource
from observability.prometheus.queries import Unanswered, Values, values_over
from observability.prometheus.services import named, sources_by_cluster
from protocol.gpus.telemetry import SERIES

STEPS_S: Final = (300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
POINTS_MAX: Final = 1100
UNKNOWN: Final = "It has no series of this GPU for this time."
Period = tuple[datetime, datetime]
Point = dict[str, Any]  # by `at` and the names of metrics


@dataclass(frozen=True, slots=True)
class Long:
    """`points`: None where Prometheus was to be asked and gave none, with the reason."""

    step_s: int
    points: list[Point] | None
    why: str = ""


def long_courses(
    periods: Mapping[Gpu, Sequence[Period]], *, since: datetime, until: datetime, step_s: int | None, now: datetime
) -> dict[UUID, Long]:
    """Returns those of GPUs whose cluster has a Prometheus for such a time. Runs one query at most, and no other for a short range."""
    if since >= now - BEYOND_LEAST:
        return {}
    sources = sources_by_cluster(gpu.node.cluster_id for gpu in periods)
    step = _step(since, until, step_s)
    found: dict[UUID, Long] = {}
    for source in sources.values():
        of_cluster = {gpu: times for gpu, times in periods.items() if gpu.node.cluster_id == source.cluster_id}
        if since < now - source.beyond:
            found |= _of_cluster(source, of_cluster, step)
    return found


def _of_cluster(source: PrometheusSource, periods: Mapping[Gpu, Sequence[Period]], step_s: int) -> dict[UUID, Long]:
    times = [time for several in periods.values() for time in several]
    if not times:
        return {gpu.pk: Long(step_s, []) for gpu in periods}
    # A step lies within a period, or is left out: else it would tell of somebody else's time.
    first = _ceil(min(begin for begin, _ in times).timestamp(), step_s) + step_s
    last = int(max(end for _, end in times).timestamp()) // step_s * step_s
    asked = [named(gpu, source) for gpu, several in periods.items() if several]
    ends: Values = {}
    try:
        if last >= first:
            ends = values_over(source, asked, since=_at(first), until=_at(last), step_s=step_s)
    except Unanswered as error:
        return {gpu.pk: Long(step_s, None, error.why) for gpu in periods}
    found = {gpu.pk: list(_points(ends.get(gpu.pk, {}), several, step_s)) for gpu, several in periods.items()}
    unknown = {gpu.pk for gpu, several in periods.items() if several and not found[gpu.pk]}
    return {pk: Long(step_s, None, UNKNOWN) if pk in unknown else Long(step_s, points) for pk, points in found.items()}


def _points(values: Mapping[float, Mapping[str, float]], periods: Sequence[Period], step_s: int) -> Iterator[Point]:
    for end_s in sorted(values):
        begin_at, end_at = _at(end_s - step_s), _at(end_s)
        if any(begin <= begin_at and end_at <= end for begin, end in periods):
            told = values[end_s]
            yield {"at": begin_at, **{each.name: _whole(told.get(each.name), each.most) for each in SERIES}}


def _whole(value: float | None, most: int) -> int | None:
    return round(value) if value is not None and 0 <= value <= most else None


def _step(since: datetime, until: datetime, step_s: int | None) -> int:
    least_s = max((until - since) / timedelta(seconds=POINTS_MAX), step_s or 0)
    return next((step for step in STEPS_S if step >= least_s), STEPS_S[-1])


def _ceil(value: float, step_s: int) -> int:
    return -int(-value // step_s) * step_s


def _at(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)
