"""The tick: move every GPR along, plan the queue, start what can start.

It runs every second and on every hint, under a lock that nobody waits for. Its state is in the database and each step is a short
guarded transaction, so a missed or repeated tick does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Prefetch, Q, QuerySet
from fast_update.fast import fast_update

from core.clock import db_now
from core.errors import EgsError
from core.locks import single_runner
from core.words import are, plural, utc
from core.written_sql import Moment, WrittenQuery
from gpr.allocation.absence import ALLOCATOR_RECORD, absence_of, is_just_over, was_just_away
from gpr.allocation.change_log import changes_prune
from gpr.allocation.live import live_check
from gpr.allocation.rows import gprs_by_id
from gpr.allocation.snapshot import Loaded, at, nodes_free_at
from gpr.allocation.starts import gprs_start
from gpr.allocation.stored_plan import explanation_data, replan, shadows_prune
from gpr.bookings.services import occurrences_retry, series_extend_due
from gpr.closing.services import closing_advance
from gpr.cluster_requests.services import orphans_cancel
from gpr.evictions.restarts import restarts_estimate
from gpr.evictions.services import reason_at_end
from gpr.evictions.withdrawals import notices_review
from gpr.lifecycle import gprs_transition
from gpr.models import PROVISIONED, AllocatorRecord, EndReason, Gpr, GprState
from gpr.replacement.services import box_of, loss_of, replacements_review, spare_advance, spares_of
from gpr.requests.ending import exit_begin, exit_finish
from inventory.models import Reservation, ReservationState
from inventory.services.reservations import BoxWindow, reservations_set_windows
from inventory.services.supplies import orders_give_up
from journal.guard import set_aside_on_error
from journal.models import Event, Severity
from journal.services import event_record
from planner.capacity.profile import FOREVER_S
from planner.plan import Explanation, Plan, Reason
from planner.sharing.evictions import evictions_possible
from planner.snapshot import Slot
from protocol.assignments import Desired, Phase
from slices.kubeconfigs.services import kubeconfigs_expire

log = structlog.get_logger(__name__)

S = GprState
MARKS_PERCENT = (25, 50, 75)
OVERDUE_NAMES_MAX = 8
STARTS_AT_ONCE = 50  # in one transaction; if it fails, each GPR gets its own
MOVES_AT_ONCE = 100
# The agent itself gives up an entry at the time-out. The hub does so only after this much more silence.
ENTRY_SILENCE_S = 30
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


def tick(*, now: datetime | None = None, may_rest: bool = False) -> TickReport | None:
    """Run one tick; None when another process runs one. Simulations and tests pass `now`.

    `may_rest`: when nothing has happened since the last plan and nothing is due, plan nothing, and look at deadlines of other kinds only
    every REVIEW_EVERY.
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
        notices_review(now=now)
        replacements_review(now=now)
        series_extend_due(now=now)
        occurrences_retry(now=now)
        if not is_just_over(absence, now):
            orders_give_up(now=now)
        closing_advance(now=now)
        kubeconfigs_expire(now=now)
        orphans_cancel(now=now)
        if may_rest and _may_rest(record, now):
            report.rested = True
        else:
            _plan_and_start(report, record, now)
        with set_aside_on_error("planner_memory", "What the planner remembers could not be checked", now=now):
            live_check(now=now)
            if record.tick_count % PRUNE_EVERY == 0:
                changes_prune()
                shadows_prune(now=now)
        duration_s = time.perf_counter() - began_s
        AllocatorRecord.objects.update(last_tick_at=now, last_duration_s=duration_s, tick_count=F("tick_count") + 1)
        return report


def _plan_and_start(report: TickReport, record: AllocatorRecord, now: datetime) -> None:
    event_id = _last_event_id()
    made, loaded = replan(now=now)
    report.queued_count = len(loaded.snapshot.queue)
    gprs = gprs_by_id(placement.id for placement in made.starts)
    due = [(gpr, p.slot) for p in made.starts if p.slot is not None and (gpr := gprs.get(p.id)) is not None]
    for first in range(0, len(due), STARTS_AT_ONCE):
        _try_starts(dict(due[first : first + STARTS_AT_ONCE]), loaded, now, report)
    restarts_estimate(loaded, is_anew=event_id != record.planned_event_id, now=now)
    # This plan's own events are later than `event_id`, so the next tick plans again if this plan changed something.
    AllocatorRecord.objects.update(planned_event_id=event_id, rests_until_at=None if report.skipped else _rests_until(made, loaded, now))


def _may_rest(record: AllocatorRecord, now: datetime) -> bool:
    until_at = record.rests_until_at
    is_within = until_at is not None and now < until_at <= now + timedelta(seconds=settings.EGS_REST_S)  # clocks may be set back
    return is_within and record.planned_event_id == _last_event_id()


def _is_reviewed(record: AllocatorRecord, now: datetime) -> bool:
    return record.last_tick_at is not None and record.last_tick_at <= now < record.last_tick_at + REVIEW_EVERY


def _rests_until(made: Plan, loaded: Loaded, now: datetime) -> datetime | None:
    # Time alone changes the plan when a start or an end is due or nodes close or open. EGS_REST_S bounds the rest, since not every
    # change is an event. While requests may take capacity from others it never rests: each plan considers only some of them.
    snapshot = loaded.snapshot
    evictor_count = sum(request.may_evict for request in snapshot.queue)
    if snapshot.queue and evictions_possible(snapshot.policy, snapshot.quotas, evictor_count=evictor_count):
        return None
    times_s = [box.end_s for box in snapshot.running] + ([] if made.next_start_s is None else [made.next_start_s])
    windows = (window for pool in snapshot.pools for node in pool.nodes for window in node.closed)
    times_s += [at_s for window in windows for at_s in (window.start_s, window.end_s)]
    due_s = min((at_s for at_s in times_s if at_s > snapshot.now_s), default=FOREVER_S)
    until_at = at(min(due_s, snapshot.now_s + settings.EGS_REST_S))
    return min([until_at, *(ends_at for (ends_at,) in _NEXT_END(now=now) if ends_at is not None)])


def _last_event_id() -> int:
    return next((pk for (pk,) in _LAST_EVENT()), 0)


def advance(*, now: datetime) -> int:
    """Move every provisioned GPR as far as its nodes and the clock allow. Returns the number of transitions."""
    moved_count = _activate_ready(now)
    for gpr in _with_rows(_ids_due(now)):
        rows = gpr.rows_now
        # After a pause several transitions may be due.
        while gpr.state in PROVISIONED and _advance_one(gpr, rows, now):
            moved_count += 1
            rows = list(_rows_now().filter(gpr=gpr))
    return moved_count


def _ids_due(now: datetime) -> set[UUID]:
    # Most boxes run undisturbed, so only those that may be due by the clock or by their nodes are read.
    moved = {pk for (pk,) in (*_ENDING(now=now), *_ON_NODES(late=now - timedelta(seconds=ENTRY_SILENCE_S)))}
    return moved.union(pk for pk, active_at, ends_at, passed in _WINDOWS() if _marks(active_at, ends_at, now) > passed)


def _on_nodes() -> QuerySet[Any, tuple[UUID]]:
    """GPRs that may have to move since something happened on one of their nodes."""
    leaves = Q(state=ReservationState.RELEASED) | Q(phase__in=[Phase.FAILED, Phase.EXITING, Phase.RELEASED]) | ~Q(desired=Desired.PRESENT)
    fails = leaves | Q(node__gone_at__isnull=False)
    enters = fails | Q(enter_by_at__lt=Moment("late")) | Q(phase=Phase.ACTIVE) | Q(active_at__isnull=False)
    runs = fails | Q(replaces__isnull=False) | Q(failing_at__isnull=False)
    rows = Reservation.objects.filter(Q(gpr__state=S.PROVISIONING) & enters | Q(gpr__state=S.ACTIVE) & runs, run=F("gpr__run"))
    return rows.order_by().values_list("gpr")


_ENDING: Final = WrittenQuery(
    Gpr.objects.filter(Q(state=S.EXITING) | Q(state=S.ACTIVE, ends_at__lte=Moment("now"))).order_by().values_list("pk")
)
_WINDOWS: Final = WrittenQuery(Gpr.objects.filter(state=S.ACTIVE).order_by().values_list("pk", "active_at", "ends_at", "marks_passed"))
_ON_NODES: Final = WrittenQuery(_on_nodes())
_SHUT: Final = Reservation.objects.filter(gpr=OuterRef("pk"), run=OuterRef("run"), active_at=None).exclude(phase=Phase.ACTIVE)
_OPEN: Final = WrittenQuery(Gpr.objects.filter(~Exists(_SHUT), state=S.PROVISIONING).order_by().values_list("pk"))
_ENDS_LATER: Final = Gpr.objects.filter(state=S.ACTIVE, ends_at__gt=Moment("now"))
_NEXT_END: Final = WrittenQuery(_ENDS_LATER.order_by("ends_at").values_list("ends_at")[:1])
_LAST_EVENT: Final = WrittenQuery(Event.objects.order_by("-pk").values_list("pk")[:1])


def _with_rows(ids: Collection[UUID]) -> Iterable[Any]:
    """Loads GPRs with the reservations of the current run as `rows_now`."""
    gprs = Gpr.objects.filter(pk__in=ids) if ids else Gpr.objects.none()
    return gprs.select_related("slice").order_by("pk").prefetch_related(Prefetch("reservations", _rows_now(), to_attr="rows_now"))


def _rows_now() -> QuerySet[Reservation]:
    return Reservation.objects.filter(run=F("gpr__run")).select_related("node")


def _from_provisioning(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> bool:
    if _has_lost_a_node(rows):
        return _exit(gpr, EndReason.NODE_FAILURE, now)
    if _is_open(rows):
        _activate([(gpr, rows)], now)
        return True
    failed = next((row for row in rows if row.phase == Phase.FAILED or _is_leaving(row)), None)
    if failed is not None:
        return _exit(gpr, EndReason.CHECK_FAILED, now, why=f"{failed.node.name}: {failed.failure}" if failed.failure else "")
    if any(now > row.enter_by_at + timedelta(seconds=ENTRY_SILENCE_S) for row in rows) and not was_just_away(now=now):
        return _exit(gpr, EndReason.CHECK_FAILED, now, why="The nodes were not ready in time.")
    return False


def _from_active(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> bool:
    if gpr.ends_at is not None and now >= gpr.ends_at:
        return _exit(gpr, reason_at_end(gpr), now)
    box = box_of(rows)
    if any(_is_leaving(row) and not row.is_given_up for row in box):
        # Near the end it is the agent's clock that runs ahead of ours; otherwise the agent failed.
        is_over = gpr.ends_at is not None and (gpr.ends_at - now).total_seconds() < settings.EGS_EXIT_ALLOWANCE_S
        return _exit(gpr, reason_at_end(gpr) if is_over else EndReason.NODE_FAILURE, now)
    if any(spare_advance(gpr=gpr, spare=spare, now=now) for spare in spares_of(rows)):
        return True
    lost = loss_of(gpr, rows, now)
    return _exit(gpr, EndReason.NODE_FAILURE, now, why=lost.why) if lost else _record_marks(gpr, now)


def _from_exiting(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> bool:
    if any(row.state == ReservationState.HELD for row in rows):
        _record_overdue(gpr, rows, now)
        return False
    exit_finish(gpr=gpr, now=now)
    return True


_STEPS: dict[GprState, Callable[[Gpr, Sequence[Reservation], datetime], bool]] = {
    S.PROVISIONING: _from_provisioning,
    S.ACTIVE: _from_active,
    S.EXITING: _from_exiting,
}


def _is_leaving(row: Reservation) -> bool:
    return row.phase in {Phase.EXITING, Phase.RELEASED} or row.state == ReservationState.RELEASED


def _exit(gpr: Gpr, reason: EndReason, now: datetime, why: str = "") -> bool:
    exit_begin(gpr=gpr, reason=reason, now=now, why=why)
    return True


def _activate_ready(now: datetime) -> int:
    # GPRs that fail here are moved one by one afterwards.
    gprs = _with_rows([pk for (pk,) in _OPEN()])
    ready = [gpr for gpr in gprs if _is_open(gpr.rows_now) and not _has_lost_a_node(gpr.rows_now)]
    count = 0
    for first in range(0, len(ready) if len(ready) > 1 else 0, MOVES_AT_ONCE):
        some = ready[first : first + MOVES_AT_ONCE]
        try:
            _activate([(gpr, gpr.rows_now) for gpr in some], now)
            count += len(some)
        except Exception as error:
            _log_fallback("activations", error)
    return count


def _has_lost_a_node(rows: Sequence[Reservation]) -> bool:
    return any(row.node.gone_at for row in rows)


def _is_open(rows: Sequence[Reservation]) -> bool:
    # A row with `active_at` was opened, and may have been closed at its end since the last tick.
    return bool(rows) and all(row.phase == Phase.ACTIVE or row.active_at is not None for row in rows)


@transaction.atomic
def _activate(boxes: Sequence[tuple[Gpr, Sequence[Reservation]]], now: datetime) -> None:
    # The time counts from the moment when the agent opened the last node.
    windows = []
    for gpr, rows in boxes:
        gpr.active_at = max(row.active_at or now for row in rows)
        gpr.ends_at = gpr.active_at + timedelta(seconds=gpr.remaining_s)
        windows.append(BoxWindow(gpr.pk, gpr.ends_at, nodes_free_at(gpr.ends_at)))
    gprs = [gpr for gpr, _ in boxes]
    # If another process moved one of them meanwhile, the transition below raises and this write is rolled back.
    fast_update(Gpr.objects.all(), gprs, ["active_at", "ends_at"], None)
    messages = [(gpr, f"{gpr.name} is provisioned until {utc(window.not_after_at)}.") for gpr, window in zip(gprs, windows, strict=True)]
    gprs_transition(messages=messages, to=S.ACTIVE, now=now, changes={"entry_attempts": 0})
    reservations_set_windows(windows)


def _marks(active_at: datetime | None, ends_at: datetime | None, now: datetime) -> int:
    if active_at is None or ends_at is None:
        return 0
    share = (now - active_at) / (ends_at - active_at) * 100
    return sum(share >= mark for mark in MARKS_PERCENT)


def _record_marks(gpr: Gpr, now: datetime) -> bool:
    # After a pause only the latest mark is recorded.
    passed = _marks(gpr.active_at, gpr.ends_at, now)
    if passed <= gpr.marks_passed:
        return False
    with transaction.atomic():
        if Gpr.objects.filter(pk=gpr.pk, state=S.ACTIVE, marks_passed__lt=passed).update(marks_passed=passed):
            event_record(
                kind="gpr.mark",
                message=f"{MARKS_PERCENT[passed - 1]} % of the time of {gpr.name} has passed.",
                at=now,
                reason=f"{MARKS_PERCENT[passed - 1]}%",
                gpr_id=gpr.pk,
                slice_id=gpr.slice_id,
                cluster_id=gpr.cluster_id,
            )
    gpr.marks_passed = passed
    return False


def _record_overdue(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> None:
    # The stored explanation makes sure that the Event is written once.
    if gpr.explanation or now <= nodes_free_at(gpr.state_changed_at):
        return
    late = [row.node.name for row in rows if row.state == ReservationState.HELD]
    explanation = explanation_data(Explanation(Reason.NODES_NOT_BACK))
    with transaction.atomic():
        if Gpr.objects.filter(pk=gpr.pk, state=S.EXITING, version=gpr.version).update(explanation=explanation):
            event_record(
                kind="gpr.exit_overdue",
                message=f"{plural(len(late), 'node')} of {gpr.name} {are(len(late))} not back yet: {', '.join(late[:OVERDUE_NAMES_MAX])}. "
                "If their agent is gone, an administrator can free them by force.",
                at=now,
                severity=Severity.WARNING,
                gpr_id=gpr.pk,
                slice_id=gpr.slice_id,
                cluster_id=gpr.cluster_id,
            )
    gpr.explanation = explanation


def _try_starts(slots: Mapping[Gpr, Slot], loaded: Loaded, now: datetime, report: TickReport) -> None:
    if len(slots) > 1:
        try:
            gprs_start(slots, loaded=loaded, now=now)
            report.started += [gpr.pk for gpr in slots]
            return
        except Exception as error:
            _log_fallback("starts", error)
        fresh = gprs_by_id(gpr.pk for gpr in slots)  # the rolled-back attempt may have changed the objects
        slots = {gpr: slots[gpr] for gpr in fresh.values()}
    for gpr, slot in slots.items():
        with set_aside_on_error("gpr_start", "This request could not be started", now=now, gpr_id=gpr.pk) as attempt:
            gprs_start({gpr: slot}, loaded=loaded, now=now)
            report.started.append(gpr.pk)
        if attempt.error is not None:
            report.skipped[gpr.pk] = attempt.error.detail if isinstance(attempt.error, EgsError) else "internal error"


def _log_fallback(what: str, error: Exception) -> None:
    if isinstance(error, EgsError):
        log.info("each_alone", what=what, why=error.detail)
    else:
        log.exception("each_alone", what=what)


def _advance_one(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> bool:
    """Returns whether it moved. A failure is recorded and does not stop the others."""
    has_moved = False
    with set_aside_on_error("gpr_advance", "This request could not be moved on", now=now, gpr_id=gpr.pk) as attempt:
        has_moved = _STEPS[S(gpr.state)](gpr, rows, now)
    return has_moved and attempt.error is None
