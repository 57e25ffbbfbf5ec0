"""Watches whether GPUs of active boxes work: each minute once, and once more before a box is released."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import F, Q

from gpr.idle.selectors import idle_gprs
from gpr.idle.services import Seen, idle_observe, idle_warn
from gpr.models import Gpr, GprState, UsageProgress
from inventory.models import ReservationState, ReservedGpu
from observability.models import LatestReading, Reading1m, Reading15s
from observability.telemetry.selectors import IDLE_PERCENT
from protocol.gpus.telemetry import STALE_S

Minutes = Mapping[datetime, Mapping[int | None, int]]  # use in percent, by minute and by the id of the GPU's course
MINUTE: Final = Reading1m.STEP


def minutes_observe(minutes: Minutes, *, since: datetime, until: datetime) -> None:
    """Tells which active boxes were idle in these minutes. It must run in a transaction."""
    gprs = {gpr.pk: gpr for gpr in _with_timeout()}
    series = _series_of(gprs)
    seen = {}
    for pk, gpr in gprs.items():
        begin_at = max(since, _first_minute(gpr, since))
        if begin_at < until:
            seen[gpr] = Seen(begin_at, _idle_since(series[pk], minutes, begin_at, until))
    idle_observe(seen, until=until)


def idle_step(*, now: datetime) -> None:
    """Warns of idle boxes, and releases those whose time-out is over."""
    known_at = UsageProgress.objects.values_list("measured_until_at", flat=True).first()
    if known_at is None:
        return
    idle_warn(known_at=known_at, now=now)
    for gpr, idleness in idle_gprs():
        if known_at >= idleness.ends_at and is_idle_now(gpr, since=known_at, now=now):
            from gpr.idle.ending import idle_release

            idle_release(gpr_id=gpr.pk, known_at=known_at, now=now)


def is_idle_now(gpr: Gpr, *, since: datetime, now: datetime) -> bool:
    """Tells whether every GPU of the box has a fresh reading and none has worked since then."""
    series = _series_of([gpr.pk])[gpr.pk]
    known = [series_id for series_id in series if series_id is not None]
    fresh = LatestReading.objects.filter(pk__in=known, at__gt=now - timedelta(seconds=STALE_S), utilization_percent__lt=IDLE_PERCENT)
    worked = Reading15s._default_manager.filter(series_id__in=known, at__gte=since, utilization_percent__gte=IDLE_PERCENT)
    return bool(series) and fresh.count() == len(series) and not worked.exists()


def _with_timeout() -> Iterable[Gpr]:
    has_own = Q(idle_timeout_s__gt=0) | Q(idle_timeout_s=None, slice__idle_timeout_s__gt=0)
    return Gpr.objects.filter(has_own, state=GprState.ACTIVE).order_by("pk")


def _series_of(gpr_ids: Iterable[UUID]) -> Mapping[UUID, list[int | None]]:
    """Returns the courses of the GPUs in the present run of each box; None: the GPU has no reading at all."""
    held = ReservedGpu.objects.filter(reservation__gpr__in=list(gpr_ids), state=ReservationState.HELD)
    is_in_box = Q(reservation__run=F("reservation__gpr__run")) & (Q(reservation__replaces=None) | Q(reservation__joined_at__isnull=False))
    found: dict[UUID, list[int | None]] = defaultdict(list)
    for gpr_id, series_id in held.filter(is_in_box).values_list("reservation__gpr", "gpu__latest_reading"):
        found[gpr_id].append(series_id)
    return found


def _idle_since(series: Sequence[int | None], minutes: Minutes, begin: datetime, until: datetime) -> datetime:
    """Returns the end of the last minute in which a GPU worked or was not measured, or `begin`."""
    minute = until - MINUTE
    while minute >= begin:
        percents = minutes.get(minute, {})
        if not series or any(percents.get(series_id, IDLE_PERCENT) >= IDLE_PERCENT for series_id in series):
            return minute + MINUTE
        minute -= MINUTE
    return begin


def _first_minute(gpr: Gpr, since: datetime) -> datetime:
    """Returns the begin of the first whole minute in which it was active."""
    active_at = gpr.active_at or since
    begin = active_at.replace(second=0, microsecond=0)
    return begin if begin == active_at else begin + MINUTE
