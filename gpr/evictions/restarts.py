"""Estimates when boxes with an eviction notice would start again."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from datetime import datetime
from typing import Final

from core.written_sql import TimeParam, WrittenQuery
from gpr.allocation.snapshot import Loaded, at, nodes_free_at, with_newcomer, with_running_end
from gpr.models import EndReason, EvictionVictim, Gpr, GprState, VictimOutcome
from gpr.requests.ending import goes_back, left_s
from journal.guard import set_aside_on_error
from planner.engine import plan
from planner.snapshot import Snapshot


def restarts_estimate(loaded: Loaded, *, is_anew: bool, now: datetime) -> None:
    """Store estimates with the notices, by one plan for all. `is_anew`: the queue may have changed, so all are estimated again."""
    noticed = dict(_NOTICED(before=now))
    if not (noticed if is_anew else None in noticed.values()):
        return
    with set_aside_on_error("restarts_foresee", "EGS could not foresee when evicted boxes start again", now=now):
        rows = EvictionVictim.objects.filter(pk__in=noticed).select_related("gpr__slice").order_by("pk")
        _estimate(list(rows.prefetch_related("gpr__clusters", "gpr__slice__clusters")), loaded, now)


_RETURNS: Final = EvictionVictim.objects.filter(outcome=VictimOutcome.NOTICED, gpr__state=GprState.ACTIVE, gpr__requeue_on_failure=True)
# A loaded plan does not know younger notices.
_NOTICED: Final = WrittenQuery(_RETURNS.filter(eviction__made_at__lt=TimeParam("before")).order_by().values_list("pk", "foreseen_at"))


def _estimate(notices: list[EvictionVictim], loaded: Loaded, now: datetime) -> None:
    snapshot = loaded.snapshot
    for notice in notices:
        snapshot = snapshot_with_requeued(snapshot, loaded, notice.gpr, ends_at=notice.ends_at, now=now)
    starts_s = {placement.id: placement.start_s for placement in plan(snapshot).placements}
    for notice in notices:
        start_s = starts_s.get(str(notice.gpr_id))
        restart_at = None if start_s is None else at(start_s)
        if restart_at != notice.restart_at or notice.foreseen_at is None:
            EvictionVictim.objects.filter(pk=notice.pk).update(restart_at=restart_at, foreseen_at=now)


def snapshot_with_requeued(snapshot: Snapshot, loaded: Loaded, gpr: Gpr, *, ends_at: datetime, now: datetime) -> Snapshot:
    """Returns a copy in which this box is evicted at `ends_at` and, if requeued, waits at its old age."""
    freed_s = math.ceil(nodes_free_at(ends_at).timestamp())
    snapshot = with_running_end(snapshot, str(gpr.pk), freed_s)
    evicted = copy.copy(gpr)
    evicted.remaining_s, evicted.end_reason = left_s(gpr, now=ends_at), EndReason.EVICTED
    if not goes_back(evicted):
        return snapshot
    again = loaded.candidate(evicted, gpr.clusters.all())
    again = replace(again, earliest_start_s=max(again.earliest_start_s, freed_s))
    return with_newcomer(snapshot, again, gpr.queued_at or now)
