from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from core.errors import IllegalTransition, NotAllowed, StaleState
from core.words import utc
from gpr.allocation.stored_plan import plan_lock, plan_turn
from gpr.approvals.selectors import ApproverRights
from gpr.lifecycle import gpr_transition
from gpr.models import Gpr, GprState
from gpr.requests.editing import spec_of
from gpr.requests.planning import promise_make, promises_drop
from gpr.requests.spec import refuse_over_budget
from journal.guard import set_aside_on_error
from journal.hints import TICK, hint
from journal.models import Severity
from slices.selectors import refuse_closed

UNDECIDED: Final = "UNDECIDED"  # reason of the Event
S = GprState
_AT_ONCE: Final = 100


@plan_turn()
@transaction.atomic
def gpr_approve(*, gpr: Gpr, actor: User, now: datetime, why: str = "") -> None:
    """Its promise counts from now. Raises NotAllowed, IllegalTransition, StaleState, Conflict, OverPolicy or CanNeverStart."""
    plan_lock()  # before budgets are read: others may approve at the same time
    rights = refuse_approval(gpr, actor=actor, now=now)
    text = f"{gpr.name} was approved{_in_place_of(rights, gpr)}. {why}".strip()
    aged = {"queued_at": gpr.queued_at or now, "turn_at": gpr.turn_at or now, "decide_by_at": None}
    gpr_transition(gpr=gpr, to=S.QUEUED, now=now, actor=actor, message=text, changes=aged)
    promise_make(gpr, now=now)
    hint(TICK)


@plan_turn()
@transaction.atomic
def gpr_reject(*, gpr: Gpr, actor: User | None, why: str, now: datetime, reason: str = "") -> None:
    """`actor` None: EGS did it. Raises NotAllowed, IllegalTransition or StaleState."""
    by = _in_place_of(ApproverRights.load(actor, now=now), gpr) if actor is not None else ""
    if by and gpr.state != S.PENDING_APPROVAL:
        raise NotAllowed("A deputy decides only on what waits for approval.")
    text = f"{gpr.name} was rejected{by}. {why}".strip()
    gpr_transition(gpr=gpr, to=S.REJECTED, now=now, actor=actor, message=text, severity=Severity.WARNING, reason=reason)
    promises_drop([gpr], now=now)
    hint(TICK)


def refuse_approval(gpr: Gpr, *, actor: User, now: datetime) -> ApproverRights:
    """Raises what forbids the approval."""
    rights = ApproverRights.load(actor, now=now)
    if refused := rights.why_not(gpr, now=now):
        raise NotAllowed(refused)
    if gpr.state != S.PENDING_APPROVAL:
        raise IllegalTransition(f"It does not wait for approval; it is {gpr.get_state_display().lower()}.", state=gpr.state)
    refuse_closed(gpr.slice)
    refuse_over_budget(spec_of(gpr), now=now)  # what was approved meanwhile has used it, too
    return rights


def approvals_expire(overdue: QuerySet[Gpr], *, now: datetime) -> None:
    """Rejects those on which nobody has decided in time, the oldest first, 100 at once."""
    for gpr in overdue.select_related("slice").order_by("decide_by_at")[:_AT_ONCE]:
        last_at = utc(gpr.decide_by_at or now)
        why = f"Nobody decided on it by {last_at}, the last moment by the policy of workspace {gpr.slice.name}. Ask for it again."
        with set_aside_on_error("approval_expiry", f"{gpr.name} could not be rejected", now=now):
            try:
                gpr_reject(gpr=gpr, actor=None, why=why, now=now, reason=UNDECIDED)
            except (IllegalTransition, StaleState):
                continue  # somebody has just decided or changed it


def _in_place_of(rights: ApproverRights, gpr: Gpr) -> str:
    deputy = rights.deputy_for(gpr)
    return f" by the deputy of {deputy.approver.name}" if deputy else ""
