"""The one table of legal moves and the one function that makes them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F

from accounts.models import User
from egs.errors import Conflict, IllegalTransition, StaleState
from gpr.models import ENDED, Claim, EndReason, Gpr, GprState
from gpr.witness import witness_lock
from inventory.services.clusters import desired_set_changed
from journal.models import Severity
from journal.services import event_record

S = GprState
# Every legal move; a state that is no key is final. The database holds a copy (migration 0002) and refuses any other.
TRANSITIONS: dict[str, frozenset[str]] = {
    S.PENDING_APPROVAL: frozenset({S.QUEUED, S.REJECTED, S.CANCELED}),
    S.QUEUED: frozenset({S.PROVISIONING, S.PENDING_APPROVAL, S.REJECTED, S.CANCELED}),
    S.PROVISIONING: frozenset({S.ACTIVE, S.EXITING}),
    S.ACTIVE: frozenset({S.EXITING}),
    # Back to QUEUED: evicted or failed, with what is left of its time.
    S.EXITING: frozenset({S.COMPLETED, S.RELEASED, S.EVICTED, S.FAILED, S.QUEUED}),
}
# What becomes of a GPR when its nodes are back.
ENDS_AS: dict[str, GprState] = {
    EndReason.EXPIRED: S.COMPLETED,
    EndReason.EARLY_RELEASE: S.RELEASED,
    EndReason.IDLE: S.RELEASED,
    EndReason.ADMIN: S.RELEASED,
    EndReason.EVICTED: S.EVICTED,
    EndReason.NODE_FAILURE: S.FAILED,
    EndReason.CHECK_FAILED: S.FAILED,
}


def way_out(state: str) -> str:
    """What can be done instead."""
    if state in {S.PENDING_APPROVAL, S.QUEUED}:
        return "While it waits it can be changed or canceled."
    if state in {S.PROVISIONING, S.ACTIVE}:
        return "To give its nodes back, release it."
    return "Its nodes are being taken back." if state == S.EXITING else "It has ended; file a new request."


@transaction.atomic
def gpr_transition(
    *,
    gpr: Gpr,
    to: GprState,
    now: datetime,
    message: str,
    actor: User | None = None,
    reason: str = "",
    severity: Severity = Severity.INFO,
    changes: dict[str, Any] | None = None,
) -> None:
    """Move a GPR, with `changes` to its other fields, and write the Event. `actor` is None when EGS itself does it.

    Raises IllegalTransition, StaleState when somebody moved it since it was read, or Conflict when its slice holds another.
    """
    old = gpr.state
    if to not in TRANSITIONS.get(old, frozenset()):
        raise IllegalTransition(f"This GPR is {S(old).label.lower()} ({old}); it cannot become {to} from there. {way_out(old)}", state=old)

    if S.QUEUED in {old, to}:
        witness_lock()  # a plan in the making must not count it twice, among those who wait and those who run, or not at all
    fields = {"state": to, "state_changed_at": now, **(changes or {})}
    if to in ENDED:
        fields["ended_at"] = now
    # Whoever moved or edited it since we read it has raised the version: this WHERE clause is the lock.
    rows = Gpr.objects.filter(pk=gpr.pk, state=old, version=gpr.version)
    try:
        with transaction.atomic():
            moved = rows.update(version=F("version") + 1, **fields)
    except IntegrityError:
        raise Conflict("Another GPR of this workspace holds nodes; a workspace holds one at a time.") from None
    if moved != 1:
        raise StaleState("This GPR has changed since you read it. Read it again and decide anew.")

    event_record(
        kind="gpr.transition",
        message=message,
        at=now,
        actor=actor,
        severity=severity,
        reason=reason,
        old=old,
        new=to,
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
        cluster_id=fields["cluster"].pk if fields.get("cluster") else gpr.cluster_id,
    )
    transaction.on_commit(lambda: _agent_wake(gpr.pk), robust=True)
    for field, value in fields.items():
        setattr(gpr, field, value)
    gpr.version += 1


def _agent_wake(gpr_id: UUID) -> None:
    """Of one that was filed as an object of a cluster: its agent writes the new state there. Lost, it hears by its next sync.

    After the commit, for whoever moves a GPR has more rows to lock, and a cluster's is the last one.
    """
    desired_set_changed(Claim.objects.filter(gpr=gpr_id).values_list("cluster", flat=True))
