"""Release, extension and exit of GPRs that hold nodes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from accounts.models import User
from accounts.policy import ObjectKind, Verb, may, may_all
from core.errors import Conflict, IllegalTransition, InvalidInput, OverPolicy, StaleState
from core.words import duration_exact, utc
from gpr.allocation.snapshot import nodes_free_at
from gpr.allocation.stored_plan import boxes_ended, plan_lock, plan_turn
from gpr.budgets.ledger import Ledger
from gpr.budgets.windows import GpuWindow
from gpr.events import gpr_event_record
from gpr.evictions.services import notice_of, notices_settle
from gpr.lifecycle import ENDS_AS, gpr_transition, gprs_transition
from gpr.models import EndReason, Gpr, GprState
from gpr.requests.editing import automatic_place
from gpr.requests.extensions import maintenance_before, refuse_harmful_extension
from gpr.requests.planning import promises_drop
from inventory.models import ReservationState, ReservedGpu
from inventory.services.reservations import BoxWindow, reservations_set_windows, reservations_want_absent
from journal.changes import difference
from journal.hints import TICK, hint
from journal.models import Severity
from slices.selectors import refuse_closed

EXTENSION_ACK_S = 30  # closer to the end the agent may not learn of an extension in time, so it is refused
S = GprState

SENTENCES = {
    EndReason.EXPIRED: "The booked time of {name} is over; its nodes are being taken back.",
    EndReason.EARLY_RELEASE: "{name} was released early; its nodes are being taken back.",
    EndReason.EVICTED: "{name} was evicted; its nodes are being taken back.",
    EndReason.IDLE: "The GPUs of {name} were idle for too long; its nodes are being taken back.",
    EndReason.NODE_FAILURE: "A node of {name} failed; its nodes are being taken back.",
    EndReason.CHECK_FAILED: "A check of a node for {name} failed; its nodes are being taken back.",
    EndReason.ADMIN: "{name} was released by an administrator; its nodes are being taken back.",
}


@transaction.atomic
def gpr_release(*, gpr: Gpr, actor: User, now: datetime) -> None:
    """Raises IllegalTransition when it holds no nodes, or StaleState."""
    is_own = gpr.owner_id == actor.pk or not may(actor, Verb.DECIDE, gpr)
    exit_begin(gpr=gpr, reason=EndReason.EARLY_RELEASE if is_own else EndReason.ADMIN, actor=actor, now=now)


def exit_begin(*, gpr: Gpr, reason: EndReason, now: datetime, actor: User | None = None, why: str = "") -> None:
    exits_begin([Ending(gpr, reason, why)], actor=actor, now=now)


@dataclass(frozen=True, slots=True)
class Ending:
    gpr: Gpr
    reason: EndReason
    why: str = ""

    @property
    def message(self) -> str:
        return f"{SENTENCES[self.reason].format(name=self.gpr.name)} {self.why}".rstrip()


@transaction.atomic(savepoint=False)
def exits_begin(ends: Sequence[Ending], *, actor: User | None = None, now: datetime) -> None:
    """Has the agents take the nodes back; stores the remaining times. For several GPRs the caller holds the plan lock."""
    of_kind: dict[tuple[str, EndReason, int], list[Ending]] = defaultdict(list)
    for end in ends:
        of_kind[end.gpr.state, end.reason, left_s(end.gpr, now=now)].append(end)
    for (_, reason, remaining_s), alike in of_kind.items():
        gprs_transition(
            messages=[(end.gpr, end.message) for end in alike],
            to=S.EXITING,
            now=now,
            actor=actor,
            reason=reason,
            severity=Severity.INFO if reason in {EndReason.EXPIRED, EndReason.EARLY_RELEASE} else Severity.WARNING,
            changes={"end_reason": reason, "remaining_s": remaining_s, "exiting_at": now},
        )
        notices_settle([end.gpr for end in alike], reason=reason, now=now)
    reservations_want_absent(gpr_ids=[end.gpr.pk for end in ends])
    hint(TICK)


def exits_finish(gprs: Sequence[Gpr], *, now: datetime) -> None:
    """Ends GPRs whose nodes are back, or queues them again with their remaining time at their old age. The caller holds the plan lock."""
    boxes_ended(gprs, now=now)
    again = [gpr for gpr in gprs if goes_back(gpr)]
    for gpr in again:
        _queue_again(gpr, now)
    if again:
        promises_drop(again, now=now)  # these promises were kept and scored; the next tick makes new ones
    of_reason: dict[str, list[Gpr]] = defaultdict(list)
    for gpr in gprs:
        if gpr not in again:
            of_reason[gpr.end_reason].append(gpr)
    for reason, alike in of_reason.items():
        to = ENDS_AS[reason]
        messages = [(gpr, f"{gpr.name} has ended: {S(to).label.lower()}.") for gpr in alike]
        gprs_transition(messages=messages, to=to, now=now, reason=reason, changes={"explanation": {}})
    hint(TICK)


def _queue_again(gpr: Gpr, now: datetime) -> None:
    changes: dict[str, Any] = {
        "end_reason": "",
        "explanation": {},
        **automatic_place(gpr),
        "cluster": None,
        "provisioning_at": None,
        "active_at": None,
        "ends_at": None,
        "exiting_at": None,
        "marks_passed": 0,
        "entry_attempts": gpr.entry_attempts + (gpr.end_reason == EndReason.CHECK_FAILED),
    }
    text = f"{gpr.name} waits again, for the {duration_exact(gpr.remaining_s)} that are left of its time."
    gpr_transition(gpr=gpr, to=S.QUEUED, now=now, reason=gpr.end_reason, message=text, changes=changes)


@plan_turn()
@transaction.atomic
def gpr_extend(*, gpr: Gpr, extra_s: int, actor: User, now: datetime, is_dry: bool = False) -> None:
    """Moves the end later if that harms no promise and reaches into no maintenance. `is_dry`: tries it alone.

    Raises IllegalTransition, InvalidInput, OverPolicy, StaleState or Conflict with the latest possible end.
    """
    if gpr.state != S.ACTIVE or gpr.ends_at is None:
        raise IllegalTransition(f"Only an active GPR can be extended; this one is {gpr.get_state_display().lower()}.", state=gpr.state)
    refuse_closed(gpr.slice)
    if extra_s < 1:
        raise InvalidInput({"extra_s": ["Must be at least one second."]})
    if (notice := notice_of(gpr)) is not None:
        raise Conflict(f"It is to be evicted at {utc(notice.ends_at)}. Save its work; it waits again for the rest of its time.")
    ends_at = gpr.ends_at + timedelta(seconds=extra_s)
    _refuse_beyond_end(gpr, gpr.ends_at, ends_at)
    _refuse_beyond_policy(gpr, extra_s, actor)
    if (gpr.ends_at - now).total_seconds() < EXTENSION_ACK_S:
        raise Conflict(f"It ends within {EXTENSION_ACK_S} s: too late to extend it for certain. File a new request.")
    books_end_at = nodes_free_at(ends_at)
    plan_lock()
    _refuse_beyond_budget(gpr, ends_at, actor, now)
    refuse_harmful_extension(gpr, ends_at=ends_at, actor=actor, now=now)
    if is_dry:
        return
    from_version = gpr.version
    updated = Gpr.objects.filter(pk=gpr.pk, version=from_version, state=S.ACTIVE).update(
        ends_at=ends_at, duration_s=gpr.duration_s + extra_s, remaining_s=gpr.remaining_s + extra_s, version=from_version + 1
    )
    if not updated:
        raise StaleState("This GPR has changed since you read it. Read it again and decide again.")
    reservations_set_windows([BoxWindow(gpr.pk, ends_at, books_end_at)])
    _refuse_into_maintenance(gpr, books_end_at, now)
    text = f"{gpr.name} was extended by {duration_exact(extra_s)}, to {utc(ends_at)}."
    data = difference({"ends_at": gpr.ends_at}, {"ends_at": ends_at})
    gpr_event_record("gpr.extended", gpr, text, now, actor=actor, data=data)
    gpr.refresh_from_db()
    hint(TICK)


def left_s(gpr: Gpr, *, now: datetime) -> int:
    """Returns the remaining time if its nodes were taken back now."""
    if gpr.active_at is None or gpr.state != S.ACTIVE:
        return gpr.remaining_s
    return max(0, gpr.remaining_s - math.ceil((now - gpr.active_at).total_seconds()))


def _refuse_beyond_end(gpr: Gpr, old_end_at: datetime, ends_at: datetime) -> None:
    """Raises OverPolicy."""
    last_at = gpr.slice.ends_at
    if last_at is None or ends_at <= last_at:
        return
    latest_at = max(last_at, old_end_at)
    room = f"It can end then at the latest: extend it by {duration_exact((latest_at - old_end_at).total_seconds())} at most"
    raise OverPolicy(
        f"Workspace {gpr.slice.name} ends at {utc(last_at)}. {room if latest_at > old_end_at else 'It cannot end later'}, "
        "or ask an administrator for a later end of the workspace.",
        limit="ends_at",
        most=int((latest_at - old_end_at).total_seconds()),
        max_ends_at=latest_at,
    )


def _refuse_beyond_policy(gpr: Gpr, extra_s: int, actor: User) -> None:
    """Raises OverPolicy."""
    longest_s = min(gpr.slice.duration_max_s, settings.EGS_DURATION_MAX_S)
    # An administrator of a project cannot approve his own request, so he does not extend his own box beyond approval either.
    decides = may(actor, Verb.DECIDE, gpr) and (gpr.owner_id != actor.pk or may_all(actor, Verb.APPROVE, ObjectKind.GPR))
    if not decides:
        longest_s = min(longest_s, gpr.slice.duration_approval_s)
    if gpr.duration_s + extra_s > longest_s:
        most_s = max(longest_s - gpr.duration_s, 0)
        by_whom = "" if decides else " without approval"
        more = f"can get {duration_exact(most_s)} more at most" if most_s else "has all of it"
        raise OverPolicy(
            f"In workspace {gpr.slice.name} one may take {duration_exact(longest_s)} in all{by_whom}: this one {more}. "
            "File a new request, or ask an administrator.",
            limit="duration",
            most=most_s,
        )


def _refuse_beyond_budget(gpr: Gpr, ends_at: datetime, actor: User, now: datetime) -> None:
    """Raises OverPolicy. An administrator of the platform may extend beyond a budget that asks for approval."""
    ledger = Ledger.load([gpr.slice], now=now)
    if not ledger.budgets or gpr.ends_at is None:
        return
    held = ReservedGpu.objects.filter(reservation__gpr=gpr, state=ReservationState.HELD)
    held = held.exclude(reservation__replaces__state=ReservationState.HELD)  # a spare, while the node that it replaces is there
    shapes = list(held.values_list("gpu__node__shape", flat=True))
    more = GpuWindow(gpr.slice_id, gpr.slice.project_id, set(shapes), len(shapes), gpr.ends_at, ends_at)
    may_approve = may_all(actor, Verb.DECIDE, ObjectKind.GPR)
    for excess in ledger.excesses(more):
        if not (excess.needs_approval and may_approve):
            raise excess.refusal()


def goes_back(gpr: Gpr) -> bool:
    """Tell whether an exiting GPR is queued again afterwards."""
    if gpr.remaining_s < 1:
        return False
    if gpr.end_reason == EndReason.CHECK_FAILED:
        return gpr.entry_attempts + 1 < settings.EGS_ENTRY_ATTEMPTS_MAX
    return gpr.requeue_on_failure and gpr.end_reason in {EndReason.EVICTED, EndReason.NODE_FAILURE}


def _refuse_into_maintenance(gpr: Gpr, ends_at: datetime, now: datetime) -> None:
    # A maintenance may have been announced since the first check; now the node rows are locked.
    window = maintenance_before(gpr, ends_at, now)
    if window is not None:
        raise Conflict(f"A node of it is closed for maintenance from {utc(window.starts_at)} on. Extend it by less, or file a new request.")
