"""Settled promises as rows, as many as a test needs, without the hours that they would take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from accounts.models import User
from gpr.models import Forecast, Gpr, GprState, PromiseMove, PromiseOutcome
from slices.models import Slice
from tests.builders import SHAPE, unique

HOUR_S = 3_600


def settled(slice_: Slice, owner: User, at: datetime, count: int = 1, *, name: str = "", **changes: Any) -> list[PromiseOutcome]:
    """Makes `count` boxes of an hour on one node; all started at once, as promised."""
    gprs = Gpr.objects.bulk_create(_gpr(slice_, owner, at, name) for _ in range(count))
    Gpr.objects.filter(pk__in=[gpr.pk for gpr in gprs]).update(state=GprState.CANCELED, ended_at=at)  # each is born in the queue
    given = {"made_at": at, "promised_start_at": at, "started_at": at, "settled_at": at, "margin_s": 0, "wait_s": 0, "length_s": HOUR_S}
    given |= {"is_gang": False, "is_moved": False, "is_learned": False, **changes}
    return PromiseOutcome.objects.bulk_create(PromiseOutcome(gpr=gpr, **given) for gpr in gprs)


def waited(
    slice_: Slice,
    owner: User,
    at: datetime,
    waits_s: Sequence[int],
    *,
    expected_s: int = 600,
    promised_s: int = 3_600,
    range_s: tuple[int, int] = (600, 1_800),
    **changes: Any,
) -> list[PromiseOutcome]:
    """Stores one who had to wait for so long, and was told these times beforehand."""
    outcomes = settled(slice_, owner, at, len(waits_s), is_learned=True, **changes)
    for outcome, wait_s in zip(outcomes, waits_s, strict=True):
        outcome.made_at = at - timedelta(seconds=wait_s)
        outcome.promised_start_at = outcome.made_at + timedelta(seconds=promised_s)
        outcome.wait_s, outcome.margin_s = wait_s, promised_s - wait_s
    forecasts = Forecast.objects.bulk_create(_forecast(outcome, at, expected_s, promised_s, range_s) for outcome in outcomes)
    for outcome, forecast in zip(outcomes, forecasts, strict=True):
        outcome.forecast = forecast
    PromiseOutcome.objects.bulk_update(outcomes, ["made_at", "promised_start_at", "wait_s", "margin_s", "forecast"])
    return outcomes


def moved(outcome: PromiseOutcome, cause: str, *, by: timedelta = timedelta(hours=1)) -> PromiseMove:
    """Moves the promise while somebody waits for it."""
    PromiseOutcome.objects.filter(pk=outcome.pk).update(is_moved=True)
    old, new = outcome.promised_start_at, outcome.promised_start_at + by
    return PromiseMove.objects.create(gpr_id=outcome.gpr_id, at=outcome.made_at, old_start_at=old, new_start_at=new, cause=cause)


def _gpr(slice_: Slice, owner: User, at: datetime, name: str) -> Gpr:
    given: dict[str, Any] = {"shape": SHAPE, "nodes": 1, "duration_s": HOUR_S, "remaining_s": HOUR_S, "state": GprState.QUEUED}
    given |= {"created_at": at, "state_changed_at": at}
    return Gpr(name=name or unique("settled"), slice=slice_, owner=owner, **given)


def _forecast(outcome: PromiseOutcome, at: datetime, expected_s: int, promised_s: int, range_s: tuple[int, int]) -> Forecast:
    return Forecast(
        gpr_id=outcome.gpr_id,
        made_at=outcome.made_at,
        started_at=at,
        length_s=outcome.length_s,
        gpu_count=8,
        expected_wait_s=expected_s,
        promised_wait_s=promised_s,
        p50_s=range_s[0],
        p90_s=range_s[1],
    )
