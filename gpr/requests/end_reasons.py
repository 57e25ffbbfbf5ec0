"""Says in one sentence how a GPR ended."""

from __future__ import annotations

from core import words
from gpr.models import EndReason, Gpr, GprState
from gpr.requests.ending import SENTENCES
from journal.models import Event

S = GprState

STRICT_ENDS = {
    EndReason.EXPIRED: "Ran its full window",
    EndReason.IDLE: "Its GPUs were idle; released",
    EndReason.ADMIN: "Released by an administrator",
    EndReason.EVICTED: "Evicted",
    EndReason.NODE_FAILURE: "A node failed",
    EndReason.CHECK_FAILED: "A check on the way in failed",
}


def ending(gpr: Gpr, event: Event | None) -> str:
    """Describes the end of a GPR that has ended or is exiting."""
    actor = event.actor.name if event and event.actor else ""
    if gpr.state == S.CANCELED:
        why = event.message.removeprefix(f"{gpr.name} was canceled.").strip() if event else ""
        return _sentence(f"Canceled by {actor} before it started" if actor else "Canceled before it started", why)
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
