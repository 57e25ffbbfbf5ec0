"""What became of a GPR and by whom, in one sentence: for lists and heads. From the row and one Event of it."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db.models import Q

from egs.pages import words
from egs.pages.gpr_box import late_s
from gpr.models import ENDED, EndReason, Gpr, GprState
from gpr.planner.plan import Cause
from gpr.services.ending import SENTENCES
from journal.models import Event

S = GprState

CAUSE_WORDS = {
    Cause.OVERRUN: "a request before it gave its nodes back late",
    Cause.NODE_FAILURE: "a node that it was planned on went away",
    Cause.MAINTENANCE: "nodes that it was planned on are closed for maintenance",
    Cause.CHANGED: "the request was changed",
    Cause.LATE_TICK: "the planner was late",
    Cause.RECLAIM: "another workspace was entitled to the GPUs that it would have borrowed",
    Cause.QUOTA: "its workspace or project may hold no more GPUs then",
    Cause.ADMIN: "an administrator moved it, or another before it",
    Cause.PRIORITY: "a request of much higher priority came",
    Cause.SUPPLY: "nodes that were ordered for it did not come",
    Cause.TOPOLOGY: "nodes that it was planned on are in different racks or NVLink domains now",
}
STRICT_ENDS = {
    EndReason.EXPIRED: "Ran its full window",
    EndReason.IDLE: "Its GPUs were idle; released",
    EndReason.ADMIN: "Released by an administrator",
    EndReason.EVICTED: "Evicted",
    EndReason.NODE_FAILURE: "A node failed",
    EndReason.CHECK_FAILED: "A check on the way in failed",
}


def events_for(gprs: Iterable[Gpr]) -> dict[UUID, Event]:
    """The one that tells of each: how it ended, or why its promise moved. One query."""
    ids = [gpr.pk for gpr in gprs if gpr.state in ENDED or late_s(gpr) >= words.MINUTE_S]
    if not ids:
        return {}
    told = Q(kind="promise.moved") | Q(kind="gpr.transition", new__in=[S.EXITING, S.CANCELED, S.REJECTED])
    return {
        event.gpr_id: event for event in Event.objects.filter(told, gpr_id__in=ids).select_related("actor").order_by("id") if event.gpr_id
    }


def ending(gpr: Gpr, event: Event | None) -> str:
    """How one that is over, or leaving, came to its end. Names the actor and gives the reason that he gave."""
    actor = event.actor.name if event and event.actor else ""
    if gpr.state == S.CANCELED:
        return f"Canceled by {actor} before it started." if actor else "Canceled before it started."
    if gpr.state == S.REJECTED:
        why = event.message.removeprefix(f"{gpr.name} was rejected.").strip() if event else ""
        return _sentence(f"Rejected by {actor or 'an administrator'}", why)
    if gpr.end_reason == EndReason.EXPIRED:
        return "Ran its full window."
    begun = (
        f"Released by {actor}"
        if gpr.end_reason == EndReason.EARLY_RELEASE and actor
        else STRICT_ENDS.get(EndReason(gpr.end_reason or "ADMIN"), "Released")
    )
    return _sentence(f"{begun}{_after(gpr)}", _why(gpr, event))


def lateness(gpr: Gpr, event: Event | None) -> str:
    """`12 min late: a request before it gave its nodes back late.`"""
    late = words.late(late_s(gpr)).removeprefix("+")
    if not late:
        return ""
    cause = CAUSE_WORDS.get(Cause(event.reason)) if event and event.kind == "promise.moved" and event.reason in set(Cause) else None
    return f"{late} late: {cause}." if cause else f"{late} late."


def _after(gpr: Gpr) -> str:
    used_s = gpr.duration_s - gpr.remaining_s
    if gpr.active_at is None:
        return " before it was active"
    return f" after {words.duration(used_s)} of {words.duration(gpr.duration_s)}"


def _why(gpr: Gpr, event: Event | None) -> str:
    if event is None or not gpr.end_reason:
        return ""
    return event.message.removeprefix(SENTENCES[EndReason(gpr.end_reason)].format(name=gpr.name)).strip()


def _sentence(text: str, why: str) -> str:
    return f"{text}: {why.rstrip('.')}." if why else f"{text}."
