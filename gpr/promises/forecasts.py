"""Forecasts p50 and p90 of starts from past promises."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Count, F, Q, Value

from core.written_sql import IdParam, NumberParam, WrittenQuery, load_together, rows_insert
from gpr.allocation.rows import EpochSeconds
from gpr.models import AllocatorRecord, Forecast, Gpr
from planner.promises.ranges import ENOUGH_COUNT, ForecastRanges, WaitForecast

# The bounds rest on this many of the last outcomes; each class learns from the last two hundred of its own.
HISTORY_COUNT = 2_000
NOBODY: Final = UUID(int=0)
# `_planner_forecast` takes them in this order.
_FIELDS: Final = ("pk", "made_at", "started_at", "length_s", "gpu_count", "expected_wait_s", "promised_wait_s", "p50_s", "p90_s")
NO_HISTORY = (
    "There is not enough history yet: p50 is the planned start in the current queue, p90 the promised start. No other request can delay it."
)
BOOKED = "Booked: it starts at that time, unless a node fails or is not given back in time."
NO_HISTORY_BORROWED = (
    "There is not enough history yet: p50 is the planned start in the current queue, p90 the promised start. "
    "Only requests of tenants whose guaranteed GPUs it borrows can delay it."
)
LEARNED = "From past promises, above all of similar length and size: half had started by p50, nine of ten by p90."


@dataclass(frozen=True, slots=True)
class Range:
    """Waits in seconds from now. `is_learned`: from past promises; otherwise from the plan alone."""

    p50_s: int
    p90_s: int
    basis: str
    is_learned: bool


def ranges_load(*, now: datetime, edited: Gpr | None = None) -> ForecastRanges:
    """Learns from the last outcomes, and from the requests, without `edited`, that wait longer than they were told."""
    past = _past_ranges()
    if past.outcome_count < ENOUGH_COUNT:
        return past
    ((_, *missed),) = _MISSED(now_s=math.floor(now.timestamp()), edited=NOBODY if edited is None else edited.pk)
    return past.with_misses(missed)


_OPEN: Final = Forecast.objects.filter(started_at=None).exclude(gpr=IdParam("edited"))
_AGED: Final = _OPEN.alias(age_s=NumberParam("now_s") - EpochSeconds("made_at")).order_by().values_list(Value(1))
_MISSED: Final = WrittenQuery(
    _AGED.annotate(p50=Count("pk", filter=Q(age_s__gt=F("p50_s"))), p90=Count("pk", filter=Q(age_s__gt=F("p90_s"))))
)
_ENDED: Final = Forecast.objects.exclude(started_at=None).order_by("-started_at", "-pk")
_NEWEST: Final = WrittenQuery(_ENDED.values_list("started_at", "pk")[:1])
_OUTCOMES: Final = WrittenQuery(_ENDED.values_list(*_FIELDS)[:HISTORY_COUNT])
_SETTLED: Final = WrittenQuery(AllocatorRecord.objects.values_list("kept_count", "late_count"))


class _Process:
    # The ranges that the last outcomes give, behind the state of the database from which they were read.
    past: tuple[object, ForecastRanges] = (None, ForecastRanges())


def _past_ranges() -> ForecastRanges:
    # The newest alone is not enough: several start at the same time, and clocks may be set back.
    state = newest, _ = load_together((_NEWEST, None), (_SETTLED, None))
    if not newest:
        return ForecastRanges()
    known, ranges = _Process.past
    if state != known:
        rows = _OUTCOMES()
        ranges = ForecastRanges([_planner_forecast(*row) for row in reversed(rows)])
        _Process.past = state, ranges
    return ranges


def range_of(learned: ForecastRanges, asked: WaitForecast) -> Range:
    if learned.outcome_count < ENOUGH_COUNT:
        return Range(asked.expected_wait_s, asked.promised_wait_s, NO_HISTORY, is_learned=False)
    p50_s, p90_s = learned.forecast(asked).bounds_s
    return Range(p50_s, p90_s, LEARNED, is_learned=True)


def ranges_of(asked: Sequence[WaitForecast], *, now: datetime) -> dict[str, Range]:
    """Returns ranges by id. Runs no query for none."""
    learned = ranges_load(now=now) if asked else ForecastRanges()
    return {one.id: range_of(learned, one) for one in asked}


def forecasts_store(asked: Iterable[WaitForecast], ranges: Mapping[str, Range], *, now: datetime) -> None:
    """Store forecasts of GPRs that are newly promised or edited, in place of older ones that are open."""
    rows_insert([_forecast(one, ranges[one.id], now) for one in asked], unique="gpr_id", where="started_at IS NULL", keyed=False)


def forecasts_started(gprs: Iterable[Gpr], *, now: datetime) -> None:
    Forecast.objects.filter(gpr__in=[gpr.pk for gpr in gprs], started_at=None).update(started_at=now)


def forecasts_drop(gprs: Iterable[Gpr]) -> None:
    """Deletes forecasts of GPRs that were withdrawn or edited before they started: nothing is learned from them."""
    Forecast.objects.filter(gpr__in=gprs, started_at=None).delete()


def _forecast(asked: WaitForecast, range_: Range, now: datetime) -> Forecast:
    return Forecast(
        gpr_id=UUID(asked.id),
        made_at=now,
        length_s=asked.length_s,
        gpu_count=asked.gpu_count,
        expected_wait_s=asked.expected_wait_s,
        promised_wait_s=asked.promised_wait_s,
        p50_s=range_.p50_s,
        p90_s=range_.p90_s,
    )


def _planner_forecast(
    pk: int, made_at: datetime, started_at: datetime | None, length_s: int, gpu_count: int, *waits_s: int
) -> WaitForecast:
    expected_wait_s, promised_wait_s, p50_s, p90_s = waits_s
    wait_s = None if started_at is None else max(whole_s(started_at - made_at), 0)
    made_s, bounds_s = math.floor(made_at.timestamp()), (p50_s, p90_s)
    return WaitForecast(str(pk), made_s, length_s, gpu_count, expected_wait_s, promised_wait_s, bounds_s, wait_s)


def whole_s(span: timedelta) -> int:
    return math.floor(span.total_seconds())
