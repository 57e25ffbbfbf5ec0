"""Has the only function that makes transitions of a GPR."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, Final, Required, TypedDict, Unpack
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F, Q

from accounts.models import User
from core.errors import Conflict, IllegalTransition, StaleState
from core.written_sql import WrittenQuery, load_together
from gpr.allocation.stored_plan import plan_lock
from gpr.events import gpr_event
from gpr.models import ENDED, TRANSITIONS, ClusterRequestRecord, EndReason, Gpr, GprState, Job
from inventory.services.clusters import desired_set_changed
from journal.models import Severity
from journal.services import events_record

S = GprState
# The final state, by end reason.
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
    to: Required[GprState]
    now: Required[datetime]
    actor: User | None  # None: EGS itself
    reason: str
    severity: Severity
    changes: dict[str, Any]  # other fields to set


def alternative_to(state: str) -> str:
    # A sentence for the user.
    if state in {S.PENDING_APPROVAL, S.QUEUED}:
        return "While it waits it can be changed or canceled."
    if state in {S.PROVISIONING, S.ACTIVE}:
        return "To give its nodes back, release it."
    return "Its nodes are being taken back." if state == S.EXITING else "It has ended; file a new request."


def gpr_transition(*, gpr: Gpr, message: str, **change: Unpack[Transition]) -> None:
    """Raises as `gprs_transition`."""
    gprs_transition(messages=[(gpr, message)], **change)


@transaction.atomic(savepoint=False)
def gprs_transition(*, messages: Sequence[tuple[Gpr, str]], **change: Unpack[Transition]) -> None:
    """Transition GPRs of one state, all or none, each with an Event.

    Raises IllegalTransition, StaleState when one changed since it was read, or Conflict when its slice holds another. It makes no
    savepoint: a caller that goes on in its transaction after one of these makes its own.
    """
    gprs, to, now = [gpr for gpr, _ in messages], change["to"], change["now"]
    (old,) = {gpr.state for gpr in gprs}
    if to not in TRANSITIONS.get(old, frozenset()):
        raise IllegalTransition(
            f"This GPR is {S(old).label.lower()} ({old}); it cannot become {to} from there. {alternative_to(old)}", state=old
        )

    if S.QUEUED in {old, to}:
        plan_lock()  # else a plan that is being made could count it both as queued and as running, or not at all
    fields = {"state": to, "state_changed_at": now, **change.get("changes", {})}
    if to in ENDED:
        fields["ended_at"] = now
    # Every change raises the version, so this WHERE clause detects changes since the GPR was read.
    versions = {gpr.version for gpr in gprs}
    as_read = (Q(version=version, pk__in=[gpr.pk for gpr in gprs if gpr.version == version]) for version in versions)
    rows = Gpr.objects.filter(reduce(or_, as_read), state=old)
    try:
        moved = rows.update(version=F("version") + 1, **fields)
    except IntegrityError:
        raise Conflict("Another GPR of this workspace holds nodes; a workspace holds one at a time.") from None
    if moved != len(gprs):
        raise StaleState("This GPR has changed since you read it. Read it again and decide again.")

    cluster = fields.get("cluster")
    told: dict[str, Any] = {name: value for name, value in change.items() if name in {"actor", "severity", "reason"}}
    told |= {"old": old, "new": to}
    at_cluster = {gpr: cluster.pk if cluster else gpr.cluster_id for gpr in gprs}
    events_record([gpr_event("gpr.transition", gpr, text, now, cluster_id=at_cluster[gpr], **told) for gpr, text in messages])
    transaction.on_commit(lambda: _agents_wake([gpr.pk for gpr in gprs]), robust=True)
    for gpr in gprs:
        for field, value in fields.items():
            setattr(gpr, field, value)
        gpr.version += 1


_OF_OBJECTS: Final = WrittenQuery(ClusterRequestRecord.objects.order_by().values_list("cluster"), key="gpr__id")
_OF_JOBS: Final = WrittenQuery(Job.objects.filter(gpr__cluster__isnull=False).order_by().values_list("gpr__cluster"), key="gpr__id")


def _agents_wake(gpr_ids: Sequence[UUID]) -> None:
    # Agents of GPRs that are objects of a cluster write the new state there, and agents run the jobs of active ones. If this wake-up is
    # lost, the next sync tells them.
    # It runs after the commit because cluster rows are locked last, and the caller may still lock other rows.
    desired_set_changed(cluster_id for of_kind in load_together((_OF_OBJECTS, gpr_ids), (_OF_JOBS, gpr_ids)) for (cluster_id,) in of_kind)
