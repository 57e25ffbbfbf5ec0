"""The tick: move every GPR along, plan the queue, start what can start.

Woken every second and by every kick, under a lock that nobody waits for. It is right with either alone, when run twice at once, and
when it did not run for an hour: all it knows stands in the database, and every step is a short guarded transaction of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Prefetch

from egs.clock import db_now
from egs.errors import EgsError, StaleState
from egs.locks import gate_shut, single_runner
from egs.words import are, plural, utc
from gpr.claims import orphans_cancel
from gpr.evictions import reason_at_end
from gpr.forecasts import forecast_started
from gpr.lifecycle import gpr_transition
from gpr.models import PROVISIONED, AllocatorRecord, EndReason, Gpr, GprState, Promise
from gpr.planner.claims import may_claim
from gpr.planner.lines import FOREVER_S
from gpr.planner.plan import Explanation, Plan, Reason
from gpr.planner.snapshot import Slot
from gpr.rows import gprs_by_id
from gpr.services.bookings import series_care
from gpr.services.ending import exit_begin, exit_finish
from gpr.services.replacing import box_of, replacements_review, spare_follow, spares_of, why_lost
from gpr.services.sparing import notices_review
from gpr.services.starting import entry_steps, namespaces_in, starting_cluster
from gpr.snapshot import Loaded, at, books_end, length_s
from gpr.witness import SUBMITS_GATE, explanation_data, replan
from inventory.models import Reservation, ReservationState
from inventory.services.reservations import HoldSpec, reservations_hold, reservations_set_window
from inventory.services.supplies import orders_give_up
from journal.models import Event, Severity
from journal.services import event_record
from slices.kubeconfigs import kubeconfigs_expire
from worker_agent.protocol import Phase

log = structlog.get_logger(__name__)

S = GprState
MARKS_PERCENT = (25, 50, 75)
OVERDUE_NAMES_MAX = 8
# Submits wait meanwhile: about a second.
STARTS_AT_ONCE = 50
# The agent gives up an entry by itself at the time-out; only if it says nothing for so long after does the hub say so.
ENTRY_SILENCE_S = 30
# A promise names a whole second, the tick comes when it comes: within a minute is kept, here as in every report.
PROMISE_GRACE = timedelta(minutes=1)


@dataclass(slots=True)
class TickReport:
    """What one tick did, for logs, benches and tests."""

    moved_count: int = 0
    queued_count: int = 0
    started: list[UUID] = field(default_factory=list)
    skipped: dict[UUID, str] = field(default_factory=dict)
    rested: bool = False


def tick(*, now: datetime | None = None, may_rest: bool = False) -> TickReport | None:
    """One pass; None when another process is at it. `now` is given by simulations and tests only.

    `may_rest`: it need not plan where nothing has happened since the last plan and nothing is due.
    """
    with single_runner("allocator") as mine:
        if not mine:
            return None
        now, began_s = now or db_now(), time.perf_counter()
        record, _ = AllocatorRecord.objects.get_or_create(singleton=True)
        report = TickReport(moved_count=advance(now=now))
        notices_review(now=now)
        replacements_review(now=now)
        series_care(now=now)
        orders_give_up(now=now)
        kubeconfigs_expire(now=now)
        orphans_cancel(now=now)
        if may_rest and _may_rest(record, now):
            report.rested = True
        else:
            _plan_and_start(report, now)
        duration_s = time.perf_counter() - began_s
        AllocatorRecord.objects.update(last_tick_at=now, last_duration_s=duration_s, tick_count=F("tick_count") + 1)
        return report


def _plan_and_start(report: TickReport, now: datetime) -> None:
    event_id = _last_event_id()
    made, loaded = replan(now=now)
    report.queued_count = len(made.placements)
    gprs = gprs_by_id(placement.id for placement in made.starts)
    due = [(gpr, p.slot) for p in made.starts if p.slot is not None and (gpr := gprs.get(p.id)) is not None]
    for first in range(0, len(due), STARTS_AT_ONCE):
        with gate_shut(SUBMITS_GATE) if len(due) > 1 else nullcontext():
            for gpr, slot in due[first : first + STARTS_AT_ONCE]:
                _try_start(gpr, slot, loaded, now, report)
    # Events of this very plan are later than `event_id`, so after one that changed something the next tick plans again.
    AllocatorRecord.objects.update(planned_event_id=event_id, rests_until_at=None if report.skipped else _rests_until(made, loaded, now))


def _may_rest(record: AllocatorRecord, now: datetime) -> bool:
    until_at = record.rests_until_at
    is_within = until_at is not None and until_at - timedelta(seconds=settings.EGS_REST_S) <= now < until_at  # clocks may be set back
    return is_within and record.planned_event_id == _last_event_id()


def _rests_until(made: Plan, loaded: Loaded, now: datetime) -> datetime | None:
    """When time alone may change the plan: a start or an end is due, nodes close or open. Soon anyway, for not all is an event.

    Never, where more could be taken from others: of those who may, each plan looks at some.
    """
    snapshot = loaded.snapshot
    evictor_count = sum(request.may_evict for request in snapshot.queue)
    if snapshot.queue and may_claim(snapshot.policy, snapshot.quotas, evictor_count=evictor_count):
        return None
    times_s = [placement.start_s for placement in made.placements if placement.start_s is not None]
    times_s += [box.end_s for box in snapshot.running]
    windows = (window for pool in snapshot.pools for node in pool.nodes for window in node.closed)
    times_s += [at_s for window in windows for at_s in (window.start_s, window.end_s)]
    due_s = min((at_s for at_s in times_s if at_s > snapshot.now_s), default=FOREVER_S)
    return at(min(due_s, snapshot.now_s + settings.EGS_REST_S))


def _last_event_id() -> int:
    return Event.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def advance(*, now: datetime) -> int:
    """Move every provisioned GPR as far as its nodes and the clock allow; how many moved."""
    moved_count = 0
    current = Reservation.objects.filter(run=F("gpr__run")).select_related("node")
    gprs = Gpr.objects.filter(state__in=PROVISIONED).select_related("slice").order_by("pk")
    for gpr in gprs.prefetch_related(Prefetch("reservations", current, to_attr="rows_now")):
        rows = gpr.rows_now
        # After a pause one may be due for several moves.
        while gpr.state in PROVISIONED and _survives(gpr, rows, now):
            moved_count += 1
            rows = list(current.filter(gpr=gpr))
    return moved_count


def _from_provisioning(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> bool:
    if any(row.node.gone_at for row in rows):
        return _exit(gpr, EndReason.NODE_FAILURE, now)
    # It may have been opened, and closed again at its end, since the last tick: then it has had that time.
    if rows and all(row.phase == Phase.ACTIVE or row.active_at is not None for row in rows):
        return _activate(gpr, rows, now)
    failed = next((row for row in rows if row.phase == Phase.FAILED or _is_leaving(row)), None)
    if failed is not None:
        return _exit(gpr, EndReason.CHECK_FAILED, now, why=f"{failed.node.name}: {failed.failure}" if failed.failure else "")
    if any(now > row.enter_by_at + timedelta(seconds=ENTRY_SILENCE_S) for row in rows):
        return _exit(gpr, EndReason.CHECK_FAILED, now, why="The nodes were not ready in time.")
    return False


def _from_active(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> bool:
    if gpr.ends_at is not None and now >= gpr.ends_at:
        return _exit(gpr, reason_at_end(gpr), now)
    box = box_of(rows)
    if any(_is_leaving(row) and not row.is_given_up for row in box):
        # The agent's clock came to the end a moment before ours; anything else would be its own failure.
        is_over = gpr.ends_at is not None and (gpr.ends_at - now).total_seconds() < settings.EGS_EXIT_ALLOWANCE_S
        return _exit(gpr, reason_at_end(gpr) if is_over else EndReason.NODE_FAILURE, now)
    if any(spare_follow(gpr=gpr, spare=spare, now=now) for spare in spares_of(rows)):
        return True
    lost = why_lost(gpr, rows, now)
    return _exit(gpr, EndReason.NODE_FAILURE, now, why=lost.why) if lost else _tell_marks(gpr, now)


def _from_exiting(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> bool:
    if any(row.state == ReservationState.HELD for row in rows):
        _tell_overdue(gpr, rows, now)
        return False
    exit_finish(gpr=gpr, now=now)
    return True


_STEPS: dict[GprState, Callable[[Gpr, Sequence[Reservation], datetime], bool]] = {
    S.PROVISIONING: _from_provisioning,
    S.ACTIVE: _from_active,
    S.EXITING: _from_exiting,
}


def _is_leaving(row: Reservation) -> bool:
    """By its agent's word, or freed without it."""
    return row.phase in {Phase.EXITING, Phase.RELEASED} or row.state == ReservationState.RELEASED


def _exit(gpr: Gpr, reason: EndReason, now: datetime, why: str = "") -> bool:
    exit_begin(gpr=gpr, reason=reason, now=now, why=why)
    return True


@transaction.atomic
def _activate(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> bool:
    """The clock started when the agent opened the last node; both sides count from that moment."""
    active_at = max(row.active_at or now for row in rows)
    ends_at = active_at + timedelta(seconds=gpr.remaining_s)
    gpr_transition(
        gpr=gpr,
        to=S.ACTIVE,
        now=now,
        message=f"{gpr.name} is provisioned until {utc(ends_at)}.",
        changes={"active_at": active_at, "ends_at": ends_at, "entry_attempts": 0},
    )
    reservations_set_window(gpr_id=gpr.pk, not_after_at=ends_at, ends_at=books_end(ends_at))
    return True


def _tell_marks(gpr: Gpr, now: datetime) -> bool:
    """Events at 25, 50 and 75 %, each once; after a pause only the latest is told."""
    if gpr.active_at is None or gpr.ends_at is None:
        return False
    share = (now - gpr.active_at) / (gpr.ends_at - gpr.active_at) * 100
    passed = sum(share >= mark for mark in MARKS_PERCENT)
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
            )
    gpr.marks_passed = passed
    return False


def _tell_overdue(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> None:
    """Once, when an exit takes longer than was booked for it: whoever waits, and an administrator, must know."""
    if gpr.explanation or now <= books_end(gpr.state_changed_at):
        return
    late = [row.node.name for row in rows if row.state == ReservationState.HELD]
    told = explanation_data(Explanation(Reason.NODES_NOT_BACK))
    with transaction.atomic():
        if Gpr.objects.filter(pk=gpr.pk, state=S.EXITING, version=gpr.version).update(explanation=told):
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
    gpr.explanation = told


def _try_start(gpr: Gpr, slot: Slot, loaded: Loaded, now: datetime, report: TickReport) -> None:
    """A conflict skips this GPR; the next tick plans afresh."""
    try:
        _start(gpr, slot, loaded, now)
        report.started.append(gpr.pk)
    except EgsError as error:
        report.skipped[gpr.pk] = error.detail
        log.info("start_skipped", gpr_id=str(gpr.pk), why=error.detail)
    except Exception:
        report.skipped[gpr.pk] = "internal error"
        log.exception("start_failed", gpr_id=str(gpr.pk))


@transaction.atomic
def _start(gpr: Gpr, slot: Slot, loaded: Loaded, now: datetime) -> None:
    if gpr.version != loaded.asks[str(gpr.pk)].version:
        raise StaleState("It was changed since it was planned.")
    cluster = starting_cluster(loaded.places.keys[slot.pool].cluster, now)
    enter_by_at = now + timedelta(seconds=settings.EGS_ENTRY_TIMEOUT_S)
    gpr_transition(
        gpr=gpr,
        to=S.PROVISIONING,
        now=now,
        message=f"{plural(gpr.nodes, 'node')} of cluster {cluster.name} {are(gpr.nodes)} being prepared for {gpr.name}.",
        changes={"cluster": cluster, "provisioning_at": now, "run": gpr.run + 1, "explanation": {}, "planned_start_at": None},
    )
    reservations_hold(
        spec=HoldSpec(
            gpr_id=gpr.pk,
            slice_id=gpr.slice_id,
            run=gpr.run,
            node_ids=tuple(UUID(node_id) for node_id in slot.nodes),
            gpus_per_node=gpr.gpus_per_node,
            starts_at=now,
            # Whole seconds, as planned: else each box would run a moment into the slot behind it, and push that one away.
            ends_at=at(slot.start_s + length_s(gpr)),
            enter_by_at=enter_by_at,
            duration_s=gpr.remaining_s,
            namespaces=tuple(namespaces_in(gpr, cluster)),
            entry_steps=entry_steps(gpr),
            exit_steps=settings.EGS_EXIT_STEPS,
        )
    )
    _settle_promise(gpr, now)


def _settle_promise(gpr: Gpr, now: datetime) -> None:
    forecast_started(gpr, now=now)
    promise = Promise.objects.filter(gpr=gpr).first()
    if promise is None:
        return
    Promise.objects.filter(pk=promise.pk).update(slot_nodes=[])
    score = "kept_count" if now <= promise.first_promised_start_at + PROMISE_GRACE else "late_count"
    AllocatorRecord.objects.update(**{score: F(score) + 1})


def _survives(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> bool:
    """Advance one; a GPR that cannot be moved must not stop the others."""
    try:
        return _STEPS[S(gpr.state)](gpr, rows, now)
    except EgsError as error:
        log.info("advance_skipped", gpr_id=str(gpr.pk), why=error.detail)
    except Exception:
        log.exception("advance_failed", gpr_id=str(gpr.pk))
    return False
