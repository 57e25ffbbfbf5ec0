"""Adds measured and used GPU time to usage rows, and what workloads held: each minute of the course once, in one transaction with the
progress.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import add
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from gpr.idle.services import idle_forget
from gpr.models import NO_WORKLOAD
from gpr.usage.services import DAY, MS, NOTHING, UsageKey, Work, day_of, held_count, measured_add, midnight, progress_lock, workloads_forget
from inventory.models import Reservation, ReservedGpu
from observability.idle.services import Minutes, minutes_observe
from observability.models import Reading1m, RollUpProgress
from observability.workloads.holders import PodTime, has_minute, holders_among, names_of, pods_between

CHUNK: Final = timedelta(minutes=20)  # each reads the boxes and their pods anew
CHUNKS_AT_ONCE: Final = 30
MINUTE_MS: Final = Reading1m.STEP // MS
PERCENT: Final = 100
Minute = tuple[datetime, Mapping[int | None, int]]  # with the use of each course in percent


class OpenBoxNode(NamedTuple):
    """Describes a node in an open box, from the end of the entry to the begin of the exit, with its GPUs and the ids of their courses."""

    gpr_id: UUID
    slice_id: UUID
    cluster_id: UUID
    shape: str
    node: str
    begin_at: datetime
    end_at: datetime | None
    gpus: list[tuple[UUID, int | None]]

    def has(self, minute: datetime) -> bool:
        return has_minute(minute, self.begin_at, self.end_at)


def usage_step(*, now: datetime) -> None:
    """It is correct however often, late or seldom it runs."""
    held_count(now=now)
    workloads_forget(now=now)
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
    oldest = (now - Reading1m.KEPT).replace(second=0, microsecond=0)
    begin = max(progress.measured_until_at or _first_minute() or done_at, oldest)
    end = min(done_at, begin + CHUNK, midnight(day_of(begin)) + DAY)
    if begin >= end:
        return False
    if progress.measured_until_at is not None and begin > progress.measured_until_at:
        idle_forget()
    boxes = _open_boxes(begin, end)
    minutes = _minutes(begin, end)
    found = _work_of(boxes, minutes, begin, end)
    measured_add(progress, found, names_of({key.workload for key in found}), until_at=end)
    minutes_observe(minutes, since=begin, until=end)
    return end < done_at


def _work_of(boxes: Sequence[OpenBoxNode], minutes: Minutes, begin: datetime, end: datetime) -> dict[UsageKey, Work]:
    pods = pods_between(begin, end)
    found: dict[UsageKey, Work] = {}
    for box in boxes:
        sums: dict[UUID, list[int]] = defaultdict(lambda: [0, 0, 0])
        inside = [(minute, used) for minute, used in minutes.items() if box.has(minute)]
        holders = holders_among([gpu_id for gpu_id, _ in box.gpus], pods.get((box.gpr_id, box.node), ()))
        for (_, series_id), held_by in zip(box.gpus, holders, strict=True):
            for workload_id, its in _shares(inside, held_by):
                percents = [used[series_id] for _, used in its if series_id in used]
                work = sums[workload_id]
                work[0] += len(its) * MINUTE_MS
                work[1] += len(percents) * MINUTE_MS
                work[2] += sum(percents) * MINUTE_MS // PERCENT
        for workload_id, work in sums.items():
            key = UsageKey(box.gpr_id, box.slice_id, box.cluster_id, box.shape, day_of(begin), workload_id)
            found[key] = Work(*map(add, found.get(key, NOTHING), work))
    return found


def _shares(minutes: Sequence[Minute], held_by: Iterable[PodTime]) -> Iterator[tuple[UUID, Sequence[Minute]]]:
    """A minute belongs to the first pod that was there."""
    for pod in held_by:
        if its := [minute for minute in minutes if pod.has(minute[0])]:
            yield pod.workload_id, its
            minutes = [minute for minute in minutes if not pod.has(minute[0])]
    if minutes:
        yield NO_WORKLOAD, minutes


def _first_minute() -> datetime | None:
    return Reading1m._default_manager.order_by("at").values_list("at", flat=True).first()


def _open_boxes(begin: datetime, end: datetime) -> Sequence[OpenBoxNode]:
    is_open = Q(active_at__lt=end) & (Q(exit_began_at=None) | Q(exit_began_at__gt=begin))
    rows = Reservation.objects.filter(is_open & (Q(released_at=None) | Q(released_at__gt=begin))).order_by()
    of, times = ("gpr", "slice", "cluster", "node__shape", "node__name"), ("active_at", "joined_at", "exit_began_at", "released_at")
    boxes = {}
    told: Iterable[Any] = rows.values_list("pk", *of, *times)
    for pk, gpr, slice_, cluster, shape, node, active_at, joined_at, exit_at, released_at in told:
        boxes[pk] = OpenBoxNode(gpr, slice_, cluster, shape, node, max(active_at, joined_at or active_at), exit_at or released_at, [])
    gpus = ReservedGpu.objects.filter(reservation__in=rows.values("pk")).order_by()
    for pk, gpu_id, series_id in gpus.values_list("reservation", "gpu", "gpu__latest_reading"):
        boxes[pk].gpus.append((gpu_id, series_id))
    return list(boxes.values())


def _minutes(begin: datetime, end: datetime) -> dict[datetime, dict[int | None, int]]:
    """Reads each minute of the whole fleet by itself: a list of 10,000 courses, and a time in each row, would take longer."""
    known: Any = Reading1m._default_manager.filter(utilization_percent__isnull=False)
    minutes = [begin + n * Reading1m.STEP for n in range(-((begin - end) // Reading1m.STEP))]
    return {minute: dict(known.filter(at=minute).values_list("series_id", "utilization_percent")) for minute in minutes}
