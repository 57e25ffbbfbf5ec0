"""Carries out administrators' decisions about a GPR."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts.models import User
from core.errors import IllegalTransition, InvalidInput
from gpr.allocation.stored_plan import plan_lock, plan_turn
from gpr.events import gpr_event_record
from gpr.evictions.services import eviction_by_administrator
from gpr.models import EndReason, Gpr, GprState
from gpr.requests.editing import automatic_place, gpr_update, replan_changed, spec_of
from gpr.requests.ending import exit_begin
from gpr.requests.spec import approval_reasons, refuse_over_budget
from journal.changes import difference
from journal.hints import TICK, hint
from slices.models import PRIORITY_MAX, PRIORITY_MIN

S = GprState


@transaction.atomic
def gpr_evict(*, gpr: Gpr, actor: User, why: str, now: datetime, requeue: bool | None = None) -> None:
    """`requeue` None: as its owner wished. Raises IllegalTransition or StaleState."""
    if requeue is not None:
        gpr_update(gpr, {"requeue_on_failure": requeue})
    eviction_by_administrator(gpr, now=now)
    exit_begin(gpr=gpr, reason=EndReason.EVICTED, actor=actor, now=now, why=why)


@plan_turn()
@transaction.atomic
def gpr_set_priority(*, gpr: Gpr, priority: int, actor: User, why: str, now: datetime) -> None:
    """It moves no promise. A request that needs no approval at its new priority is queued.

    Raises InvalidInput, IllegalTransition, StaleState or OverPolicy.
    """
    refuse_priority(priority)
    if gpr.state not in {S.QUEUED, S.PENDING_APPROVAL}:
        raise IllegalTransition(
            f"Only a waiting GPR has a place in the queue; this one is {gpr.get_state_display().lower()}.", state=gpr.state
        )
    if priority == gpr.priority:
        return
    plan_lock()
    old = gpr.priority
    # A priority set by an administrator needs no approval; other rules may still need it.
    reasons = approval_reasons(spec_of(gpr, priority=priority), now=now) if gpr.state == S.PENDING_APPROVAL else gpr.approval_reasons
    gpr_update(gpr, {"priority": priority, "approval_reasons": reasons, **automatic_place(gpr)})
    text = f"The priority of {gpr.name} went from {old} to {priority}. {why}".strip()
    data = difference({"priority": old}, {"priority": priority})
    gpr_event_record("gpr.priority_changed", gpr, text, now, actor=actor, old=str(old), new=str(priority), data=data)
    if gpr.state == S.PENDING_APPROVAL and not reasons:
        refuse_over_budget(spec_of(gpr), now=now)
        replan_changed(gpr, reasons=reasons, actor=actor, now=now)
    hint(TICK)


def refuse_priority(priority: int) -> None:
    """Raises InvalidInput."""
    if not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        raise InvalidInput({"priority": [f"Must be from {PRIORITY_MIN} to {PRIORITY_MAX}."]})
