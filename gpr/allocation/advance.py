"""Moves provisioned GPRs as far as their nodes and the clock allow: several of a kind in one transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from fast_update.fast import fast_update

from core.errors import StaleState
from core.words import are, plural, utc
from core.written_sql import TimeParam, WrittenQuery, load_together, sent_together
from gpr.allocation.absence import was_just_away
from gpr.allocation.rows import EpochSeconds
from gpr.allocation.snapshot import nodes_free_at
from gpr.allocation.stored_plan import explanation_data, plan_lock
from gpr.events import gpr_event, gpr_event_record
from gpr.evictions.services import NOTICES
from gpr.lifecycle import gprs_transition
from gpr.models import PROVISIONED, EndReason, Gpr, GprState
from gpr.replacement.services import box_of, loss_of, spare_advance, spare_is_due, spares_of
from gpr.requests.ending import Ending, exits_begin, exits_finish
from inventory.models import Reservation, ReservationState
from inventory.services.reservations import BoxWindow, reservations_set_windows
from journal.guard import set_aside_on_error, write_or_set_aside
from journal.models import Severity
from journal.services import events_record
from planner.plan import Explanation, Reason
from protocol.assignments import Desired, Phase

S = GprState
MARKS_PERCENT = (25, 50, 75)
OVERDUE_NAMES_MAX = 8
MOVES_AT_ONCE = 100  # in one transaction; if it fails, each GPR gets its own
# The agent itself gives up an entry at the time-out. The hub does so only after this much more silence.
ENTRY_SILENCE_S = 30
NOT_MOVED: Final = "This request could not be moved on"


@dataclass(frozen=True, slots=True)
class _Due:
    """Names something that a provisioned GPR is due for. `make` does it for several in one transaction."""

    make: Callable[[Sequence[_Due], datetime], None]
    gpr: Gpr
    rows: Sequence[Reservation] = ()
    end: Ending | None = None


def advance(*, now: datetime) -> int:
    """Move every provisioned GPR as far as its nodes and the clock allow. Returns the number of moves, marks included."""
    moved_count, ids = 0, _ids_due(now)
    while ids:  # after a pause several moves may be due
        of_kind: dict[Any, list[_Due]] = defaultdict(list)
        for due in _due_of(ids, now):
            of_kind[due.make].append(due)
        ids = {due.gpr.pk for alike in of_kind.values() for due in _made(alike, now)}
        moved_count += len(ids)
    return moved_count


def _due_of(ids: Collection[UUID], now: datetime) -> Iterator[_Due]:
    for gpr, rows in _with_rows(ids):
        with set_aside_on_error("gpr_advance", NOT_MOVED, now=now, gpr_id=gpr.pk):
            due = _STEPS[S(gpr.state)](gpr, rows, now)
            if due is not None:
                yield due


def _made(alike: Sequence[_Due], now: datetime) -> list[_Due]:
    """Returns those that are made. A failure is recorded and does not stop the others."""

    @transaction.atomic
    def make(some: Sequence[_Due]) -> None:
        plan_lock()  # whoever locks several GPRs holds it
        some[0].make(some, now)

    written = write_or_set_aside(
        alike,
        make,
        at_once=1 if alike[0].make is _move_spare else MOVES_AT_ONCE,
        code="gpr_advance",
        failed=NOT_MOVED,
        now=now,
        subject=lambda due: {"gpr_id": due.gpr.pk},
        renew=lambda some: list(_due_of({due.gpr.pk for due in some}, now)),
    )
    return [due for due, error in written if error is None]


def _ids_due(now: datetime) -> set[UUID]:
    # Most boxes run undisturbed, so only those that may be due by the clock or by their nodes are read.
    with sent_together():
        ending, on_nodes = _ENDING.send(now=now), _ON_NODES.send(late=now - timedelta(seconds=ENTRY_SILENCE_S))
        marked = _MARKED.send(soon=now + timedelta(seconds=1))
    return {pk for (pk,) in (*ending(), *on_nodes(), *marked())}


def _on_nodes() -> QuerySet[Any, tuple[UUID]]:
    """GPRs that may have to move since something happened on one of their nodes."""
    leaves = Q(state=ReservationState.RELEASED) | Q(phase__in=[Phase.FAILED, Phase.EXITING, Phase.RELEASED]) | ~Q(desired=Desired.PRESENT)
    fails = leaves | Q(node__gone_at__isnull=False)
    enters = fails | Q(enter_by_at__lt=TimeParam("late")) | Q(phase=Phase.ACTIVE) | Q(active_at__isnull=False)
    runs = fails | Q(replaces__isnull=False) | Q(failing_at__isnull=False)
    rows = Reservation.objects.filter(Q(gpr__state=S.PROVISIONING) & enters | Q(gpr__state=S.ACTIVE) & runs, run=F("gpr__run"))
    return rows.order_by().values_list("gpr")


_ENDING: Final = WrittenQuery(
    Gpr.objects.filter(Q(state=S.EXITING) | Q(state=S.ACTIVE, ends_at__lte=TimeParam("now"))).order_by().values_list("pk")
)
# Boxes that reach their next mark within a second. Marks are quarters of the box's time, so both sides are taken four times.
_NEXT: Final = F("marks_passed") + 1
_AT_MARK: Final = Gpr.objects.filter(state=S.ACTIVE, marks_passed__lt=len(MARKS_PERCENT)).alias(
    four_times_s=EpochSeconds("active_at") * (4 - _NEXT) + EpochSeconds("ends_at") * _NEXT
)
_MARKED: Final = WrittenQuery(_AT_MARK.filter(four_times_s__lte=EpochSeconds(TimeParam("soon")) * 4).order_by().values_list("pk"))
_ON_NODES: Final = WrittenQuery(_on_nodes())


def _with_rows(ids: Collection[UUID]) -> list[tuple[Any, list[Reservation]]]:
    """Loads GPRs that are provisioned, and whether they are told to go, with the reservations of the current run."""
    gprs, rows = load_together((_PROVISIONED, ids), (_ROWS, ids))
    rows_of: dict[UUID, list[Reservation]] = defaultdict(list)
    for row in rows:
        rows_of[row.gpr_id].append(row)
    return [(gpr, rows_of[gpr.pk]) for gpr in gprs]


_NOTICED: Final = Exists(NOTICES.filter(gpr=OuterRef("pk")))
_PROVISIONED: Final = WrittenQuery(
    Gpr.objects.filter(state__in=PROVISIONED).annotate(is_noticed=_NOTICED).select_related("slice").order_by("pk")
)
_ROWS: Final = WrittenQuery(Reservation.objects.filter(run=F("gpr__run")).select_related("node"), key="gpr__id")


def _from_provisioning(gpr: Any, rows: Sequence[Reservation], now: datetime) -> _Due | None:
    if any(row.node.gone_at for row in rows):
        return _exit_due(gpr, EndReason.NODE_FAILURE)
    # A row with `active_at` was opened, and may have been closed at its end since the last tick.
    if rows and all(row.phase == Phase.ACTIVE or row.active_at is not None for row in rows):
        return _Due(_activate, gpr, rows)
    failed = next((row for row in rows if row.phase == Phase.FAILED or _is_leaving(row)), None)
    if failed is not None:
        return _exit_due(gpr, EndReason.CHECK_FAILED, f"{failed.node.name}: {failed.failure}" if failed.failure else "")
    if any(now > row.enter_by_at + timedelta(seconds=ENTRY_SILENCE_S) for row in rows) and not was_just_away(now=now):
        return _exit_due(gpr, EndReason.CHECK_FAILED, "The nodes were not ready in time.")
    return None


def _from_active(gpr: Any, rows: Sequence[Reservation], now: datetime) -> _Due | None:
    reason_at_end = EndReason.EVICTED if gpr.is_noticed else EndReason.EXPIRED
    if gpr.ends_at is not None and now >= gpr.ends_at:
        return _exit_due(gpr, reason_at_end)
    if any(_is_leaving(row) and not row.is_given_up for row in box_of(rows)):
        # Near the end it is the agent's clock that runs ahead of ours; otherwise the agent failed.
        is_over = gpr.ends_at is not None and (gpr.ends_at - now).total_seconds() < settings.EGS_EXIT_ALLOWANCE_S
        return _exit_due(gpr, reason_at_end if is_over else EndReason.NODE_FAILURE)
    if spare := next((spare for spare in spares_of(rows) if spare_is_due(spare, now)), None):
        return _Due(_move_spare, gpr, [spare])
    if lost := loss_of(gpr, rows, now):
        return _exit_due(gpr, EndReason.NODE_FAILURE, lost.why)
    return _Due(_mark, gpr) if _marks(gpr.active_at, gpr.ends_at, now) > gpr.marks_passed else None


def _from_exiting(gpr: Any, rows: Sequence[Reservation], now: datetime) -> _Due | None:
    late = [row for row in rows if row.state == ReservationState.HELD]
    if not late:
        return _Due(_finish, gpr)
    # The stored explanation makes sure that the Event is written once.
    is_overdue = now > nodes_free_at(gpr.state_changed_at) and not gpr.explanation
    return _Due(_record_overdue, gpr, late) if is_overdue else None


_STEPS: dict[GprState, Callable[[Any, Sequence[Reservation], datetime], _Due | None]] = {
    S.PROVISIONING: _from_provisioning,
    S.ACTIVE: _from_active,
    S.EXITING: _from_exiting,
}


def _exit_due(gpr: Gpr, reason: EndReason, why: str = "") -> _Due:
    return _Due(_exit, gpr, end=Ending(gpr, reason, why))


def _is_leaving(row: Reservation) -> bool:
    return row.phase in {Phase.EXITING, Phase.RELEASED} or row.state == ReservationState.RELEASED


def _activate(due: Sequence[_Due], now: datetime) -> None:
    # The time counts from the moment when the agent opened the last node.
    windows = []
    gprs = [each.gpr for each in due]
    for gpr, rows in ((each.gpr, each.rows) for each in due):
        gpr.active_at = max(row.active_at or now for row in rows)
        gpr.ends_at = gpr.active_at + timedelta(seconds=gpr.remaining_s)
        windows.append(BoxWindow(gpr.pk, gpr.ends_at, nodes_free_at(gpr.ends_at)))
    # If another process moved one of them meanwhile, the transition below raises and this write is rolled back.
    fast_update(Gpr.objects.all(), gprs, ["active_at", "ends_at"], None)
    messages = [(gpr, f"{gpr.name} is provisioned until {utc(window.not_after_at)}.") for gpr, window in zip(gprs, windows, strict=True)]
    gprs_transition(messages=messages, to=S.ACTIVE, now=now, changes={"entry_attempts": 0})
    reservations_set_windows(windows)


def _exit(due: Sequence[_Due], now: datetime) -> None:
    exits_begin([each.end for each in due if each.end is not None], now=now)


def _finish(due: Sequence[_Due], now: datetime) -> None:
    exits_finish([each.gpr for each in due], now=now)


def _move_spare(due: Sequence[_Due], now: datetime) -> None:
    ((gpr, (spare,)),) = ((each.gpr, each.rows) for each in due)
    spare_advance(gpr=gpr, spare=spare, now=now)


def _marks(active_at: datetime | None, ends_at: datetime | None, now: datetime) -> int:
    if active_at is None or ends_at is None:
        return 0
    share = (now - active_at) / (ends_at - active_at) * 100
    return sum(share >= mark for mark in MARKS_PERCENT)


def _mark(due: Sequence[_Due], now: datetime) -> None:
    of_mark: dict[int, list[Gpr]] = defaultdict(list)
    for each in due:
        of_mark[_marks(each.gpr.active_at, each.gpr.ends_at, now)].append(each.gpr)  # after a pause only the latest
    for passed, gprs in of_mark.items():
        rows = Gpr.objects.filter(pk__in=[gpr.pk for gpr in gprs], state=S.ACTIVE, marks_passed__lt=passed)
        if rows.update(marks_passed=passed) != len(gprs):
            raise StaleState("It has changed meanwhile.")
        percent = MARKS_PERCENT[passed - 1]
        texts = (f"{percent} % of the time of {gpr.name} has passed." for gpr in gprs)
        told = zip(gprs, texts, strict=True)
        events_record([gpr_event("gpr.mark", gpr, text, now, reason=f"{percent}%", cluster_id=gpr.cluster_id) for gpr, text in told])


def _record_overdue(due: Sequence[_Due], now: datetime) -> None:
    explanation = explanation_data(Explanation(Reason.NODES_NOT_BACK))
    for gpr, late in ((each.gpr, [row.node.name for row in each.rows]) for each in due):
        if not Gpr.objects.filter(pk=gpr.pk, state=S.EXITING, version=gpr.version).update(explanation=explanation):
            raise StaleState("It has changed meanwhile.")
        text = f"{plural(len(late), 'node')} of {gpr.name} {are(len(late))} not back yet: {', '.join(late[:OVERDUE_NAMES_MAX])}. "
        text += "If their agent is gone, an administrator can free them by force."
        gpr_event_record("gpr.exit_overdue", gpr, text, now, severity=Severity.WARNING, cluster_id=gpr.cluster_id)
