"""The one table of legal moves and the one function that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, Required, TypedDict, Unpack
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F, Q

from accounts.models import User
from core.errors import Conflict, IllegalTransition, StaleState
from gpr.allocation.stored_plan import plan_lock
from gpr.models import ENDED, Claim, EndReason, Gpr, GprState
from inventory.services.clusters import desired_set_changed
from journal.models import Event, Severity
from journal.services import events_record

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


class Transition(TypedDict, total=False):
    """`actor` is None when EGS itself does it; `changes`: to other fields."""

    to: Required[GprState]
    now: Required[datetime]
    actor: User | None
    reason: str
    severity: Severity
    changes: dict[str, Any]


def alternative_to(state: str) -> str:
    """What can be done instead."""
    if state in {S.PENDING_APPROVAL, S.QUEUED}:
        return "While it waits it can be changed or canceled."
    if state in {S.PROVISIONING, S.ACTIVE}:
        return "To give its nodes back, release it."
    return "Its nodes are being taken back." if state == S.EXITING else "It has ended; file a new request."


def gpr_transition(*, gpr: Gpr, message: str, **change: Unpack[Transition]) -> None:
    """Move a GPR and write the Event. Errors as of `gprs_transition`."""
    gprs_transition(messages=[(gpr, message)], **change)


@transaction.atomic
def gprs_transition(*, messages: Sequence[tuple[Gpr, str]], **change: Unpack[Transition]) -> None:
    """Move GPRs that are in one state, all or none, and write an Event with its message for each.

    Raises IllegalTransition, StaleState when somebody moved one since it was read, or Conflict when its slice holds another.
    """
    gprs, to, now = [gpr for gpr, _ in messages], change["to"], change["now"]
    (old,) = {gpr.state for gpr in gprs}
    if to not in TRANSITIONS.get(old, frozenset()):
        raise IllegalTransition(
            f"This GPR is {S(old).label.lower()} ({old}); it cannot become {to} from there. {alternative_to(old)}", state=old
        )

    if S.QUEUED in {old, to}:
        plan_lock()  # a plan in the making must not count it twice, among those who wait and those who run, or not at all
    fields = {"state": to, "state_changed_at": now, **change.get("changes", {})}
    if to in ENDED:
        fields["ended_at"] = now
    # Whoever moved or edited one since we read it has raised the version: this WHERE clause is the lock.
    rows = Gpr.objects.filter(reduce(or_, (Q(pk=gpr.pk, version=gpr.version) for gpr in gprs)), state=old)
    try:
        with transaction.atomic():
            moved = rows.update(version=F("version") + 1, **fields)
    except IntegrityError:
        raise Conflict("Another GPR of this workspace holds nodes; a workspace holds one at a time.") from None
    if moved != len(gprs):
        raise StaleState("This GPR has changed since you read it. Read it again and decide anew.")

    cluster = fields.get("cluster")
    events_record(
        [
            Event(
                kind="gpr.transition",
                message=message,
                at=now,
                actor=change.get("actor"),
                severity=change.get("severity", Severity.INFO),
                reason=change.get("reason", ""),
                old=old,
                new=to,
                gpr_id=gpr.pk,
                slice_id=gpr.slice_id,
                cluster_id=cluster.pk if cluster else gpr.cluster_id,
            )
            for gpr, message in messages
        ]
    )
    transaction.on_commit(lambda: _agents_wake([gpr.pk for gpr in gprs]), robust=True)
    for gpr in gprs:
        for field, value in fields.items():
            setattr(gpr, field, value)
        gpr.version += 1


def _agents_wake(gpr_ids: Sequence[UUID]) -> None:
    """Of those that were filed as objects of a cluster: its agent writes the new state there. Lost, it hears by its next sync.

    After the commit, for whoever moves a GPR has more rows to lock, and a cluster's is the last one.
    """
    desired_set_changed(Claim.objects.filter(gpr__in=gpr_ids).values_list("cluster", flat=True))
