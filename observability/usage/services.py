"""Adds measured and used GPU time to usage rows, each minute of the course once, in one transaction with the progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from gpr.idle.services import idle_forget
from gpr.usage.services import MS, UsageKey, day_of, held_count, measured_add, progress_lock
from inventory.models import ReservedGpu
from observability.idle.services import minutes_observe
from observability.models import Reading1m, RollUpProgress

CHUNK: Final = timedelta(minutes=10)
CHUNKS_AT_ONCE: Final = 60
MINUTE_MS: Final = Reading1m.STEP // MS
PERCENT: Final = 100


class OpenGpu(NamedTuple):
    """A GPU in an open box, from the end of the entry to the begin of the exit."""

    gpr_id: UUID
    slice_id: UUID
    cluster_id: UUID
    shape: str
    begin_at: datetime
    end_at: datetime | None

    def has(self, minute: datetime) -> bool:
        return self.begin_at <= minute and (self.end_at is None or minute + Reading1m.STEP <= self.end_at)


def usage_step(*, now: datetime) -> None:
    """Correct however often, late or seldom it runs."""
    held_count(now=now)
    for _ in range(CHUNKS_AT_ONCE):
        if not _measure(now):
            return


@transaction.atomic
def _measure(now: datetime) -> bool:
    """Counts the next minutes that are rolled up. Returns whether there may be more."""
    progress = progress_lock()
    done_at = RollUpProgress.objects.filter(table=Reading1m._meta.db_table).values_list("done_at", flat=True).first()
    if done_at is None:
        return False
    begin = max(progress.measured_until_at or _first_minute() or done_at, now - Reading1m.KEPT)
    end = min(done_at, begin + CHUNK)
    if begin >= end:
        return False
    if progress.measured_until_at is not None and begin > progress.measured_until_at:
        idle_forget()
    gpus = _open_gpus(begin, end)
    found: dict[UsageKey, tuple[int, int]] = defaultdict(lambda: (0, 0))
    minutes: dict[int, dict[datetime, int]] = defaultdict(dict)
    for series_id, minute, percent in _minutes(begin, end, gpus):
        minutes[series_id][minute] = percent
        for gpu in gpus[series_id]:
            if gpu.has(minute):
                key = UsageKey(gpu.gpr_id, gpu.slice_id, gpu.cluster_id, gpu.shape, day_of(minute))
                measured_ms, used_ms = found[key]
                found[key] = (measured_ms + MINUTE_MS, used_ms + percent * MINUTE_MS // PERCENT)
    measured_add(progress, found, until_at=end)
    minutes_observe(minutes, since=begin, until=end)
    return end < done_at


def _first_minute() -> datetime | None:
    return Reading1m._default_manager.order_by("at").values_list("at", flat=True).first()


def _open_gpus(begin: datetime, end: datetime) -> dict[int, list[OpenGpu]]:
    """Returns open GPUs by the id of the GPU's course."""
    is_open = Q(reservation__active_at__lt=end) & (Q(reservation__exit_began_at=None) | Q(reservation__exit_began_at__gt=begin))
    rows = ReservedGpu.objects.filter(is_open & (Q(reservation__released_at=None) | Q(reservation__released_at__gt=begin)))
    of = ("reservation__gpr", "reservation__slice", "reservation__cluster", "gpu__node__shape")
    times = ("reservation__active_at", "reservation__joined_at", "reservation__exit_began_at", "reservation__released_at")
    found: dict[int, list[OpenGpu]] = defaultdict(list)
    told: Iterable[Any] = rows.filter(gpu__latest_reading__isnull=False).values_list("gpu__latest_reading", *of, *times)
    for series_id, gpr, slice_, cluster, shape, active_at, joined_at, exit_at, released_at in told:
        found[series_id].append(OpenGpu(gpr, slice_, cluster, shape, max(active_at, joined_at or active_at), exit_at or released_at))
    return found


def _minutes(begin: datetime, end: datetime, series: dict[int, list[OpenGpu]]) -> Iterator[tuple[int, datetime, int]]:
    rows = Reading1m._default_manager.filter(series_id__in=series, at__gte=begin, at__lt=end, utilization_percent__isnull=False)
    for series_id, at, percent in rows.values_list("series_id", "at", "utilization_percent").iterator():
        yield series_id, at, percent or 0
