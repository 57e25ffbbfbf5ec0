"""Makes every write to usage rows and prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from operator import add
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from accounts.models import User
from core.errors import InvalidInput, NotFound
from gpr.models import NO_WORKLOAD, ShapePrice, UsageDay, UsageProgress
from gpr.usage.holds import held_since, holds_load
from inventory.models import Reservation
from inventory.selectors import shapes_known
from journal.changes import difference
from journal.services import event_record

DAY: Final = timedelta(days=1)
MS: Final = timedelta(milliseconds=1)
# A release may be committed so long after the time that it bears. Until then its day is counted anew.
COMMIT_LAG: Final = timedelta(minutes=10)
DAYS_AT_ONCE: Final = 31
WORKLOADS_KEPT: Final = timedelta(days=92)
FORGOTTEN_AT_ONCE: Final = 1000
PRICE_MOST: Final = Decimal(1_000_000)


class UsageKey(NamedTuple):
    gpr_id: UUID
    slice_id: UUID
    cluster_id: UUID
    shape: str
    day: date
    workload: UUID = NO_WORKLOAD


class Work(NamedTuple):
    """Holds GPU time."""

    held_ms: int
    measured_ms: int
    used_ms: int


KEY_COLUMNS: Final = UsageKey._fields
WORK_COLUMNS: Final = ("held_gpu_ms", "measured_gpu_ms", "used_gpu_ms")
NOTHING: Final = Work(0, 0, 0)


def day_of(moment: datetime) -> date:
    return moment.astimezone(UTC).date()


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def progress_lock() -> UsageProgress:
    """Locks the row that each count of usage holds. It must run in a transaction."""
    UsageProgress.objects.get_or_create(pk=1)
    return UsageProgress.objects.select_for_update().get(pk=1)


def held_count(*, now: datetime) -> None:
    """Counts each day that may still change anew, so it is right however often, late or seldom it runs."""
    begin = UsageProgress.objects.values_list("held_until_at", flat=True).first() or _first_start(now)
    first = day_of(begin)
    for n in range(min((day_of(now) - first).days + 1, DAYS_AT_ONCE)):
        _day_settle(first + n * DAY, now)


@transaction.atomic
def _day_settle(day: date, now: datetime) -> None:
    progress = progress_lock()
    final_until_at = progress.held_until_at
    if final_until_at is not None and midnight(day) < final_until_at:  # another process was first
        return
    _day_count(day, now)
    until_at = min(midnight(day) + DAY, midnight(day_of(now - COMMIT_LAG)))
    if final_until_at is None or until_at > final_until_at:
        progress.held_until_at = until_at
        progress.save(update_fields=["held_until_at"])


def _first_start(now: datetime) -> datetime:
    first = Reservation.objects.order_by("starts_at").values_list("starts_at", flat=True).first()
    return min(first or now, now)


def _day_count(day: date, now: datetime) -> None:
    begin, end = midnight(day), min(midnight(day) + DAY, now)
    counted: Counter[UsageKey] = Counter()
    for hold in holds_load(held_since(begin) & Q(starts_at__lt=end), now=now):
        length_ms = (min(hold.ends_at, end) - max(hold.starts_at, begin)) // MS
        if length_ms > 0:
            counted[UsageKey(hold.gpr_id, hold.slice_id, hold.cluster_id, hold.shape, day)] += hold.gpu_count * length_ms
    there = _rows_of(Q(day=day))
    of_workloads: Counter[UsageKey] = Counter()
    for key, work in there.items():
        if key.workload != NO_WORKLOAD:
            of_workloads[key._replace(workload=NO_WORKLOAD)] += work.held_ms
    held = {key: counted[key] - of_workloads[key] for key in counted.keys() | there.keys() if key.workload == NO_WORKLOAD}
    held |= _cut(there, {key: -ms for key, ms in held.items() if ms < 0})
    changed = {key: there.get(key, NOTHING)._replace(held_ms=max(ms, 0)) for key, ms in held.items()}
    _rows_store({key: work for key, work in changed.items() if there.get(key, NOTHING) != work})


def _cut(there: Mapping[UsageKey, Work], excess: dict[UsageKey, int]) -> dict[UsageKey, int]:
    """Returns what workloads held of boxes that were released earlier than it seemed."""
    held = {}
    for key, work in there.items():
        left_ms = excess.get(key._replace(workload=NO_WORKLOAD), 0) if key.workload != NO_WORKLOAD else 0
        if left_ms:
            held[key] = max(work.held_ms - left_ms, 0)
            excess[key._replace(workload=NO_WORKLOAD)] -= work.held_ms - held[key]
    return held


@transaction.atomic
def measured_add(progress: UsageProgress, found: Mapping[UsageKey, Work], names: Mapping[UUID, str], *, until_at: datetime) -> None:
    """Adds time that was measured and used, and takes what workloads held from the rest of their boxes. The caller holds the lock, and has
    read nothing later than `until_at`. `names`: of workloads.
    """
    there = _rows_of(Q(gpr__in={key.gpr_id for key in found}, day__in={key.day for key in found})) if found else {}
    sums = {key: there.get(key, NOTHING) for key in found}
    for key, work in found.items():
        rest = key._replace(workload=NO_WORKLOAD)
        held_ms = 0
        if key != rest:
            sums.setdefault(rest, there.get(rest, NOTHING))
            held_ms = min(work.held_ms, sums[rest].held_ms)
            sums[rest] = sums[rest]._replace(held_ms=sums[rest].held_ms - held_ms)
        had = sums[key]
        sums[key] = Work(had.held_ms + held_ms, had.measured_ms + work.measured_ms, had.used_ms + work.used_ms)
    _rows_store(sums, names)
    progress.measured_until_at = until_at
    progress.save(update_fields=["measured_until_at"])


@transaction.atomic
def workloads_forget(*, now: datetime) -> None:
    """Adds what workloads had long ago to what their boxes had."""
    old = UsageDay.objects.filter(~Q(workload=NO_WORKLOAD), day__lt=day_of(now - WORKLOADS_KEPT)).order_by("day")
    ids = list(old.values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE])
    if not ids:
        return
    progress_lock()
    found = _rows_of(Q(pk__in=ids))
    there = _rows_of(Q(gpr__in={key.gpr_id for key in found}, day__in={key.day for key in found}))
    sums: dict[UsageKey, Work] = {}
    for key, work in found.items():
        rest = key._replace(workload=NO_WORKLOAD)
        sums[rest] = Work(*map(add, sums.get(rest) or there.get(rest, NOTHING), work))
    _rows_store(sums)
    UsageDay.objects.filter(pk__in=ids).delete()


def _rows_of(which: Q) -> dict[UsageKey, Work]:
    rows = UsageDay.objects.filter(which).values_list(*KEY_COLUMNS, *WORK_COLUMNS)
    return {UsageKey(*row[: len(KEY_COLUMNS)]): Work(*row[len(KEY_COLUMNS) :]) for row in rows}


def _rows_store(sums: Mapping[UsageKey, Work], names: Mapping[UUID, str] | None = None) -> None:
    rows = [
        UsageDay(**key._asdict(), workload_name=(names or {}).get(key.workload, ""), **dict(zip(WORK_COLUMNS, work, strict=True)))
        for key, work in sums.items()
    ]
    once = ["gpr", "day", "cluster", "shape", "workload"]
    UsageDay.objects.bulk_create(rows, update_conflicts=True, unique_fields=once, update_fields=WORK_COLUMNS)


@transaction.atomic
def price_set(*, shape: str, price: Decimal, from_day: date, actor: User, now: datetime) -> ShapePrice:
    """Sets the price from this day on; the price of an earlier day stays. Raises InvalidInput."""
    if shape not in shapes_known() | set(UsageDay.objects.filter(shape=shape).values_list("shape", flat=True)[:1]):
        raise InvalidInput({"shape": [f"No cluster has {shape}. There are: {', '.join(sorted(shapes_known())) or 'none yet'}."]})
    if not 0 <= price <= PRICE_MOST:
        raise InvalidInput({"gpu_hour_price": [f"Must be from 0 to {PRICE_MOST:,}."]})
    given: dict[str, Any] = {"gpu_hour_price": price, "set_at": now, "set_by": actor}
    had = ShapePrice.objects.filter(shape=shape, from_day__lte=from_day).order_by("-from_day").first()
    row, _ = ShapePrice.objects.update_or_create(shape=shape, from_day=from_day, defaults=given)
    changed = difference({"gpu_hour_price": had and had.gpu_hour_price}, {"gpu_hour_price": price})
    _price_record("price.set", row, f"A GPU-hour of {shape} costs {price:f} from {from_day} on.", actor, now, changed)
    return row


@transaction.atomic
def price_delete(*, price: ShapePrice, actor: User, now: datetime) -> None:
    """The price before it holds again. Raises NotFound."""
    if not ShapePrice.objects.filter(pk=price.pk).delete()[0]:
        raise NotFound("price")
    _price_record("price.deleted", price, f"The price of {price.shape} from {price.from_day} on was deleted.", actor, now)


def _price_record(kind: str, price: ShapePrice, message: str, actor: User, now: datetime, changed: Mapping[str, Any] | None = None) -> None:
    data = {**(changed or {}), "shape": price.shape, "from_day": str(price.from_day), "gpu_hour_price": str(price.gpu_hour_price)}
    event_record(kind=kind, message=message, at=now, actor=actor, data=data)
