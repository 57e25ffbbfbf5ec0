"""Tells who had a box, after its end, what it used and what a smaller one would have been."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Count, DateTimeField, ExpressionWrapper, F, Max, Min, OuterRef, Q, Subquery, Value
from django.db.models.functions import Coalesce, Greatest

from core.words import duration, number, plural
from gpr.models import ENDED, Gpr, UsageDay, UsageProgress
from gpr.usage.selectors import Usage, usage_total
from inventory.models import ReservedGpu
from journal.models import Event
from journal.services import event_record
from observability.models import LEVELS, Reading1m
from observability.telemetry.selectors import IDLE_PERCENT

USED: Final = "gpr.used"
NEWS: Final = timedelta(hours=2)  # an older end is no news
FINE: Final = timedelta(days=1)  # longer boxes are measured by the coarsest course
SPARE_TIME: Final = timedelta(minutes=10)  # so much time at the end, and a tenth of all, is worth a word
SPARE_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class BoxWork:
    """Sums the work of the GPUs of a box's last run."""

    gpu_count: int
    worked_count: int  # how many of them did anything
    begin_at: datetime
    end_at: datetime
    last_at: datetime | None  # the end of the last step in which one did anything

    @property
    def smaller(self) -> str:
        """Returns a sentence that names a smaller box that would have done, or ""."""
        if self.last_at is None:
            return "None of its GPUs did anything."
        ran, spare = self.last_at - self.begin_at, self.end_at - self.last_at
        why = []
        if self.worked_count < self.gpu_count:
            why.append(f"only {number(self.worked_count)} of its {plural(self.gpu_count, 'GPU')} did anything")
        if spare > max(SPARE_TIME, SPARE_SHARE * (self.end_at - self.begin_at)):
            why.append(f"nothing ran in the last {duration(spare.total_seconds())}")
        if not why:
            return ""
        box = f"{plural(self.worked_count, 'GPU')} for {duration(ran.total_seconds())}"
        sentence = " and ".join(why)
        return f"{sentence[0].upper()}{sentence[1:]}: {box} would have done."


def used_record(*, now: datetime) -> None:
    """Once for each box that ended, when its last minutes are counted."""
    known_at = UsageProgress.objects.values_list("measured_until_at", flat=True).first()
    if known_at is None:
        return
    over = Gpr.objects.filter(state__in=ENDED, active_at__isnull=False, ended_at__gt=now - NEWS, ended_at__lte=known_at)
    ids = set(over.values_list("pk", flat=True))
    told = set(Event.objects.filter(kind=USED, gpr_id__in=ids).values_list("gpr_id", flat=True)) if ids else set()
    for gpr_id in ids - told:
        _record(gpr_id, now)


@transaction.atomic
def _record(gpr_id: Any, now: datetime) -> None:
    # Another process may be about to record the same.
    gpr = Gpr.objects.select_for_update().get(pk=gpr_id)
    if Event.objects.filter(kind=USED, gpr_id=gpr_id).exists():
        return
    usage, work = usage_total(UsageDay.objects.filter(gpr=gpr)), work_of(gpr)
    event_record(
        kind=USED,
        message=" ".join(_sentences(gpr, usage, work)),
        at=now,
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
        cluster_id=gpr.cluster_id,
        data={"held_hours": round(usage.held_hours, 2), "used_hours": round(usage.used_hours, 2)},
    )


def _sentences(gpr: Gpr, usage: Usage, work: BoxWork | None) -> Iterator[str]:
    yield f"{gpr.name} held {_hours(usage.held_hours)}."
    if usage.efficiency is None or work is None:
        yield "EGS has no readings of it, so it does not know its use."
        return
    yield f"Kernels ran in {_hours(usage.used_hours)}, {usage.efficiency * 100:.0f} % of the measured time."
    if work.smaller:
        yield work.smaller


def _hours(hours: float) -> str:
    return f"{number(round(hours, 1))} GPU-hours"


def work_of(gpr: Gpr) -> BoxWork | None:
    """Returns None if no GPU had readings. Runs two queries of the same size, however many nodes the box had."""
    rows = ReservedGpu.objects.filter(reservation__gpr=gpr, reservation__run=gpr.run, reservation__active_at__isnull=False)
    active_at = F("reservation__active_at")
    rows = rows.annotate(
        begin_at=Greatest(active_at, Coalesce("reservation__joined_at", active_at)),
        end_at=Coalesce("reservation__exit_began_at", "reservation__released_at", Value(gpr.ended_at, DateTimeField())),
    )
    measured = Q(gpu__latest_reading__isnull=False, end_at__isnull=False)
    box = rows.aggregate(count=Count("pk"), first_at=Min("begin_at", filter=measured), last_at=Max("end_at", filter=measured))
    begin_at, end_at = box["first_at"], box["last_at"]
    if begin_at is None:
        return None
    level = Reading1m if end_at - begin_at <= FINE else LEVELS[-1]
    whole = {"at__gte": OuterRef("begin_at"), "at__lte": ExpressionWrapper(OuterRef("end_at") - level.STEP, DateTimeField())}
    of_gpu = level._default_manager.filter(series_id=OuterRef("gpu__latest_reading"), utilization_percent__gte=IDLE_PERCENT, **whole)
    worked_at = Subquery(of_gpu.order_by("-at").values("at")[:1])
    last_by_gpu = dict(rows.filter(measured).annotate(worked_at=worked_at).exclude(worked_at=None).values_list("gpu", "worked_at"))
    last_at = max(last_by_gpu.values()) + level.STEP if last_by_gpu else None
    return BoxWork(box["count"], len(last_by_gpu), begin_at, end_at, last_at)
