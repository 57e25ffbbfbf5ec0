"""Runs the tick: it moves every GPR along, plans the queue, and starts what can start.

It runs every second and on every hint, under a lock that nobody waits for. Its state is in the database and each step is a short
guarded transaction, so a missed or repeated tick does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db.models import F

from core.clock import db_now
from core.errors import EgsError
from core.locks import single_runner
from core.written_sql import TimeParam, WrittenQuery
from gpr.allocation.absence import ALLOCATOR_RECORD, absence_of, is_just_over
from gpr.allocation.advance import advance
from gpr.allocation.change_log import changes_prune
from gpr.allocation.live import live_check
from gpr.allocation.rows import gprs_by_id
from gpr.allocation.snapshot import Loaded, at
from gpr.allocation.starts import gprs_start
from gpr.allocation.stored_plan import replan, shadows_prune
from gpr.bookings.services import occurrences_retry, series_extend_due
from gpr.closing.services import closing_advance
from gpr.cluster_requests.orphans import orphans_cancel
from gpr.evictions.restarts import restarts_estimate
from gpr.evictions.withdrawals import notices_review
from gpr.followers.services import followers_cancel
from gpr.models import AllocatorRecord, Gpr, GprState
from gpr.replacement.services import replacements_review
from inventory.services.supplies import orders_give_up
from journal.guard import set_aside_on_error, write_or_set_aside
from journal.models import Event
from planner.plan import Plan
from planner.snapshot import Slot
from slices.kubeconfigs.services import kubeconfigs_expire

WHOLE_PAUSE = 4  # times as long as the last plan of the whole queue took
STARTS_AT_ONCE = 100  # in one transaction; if it fails, each GPR gets its own
PRUNE_EVERY = 100  # ticks
# At rest: agents that give no sign, requests to withdraw, orders that are late, and their like are looked at so often.
REVIEW_EVERY = timedelta(seconds=5)


@dataclass(slots=True)
class TickReport:
    moved_count: int = 0
    queued_count: int = 0
    started: list[UUID] = field(default_factory=list)
    skipped: dict[UUID, str] = field(default_factory=dict)
    rested: bool = False


def tick(*, now: datetime | None = None, may_rest: bool = False, may_hurry: bool = False) -> TickReport | None:
    """Run one tick; None when another process runs one. Simulations and tests pass `now`.

    `may_rest`: when nothing has happened since the last plan and nothing is due, plan nothing, and look at deadlines of other kinds only
    every REVIEW_EVERY. `may_hurry`: find only what ends and starts now, if the whole queue was planned a moment ago; the next tick does the
    rest.
    """
    with single_runner("allocator") as mine:
        if not mine:
            return None
        now, began_s = now or db_now(), time.perf_counter()
        record = next(iter(ALLOCATOR_RECORD()), None) or AllocatorRecord.objects.create()
        if may_rest and _is_reviewed(record, now) and _may_rest(record, now):
            return TickReport(rested=True)
        absence = absence_of(record, now)
        away = {"away_at": absence.began_at if absence else None, "back_at": absence.ended_at if absence else None}
        AllocatorRecord.objects.update(began_at=now, **away)
        report = TickReport(moved_count=advance(now=now))
        hurries = may_hurry and time.monotonic() < _Process.whole_until_mono
        if not hurries:
            for review in (notices_review, replacements_review, series_extend_due, occurrences_retry):
                review(now=now)
            if not is_just_over(absence, now):
                orders_give_up(now=now)
            for review in (closing_advance, kubeconfigs_expire, orphans_cancel, followers_cancel):
                review(now=now)
        if may_rest and _may_rest(record, now):
            report.rested = True
        else:
            _plan_and_start(report, record, now, hurries=hurries)
        with set_aside_on_error("planner_memory", "The planner could not check what it remembers", now=now):
            live_check(now=now)
            if record.tick_count % PRUNE_EVERY == 0:
                changes_prune()
                shadows_prune(now=now)
        planned = {"planned_event_id": record.planned_event_id, "rests_until_at": record.rests_until_at}
        duration_s = time.perf_counter() - began_s
        AllocatorRecord.objects.update(last_tick_at=now, last_duration_s=duration_s, tick_count=F("tick_count") + 1, **planned)
        return report


class _Process:
    whole_until_mono = 0.0  # when the whole queue may be planned again, if ticks are in a hurry


def _plan_and_start(report: TickReport, record: AllocatorRecord, now: datetime, *, hurries: bool) -> None:
    event_id, began_mono = _last_event_id(), time.monotonic()
    made, loaded = replan(now=now, explained=frozenset() if hurries else None)
    if not hurries:
        ended_mono = time.monotonic()
        _Process.whole_until_mono = ended_mono + WHOLE_PAUSE * (ended_mono - began_mono)
    report.queued_count = len(loaded.snapshot.queue)
    gprs = gprs_by_id(placement.id for placement in made.starts)
    due = [(gpr, p.slot) for p in made.starts if p.slot is not None and (gpr := gprs.get(p.id)) is not None]
    _start(due, loaded, now, report)
    if hurries:
        record.rests_until_at = None
        return
    restarts_estimate(loaded, is_anew=event_id != record.planned_event_id, now=now)
    # This plan's own events are later than `event_id`, so the next tick plans again if this plan changed something.
    record.planned_event_id, record.rests_until_at = event_id, None if report.skipped else _rests_until(made, now)


def _may_rest(record: AllocatorRecord, now: datetime) -> bool:
    until_at = record.rests_until_at
    is_within = until_at is not None and now < until_at <= now + timedelta(seconds=settings.EGS_REST_S)  # clocks may be set back
    return is_within and record.planned_event_id == _last_event_id()


def _is_reviewed(record: AllocatorRecord, now: datetime) -> bool:
    return record.last_tick_at is not None and record.last_tick_at <= now < record.last_tick_at + REVIEW_EVERY


def _rests_until(made: Plan, now: datetime) -> datetime | None:
    # EGS_REST_S bounds the rest, since not every change is an event.
    if made.basis is None or made.basis.until_s <= made.now_s:
        return None
    until_at = at(min(made.basis.until_s, made.now_s + settings.EGS_REST_S))
    return min([until_at, *(ends_at for (ends_at,) in _NEXT_END(now=now) if ends_at is not None)])


def _last_event_id() -> int:
    return next((pk for (pk,) in _LAST_EVENT()), 0)


_ENDS_LATER: Final = Gpr.objects.filter(state=GprState.ACTIVE, ends_at__gt=TimeParam("now"))
_NEXT_END: Final = WrittenQuery(_ENDS_LATER.order_by("ends_at").values_list("ends_at")[:1])
_LAST_EVENT: Final = WrittenQuery(Event.objects.order_by("-pk").values_list("pk")[:1])


def _start(due: Sequence[tuple[Gpr, Slot]], loaded: Loaded, now: datetime, report: TickReport) -> None:
    def fresh(some: Sequence[tuple[Gpr, Slot]]) -> list[tuple[Gpr, Slot]]:
        gprs = gprs_by_id(gpr.pk for gpr, _ in some)
        return [(gprs[str(gpr.pk)], slot) for gpr, slot in some if str(gpr.pk) in gprs]

    written = write_or_set_aside(
        due,
        lambda some: gprs_start(dict(some), loaded=loaded, now=now),
        at_once=STARTS_AT_ONCE,
        code="gpr_start",
        failed="This request could not be started",
        now=now,
        subject=lambda each: {"gpr_id": each[0].pk},
        renew=fresh,
    )
    for (gpr, _), error in written:
        if error is None:
            report.started.append(gpr.pk)
        else:
            report.skipped[gpr.pk] = error.detail if isinstance(error, EgsError) else "internal error"
