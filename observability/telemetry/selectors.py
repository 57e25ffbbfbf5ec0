"""Readings that a reader may see: overseers see all, members those of GPUs while a box of their workspace holds them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    FilteredRelation,
    IntegerField,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    TextChoices,
    Value,
    When,
)
from django.db.models.functions import Coalesce

from accounts.models import User
from accounts.policy import ObjectKind, Verb, may_all
from core.errors import NotFound
from core.rest.references import id_of
from inventory.models import Gpu, Reservation, ReservationState, ReservedGpu
from inventory.selectors import HELD, cluster_ids_of, reservations_visible_to, with_holders
from observability.models import LEVELS, LatestReading, Reading
from observability.prometheus.courses import Long, Period, long_courses
from observability.prometheus.models import BEYOND_LEAST
from protocol.gpus.telemetry import FAULT_TOTALS, SERIES, STALE_S

HOT_C: Final = 83
IDLE_PERCENT: Final = 5  # a GPU that is held and used less does nothing
POINTS_MAX: Final = 1500
SERIES_NAMES: Final = tuple(metric.name for metric in SERIES)
TOTALS: Final = ("xid", *FAULT_TOTALS)  # they count from before the present box


class View(TextChoices):
    HOT = "hot", f"At {HOT_C} °C or more"
    IDLE = "idle", "Held, and idle"
    FAULTY = "faulty", "Throttled, or with faults"
    STALE = "stale", "Without a reading of the last minute"


def sees_all_readings(actor: User) -> bool:
    return may_all(actor, Verb.SEE, ObjectKind.READING)


def gpus_with_readings(actor: User, *, now: datetime) -> QuerySet[Gpu]:
    """Returns GPUs whose readings the actor may know: `is_known`, `has_totals`, `is_fresh`, `heat` (-1: no fresh temperature), `held_by`
    (empty: nobody holds it).

    A member sees GPUs that his workspaces hold now, and no reading or count from before that.
    """
    held = ReservedGpu.objects.filter(HELD, gpu=OuterRef("pk"))
    rows: QuerySet[Any] = Gpu.objects.filter(gone_at=None, node__gone_at=None)
    is_known = Q(latest_reading__isnull=False)
    if not sees_all_readings(actor):
        # A GPU is held once, so the join repeats no row.
        rows = rows.annotate(own=FilteredRelation("reserved", condition=Q(reserved__state=ReservationState.HELD)))
        rows = rows.filter(own__reservation__in=reservations_visible_to(actor)).annotate(own_since=F("own__starts_at"))
        is_known = Q(latest_reading__at__gte=F("own_since"))
    is_fresh = is_known & Q(latest_reading__at__gt=now - timedelta(seconds=STALE_S))
    mine = with_holders(ReservedGpu.objects.filter(HELD, reservation__in=reservations_visible_to(actor)), path="reservation__")
    found: QuerySet[Gpu] = (
        rows.select_related("node__cluster", "latest_reading")
        .annotate(
            is_known=_as_bool(is_known),
            has_totals=Value(sees_all_readings(actor)),
            is_fresh=_as_bool(is_fresh),
            heat=Coalesce(Case(When(is_fresh, then=F("latest_reading__temperature_c"))), Value(-1), output_field=IntegerField()),
        )
        .alias(is_held=Exists(held))
        .prefetch_related(Prefetch("reserved", queryset=mine, to_attr="held_by"))
    )
    return found


def in_view(view: str) -> Q:
    """Returns a filter for `gpus_with_readings`."""
    has_failed = Q(has_totals=True, latest_reading__rows_failed__gt=0)
    faults = Q(latest_reading__throttled_percent__gt=0) | Q(latest_reading__new_faults__gt=0) | has_failed
    conditions: dict[str, Q] = {
        View.HOT: Q(heat__gte=HOT_C),
        View.IDLE: Q(is_held=True, is_fresh=True, latest_reading__utilization_percent__lt=IDLE_PERCENT),
        View.FAULTY: Q(is_fresh=True) & faults,
        View.STALE: Q(is_fresh=False),
    }
    return conditions.get(view, Q())


def reading_of(gpu: Any) -> LatestReading | None:
    """Returns the newest reading that the actor of `gpus_with_readings` may know."""
    if not gpu.is_known:
        return None
    reading: LatestReading = gpu.latest_reading
    if not gpu.has_totals:
        for name in TOTALS:
            setattr(reading, name, None)
        reading.xid_counts = ""
    return reading


def gpu_known_to(actor: User, reference: str) -> Gpu:
    """Finds a GPU by id or UUID: the one that is there now, or was there last. Raises NotFound."""
    id_ = id_of(reference)
    rows = Gpu.objects.select_related("node__cluster").filter(Q(pk=id_) | Q(uuid=str(id_)) if id_ else Q(uuid=reference))
    if not sees_all_readings(actor):
        own = ReservedGpu.objects.filter(reservation__in=reservations_visible_to(actor), gpu=OuterRef("pk"))
        rows = rows.filter(Q(node__cluster__in=cluster_ids_of(actor), gone_at=None) | Exists(own))
    found = rows.order_by(F("gone_at").desc(nulls_first=True)).first()
    if found is None:
        raise NotFound("GPU")
    return found


@dataclass(frozen=True, slots=True)
class BoxSpan:
    """It is a time in which a box of the actor's, or anybody's for overseers, holds the GPU."""

    reservation_id: UUID
    gpr_id: Any
    gpr: str
    slice: str
    since_at: datetime
    until_at: datetime | None  # None: it still does


@dataclass(frozen=True, slots=True)
class ReadingCourse:
    step_s: int
    since_at: datetime
    until_at: datetime
    spans: list[BoxSpan]
    points: list[dict[str, Any]]  # by `at` and the names of metrics
    is_of_prometheus: bool = False
    why_own: str = ""  # why these are EGS's own readings, though a Prometheus was to be asked


def course_of(actor: User, gpu: Gpu, *, since: datetime, until: datetime, step_s: int | None, now: datetime) -> ReadingCourse:
    return courses_of(actor, [gpu], since=since, until=until, step_s=step_s, now=now)[gpu.pk]


def courses_of(
    actor: User, gpus: Sequence[Gpu], *, since: datetime, until: datetime, step_s: int | None, now: datetime
) -> dict[UUID, ReadingCourse]:
    """Returns courses by id of GPU, in the given order. Runs three queries, however many GPUs there are, and two more for a long range."""
    sees_all = sees_all_readings(actor)
    spans: dict[UUID, list[BoxSpan]] = defaultdict(list)
    for gpu_id, span in _spans(actor, gpus, since, until):
        spans[gpu_id].append(span)
    times = {gpu.pk: [(since, until)] if sees_all else _within(spans[gpu.pk], since, until) for gpu in gpus}
    long = _long_courses(gpus, spans, times, since, until, step_s, now)
    model = _level(since, until, step_s, now)
    own = {gpu_id: periods for gpu_id, periods in times.items() if gpu_id not in long or long[gpu_id].points is None}
    points: dict[UUID, list[dict[str, Any]]] = defaultdict(list)
    for gpu_id, point in _points(model, since, until, own) if own else ():
        points[gpu_id].append(point)
    found = {}
    for gpu in gpus:
        of = long.get(gpu.pk)
        if of is not None and of.points is not None:
            found[gpu.pk] = ReadingCourse(of.step_s, since, until, spans[gpu.pk], of.points, is_of_prometheus=True)
        else:
            why = _why_own(of.why, sees_all=sees_all) if of is not None else ""
            found[gpu.pk] = ReadingCourse(int(model.STEP.total_seconds()), since, until, spans[gpu.pk], points[gpu.pk], why_own=why)
    return found


def _within(spans: Sequence[BoxSpan], since: datetime, until: datetime) -> list[Period]:
    return [(max(span.since_at, since), min(span.until_at or until, until)) for span in spans]


def _long_courses(
    gpus: Sequence[Gpu],
    spans: Mapping[UUID, Sequence[BoxSpan]],
    times: Mapping[UUID, Sequence[Period]],
    since: datetime,
    until: datetime,
    step_s: int | None,
    now: datetime,
) -> dict[UUID, Long]:
    if since >= now - BEYOND_LEAST:
        return {}
    # Where boxes share a node, the kubelet chooses the GPUs of each, and Prometheus does not know which of its series is whose.
    shared = _parts_of_nodes({span.reservation_id for of in spans.values() for span in of})
    known = {gpu: times[gpu.pk] for gpu in gpus if not any(span.reservation_id in shared for span in spans[gpu.pk])}
    return long_courses(known, since=since, until=until, step_s=step_s, now=now)


def _parts_of_nodes(reservation_ids: Collection[UUID]) -> set[UUID]:
    counted = Reservation.objects.filter(pk__in=reservation_ids).order_by().annotate(n=Count("gpus"))
    return set(counted.filter(n__lt=F("node__gpu_count")).values_list("pk", flat=True))


def _why_own(why: str, *, sees_all: bool) -> str:
    return f"Prometheus gives no readings now, so these are EGS's own.{f' {why}' if sees_all else ''}"


def levels_kept(since: datetime, now: datetime) -> list[type[Reading]]:
    """Returns the courses that reach back to this time, the finest first; the coarsest always."""
    return [model for model in LEVELS if model is LEVELS[-1] or since >= now - model.KEPT]


def _level(since: datetime, until: datetime, step_s: int | None, now: datetime) -> type[Reading]:
    """Returns the finest course that has few enough points."""
    wanted = [model for model in levels_kept(since, now) if step_s is None or model.STEP.total_seconds() >= step_s]
    return next((model for model in wanted if (until - since) / model.STEP <= POINTS_MAX), LEVELS[-1])


def _spans(actor: User, gpus: Sequence[Gpu], since: datetime, until: datetime) -> Iterator[tuple[UUID, BoxSpan]]:
    rows = ReservedGpu.objects.filter(gpu__in=gpus, reservation__in=reservations_visible_to(actor), starts_at__lt=until)
    rows = rows.exclude(state=ReservationState.PLANNED).filter(Q(reservation__released_at=None) | Q(reservation__released_at__gt=since))
    for row in with_holders(rows, path="reservation__").order_by("starts_at", "pk"):
        box = row.reservation
        yield row.gpu_id, BoxSpan(box.pk, box.gpr_id, box.gpr.name, box.slice.name, row.starts_at, box.released_at)


def _points(
    model: type[Reading], since: datetime, until: datetime, times: Mapping[UUID, Sequence[tuple[datetime, datetime]]]
) -> Iterator[tuple[UUID, dict[str, Any]]]:
    """The times of one GPU are in order, and lie one after the other."""
    series = dict(LatestReading.objects.filter(gpu__in=[gpu_id for gpu_id, told in times.items() if told]).values_list("pk", "gpu"))
    # A point that began before the box, or ends after it, tells of somebody else's time.
    length = model.STEP if model is not LEVELS[0] else timedelta(0)
    rows = model._default_manager.filter(series_id__in=series, at__gte=since, at__lte=until - length).order_by("at", "series_id")
    for point in rows.values("series_id", "at", *SERIES_NAMES):
        gpu_id = series[point.pop("series_id")]
        number = bisect_right(times[gpu_id], point["at"], key=itemgetter(0))
        if number and point["at"] <= times[gpu_id][number - 1][1] - length:
            yield gpu_id, point


def _as_bool(condition: Q) -> Case:
    return Case(When(condition, then=Value(True)), default=Value(False))
