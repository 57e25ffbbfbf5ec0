"""Settles each promise once: when its GPR starts, or when an overdue one is withdrawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from django.db.models import Exists, F, OuterRef, Q

from core.written_sql import TimeParam, WrittenQuery, load_together, rows_insert, sent_together
from gpr.allocation.snapshot import PROMISE_TOLERANCE, PROMISE_TOLERANCE_S, length_s
from gpr.models import AllocatorRecord, Forecast, Gpr, Promise, PromiseMove, PromiseOutcome
from gpr.promises.forecasts import forecasts_started, whole_s


def promises_settle(gprs: Sequence[Gpr], *, now: datetime) -> None:
    """Stores the outcomes of GPRs that start now."""
    ids = [gpr.pk for gpr in gprs]
    open_forecasts, promises = load_together((_OPEN_FORECASTS, ids), (_PROMISES, ids))
    foretold = {forecast.gpr_id: forecast for forecast in open_forecasts}
    outcomes = _outcomes(promises, gprs, now)
    for outcome in outcomes:
        outcome.started_at, forecast = now, foretold.get(outcome.gpr_id)
        if forecast is not None:
            # An edit makes a new forecast but may keep the promise: each counts from when it was made.
            outcome.forecast, outcome.wait_s = forecast, max(whole_s(now - forecast.made_at), 0)
    kept = [is_kept(outcome.margin_s) for outcome in outcomes]
    with sent_together():
        forecasts_started(gprs, now=now)
        rows_insert(outcomes, keyed=False)
        Promise.objects.filter(gpr__in=ids).update(slot_nodes=[])
        AllocatorRecord.objects.update(kept_count=F("kept_count") + kept.count(True), late_count=F("late_count") + kept.count(False))


def is_kept(margin_s: int) -> bool:
    # A promise names a whole second and ticks are not exact.
    return margin_s >= -PROMISE_TOLERANCE_S


def promises_abandon(gprs: Sequence[Gpr], *, now: datetime) -> None:
    """Counts promises that are overdue by now as not kept, for GPRs that are withdrawn or edited."""
    overdue = _OVERDUE([gpr.pk for gpr in gprs], latest=now - PROMISE_TOLERANCE)
    rows_insert(_outcomes(overdue, gprs, now), keyed=False)


def _outcomes(promises: Iterable[Any], gprs: Sequence[Gpr], now: datetime) -> list[PromiseOutcome]:
    of_id = {gpr.pk: gpr for gpr in gprs}
    return [_outcome(promise, of_id[promise.gpr_id], promise.has_moved, now) for promise in promises]


# A promise that only moved earlier has no PromiseMove.
_MOVES: Final = PromiseMove.objects.filter(gpr=OuterRef("gpr"), at__gte=OuterRef("made_at"))
_WITH_MOVES: Final = Promise.objects.annotate(has_moved=Exists(_MOVES))
_SETTLED: Final = PromiseOutcome.objects.filter(gpr=OuterRef("gpr"), made_at=OuterRef("made_at"))
_IS_OVERDUE: Final = ~Exists(_SETTLED) & Q(first_promised_start_at__lt=TimeParam("latest"))
_PROMISES: Final = WrittenQuery(_WITH_MOVES, key="gpr__id")
_OVERDUE: Final = WrittenQuery(_WITH_MOVES.filter(_IS_OVERDUE), key="gpr__id")
_OPEN_FORECASTS: Final = WrittenQuery(Forecast.objects.filter(started_at=None), key="gpr__id")


def _outcome(promise: Promise, gpr: Gpr, is_moved: bool, now: datetime) -> PromiseOutcome:
    return PromiseOutcome(
        gpr_id=gpr.pk,
        made_at=promise.made_at,
        promised_start_at=promise.first_promised_start_at,
        settled_at=now,
        margin_s=whole_s(promise.first_promised_start_at - now),
        wait_s=max(whole_s(now - promise.made_at), 0),
        length_s=length_s(gpr),
        is_gang=gpr.nodes > 1,
        is_moved=is_moved,
        is_learned=promise.p90_at is not None,
    )
