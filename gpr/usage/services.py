"""Every write to usage rows and prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from accounts.models import User
from core.errors import InvalidInput, NotFound
from gpr.models import ShapePrice, UsageDay, UsageProgress
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
PRICE_MOST: Final = Decimal(1_000_000)


class UsageKey(NamedTuple):
    gpr_id: UUID
    slice_id: UUID
    cluster_id: UUID
    shape: str
    day: date


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
    changed = {key: {"held_gpu_ms": ms} for key, ms in counted.items() if key not in there or there[key].held_gpu_ms != ms}
    changed |= {key: {"held_gpu_ms": 0} for key, row in there.items() if row.held_gpu_ms and key not in counted}
    _rows_store(changed, "held_gpu_ms")


@transaction.atomic
def measured_add(progress: UsageProgress, found: Mapping[UsageKey, tuple[int, int]], *, until_at: datetime) -> None:
    """Adds GPU-milliseconds that were measured and used. The caller holds the lock, and has read nothing later than `until_at`."""
    there = _rows_of(Q(gpr__in={key.gpr_id for key in found}, day__in={key.day for key in found})) if found else {}
    sums = {}
    for key, (measured_ms, used_ms) in found.items():
        row = there.get(key) or UsageDay()
        sums[key] = {"measured_gpu_ms": row.measured_gpu_ms + measured_ms, "used_gpu_ms": row.used_gpu_ms + used_ms}
    _rows_store(sums, "measured_gpu_ms", "used_gpu_ms")
    progress.measured_until_at = until_at
    progress.save(update_fields=["measured_until_at"])


def _rows_of(which: Q) -> dict[UsageKey, UsageDay]:
    rows = UsageDay.objects.filter(which)
    return {UsageKey(row.gpr_id, row.slice_id, row.cluster_id, row.shape, row.day): row for row in rows}


def _rows_store(values: Mapping[UsageKey, Mapping[str, int]], *names: str) -> None:
    rows = [UsageDay(**key._asdict(), **given) for key, given in values.items()]
    UsageDay.objects.bulk_create(rows, update_conflicts=True, unique_fields=["gpr", "day", "cluster", "shape"], update_fields=names)


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
