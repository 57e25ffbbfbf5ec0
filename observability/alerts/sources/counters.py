"""Counts of faults: what GPUs counted since, and Xids by what has to be done.

Totals of a GPU begin before anybody looks, and before its box. So every increase is written down once, with the box that had the GPU
all the time in which it may have happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import F, OuterRef, Q, Subquery, Sum

from core.written_sql import rows_derive
from inventory.models import Gpu
from observability.alerts.models import WINDOW_MOST_S, AlertRule, CounterIncrease, CounterState
from observability.alerts.signals import xid_signal
from observability.alerts.sources.measured import (
    Found,
    GpuPlace,
    Measured,
    RulesByWatched,
    gpu_places,
    in_scope,
    open_subjects,
    place_columns,
    with_boxes,
)
from observability.models import LatestReading, Reading15s
from observability.xid_counts import counts_from
from protocol.gpus.xids import XIDS, new_xids

NAMES: Final = ("xid", "xid_counts", *CounterState.TOTALS)
STATE: Final = "gpu__counter_state"
NEW_AT_ONCE: Final = 2000


def counters_advance(*, now: datetime) -> None:
    """Runs two statements when nothing was counted. The caller holds the lock of all alerts."""
    columns = {"gpu": F("gpu_id"), **{name: F(name) for name in ("at", *NAMES)}}
    # Before the first one nothing can be counted.
    rows_derive(CounterState, LatestReading.objects.filter(**{STATE: None}), columns, most=NEW_AT_ONCE)
    known = LatestReading.objects.filter(_has_news(), **{f"{STATE}__isnull": False})
    rows = with_boxes(known, "gpu__").annotate(before_at=_reading_before())
    told = ("at", "before_at", *NAMES, *(f"{STATE}__{name}" for name in NAMES))
    states, increases = [], []
    for gpu_id, *rest in rows.values_list("gpu_id", *place_columns("gpu__"), *told):
        place, (at, before_at, *values) = GpuPlace(gpu_id, *rest[: -len(told)]), rest[-len(told) :]
        new, old = values[: len(NAMES)], values[len(NAMES) :]
        kept = [was if value is None else value for value, was in zip(new, old, strict=True)]
        states.append(CounterState(gpu_id=gpu_id, at=at, **dict(zip(NAMES, kept, strict=True))))
        gpr_id = place.gpr_id if before_at is not None and place.held_since(before_at) else None
        for signal, count in _increases(dict(zip(NAMES, new, strict=True)), dict(zip(NAMES, old, strict=True))):
            increases.append(CounterIncrease(gpu_id=gpu_id, gpr_id=gpr_id, signal=signal, count=count, at=min(at, now)))
    if states:
        CounterState.objects.bulk_create(
            states, update_conflicts=True, unique_fields=["gpu"], update_fields=["at", *NAMES], batch_size=2000
        )
        CounterIncrease.objects.bulk_create(increases)
    CounterIncrease.objects.filter(at__lt=now - timedelta(seconds=WINDOW_MOST_S)).delete()


def _has_news() -> Q:
    news = Q()
    for name in NAMES:
        was = f"{STATE}__{name}"
        news |= Q(**{f"{name}__isnull": False}) & (Q(**{was: None}) | Q(**{f"{name}__gt": F(was)}) | Q(**{f"{name}__lt": F(was)}))
    return news


def _reading_before() -> Subquery:
    course = Reading15s._default_manager.filter(series_id=OuterRef("pk"), at__lt=OuterRef("at"))
    return Subquery(course.order_by("-at").values("at")[:1])


def _increases(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name in CounterState.TOTALS:
        value, was = new[name], old[name]
        # A total that fell has begun anew: the driver was loaded.
        if value is not None and was is not None and (count := value - was if value >= was else value):
            yield name, count
    for xid, count in new_xids(new["xid"], counts_from(new["xid_counts"]), old["xid"], counts_from(old["xid_counts"])).items():
        if known := XIDS.get(xid):
            yield xid_signal(known.action), count


def gpu_counts(rules: Sequence[AlertRule], now: datetime) -> Found:
    """Runs one query for each window, and two."""
    sums: dict[int, dict[tuple[UUID, str], dict[UUID | None, int]]] = {}
    for window_s in {rule.window_s for rule in rules}:
        sums[window_s] = _sums(window_s, now)
    wanted = set(open_subjects(rules)) | {gpu_id for counted in sums.values() for gpu_id, _ in counted}
    places = gpu_places(Gpu.objects.filter(pk__in=wanted)) if wanted else {}
    found: dict[UUID, list[Measured]] = defaultdict(list)
    by_watched = RulesByWatched(rules)
    for gpu_id, place in places.items():
        for rule in by_watched.watching(place.slice_id):
            by_box = sums[rule.window_s].get((gpu_id, rule.signal), {})
            of_box = by_box.get(place.gpr_id, 0) if place.gpr_id else None
            one = place.measured(float(sum(by_box.values())), box_value=None if of_box is None else float(of_box))
            if in_scope(rule, one):
                found[rule.pk].append(one)
    return found


def _sums(window_s: int, now: datetime) -> dict[tuple[UUID, str], dict[UUID | None, int]]:
    rows: Any = CounterIncrease.objects.filter(at__gt=now - timedelta(seconds=window_s)).order_by()
    sums: dict[tuple[UUID, str], dict[UUID | None, int]] = defaultdict(dict)
    for gpu_id, signal, gpr_id, count in rows.values_list("gpu", "signal", "gpr_id").annotate(n=Sum("count")):
        sums[gpu_id, signal][gpr_id] = count
    return sums
