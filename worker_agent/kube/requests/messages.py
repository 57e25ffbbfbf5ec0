"""Words the Kubernetes events about a request, without any call.

They follow from changes of the status, so what the status already holds was told; only passed marks are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from protocol.tenancy.life_marks import LifeMark
from worker_agent.kube.api.custom import Fields

MARKS: Final = (25, 50, 75)  # percent of the window
BAD: Final = frozenset({"REFUSED", "FAILED", "REJECTED", "EVICTED"})
ENDED: Final = frozenset({"COMPLETED", "RELEASED", "EVICTED", "FAILED", "CANCELED", "REJECTED", "ENDED"})
_SAID: Final = {
    "PENDING_APPROVAL": ("WaitsForApproval", "It waits for approval."),
    "QUEUED": ("Queued", "It is in the queue."),
    "PROVISIONING": ("Provisioning", "It gets its nodes, which are checked now."),
    "ACTIVE": ("Provisioned", "Its nodes are there."),
    "EXITING": ("Exiting", "Its nodes are being cleared and given back."),
    "REFUSED": ("Refused", "EGS refused it."),
}


@dataclass(frozen=True, slots=True)
class EventText:
    reason: str
    message: str
    is_bad: bool = False


def status_events(before: Fields, after: Fields) -> list[EventText]:
    found = []
    state = str(after.get("state", ""))
    if state != before.get("state") and (state in _SAID or state in ENDED):
        reason, said = _SAID.get(state, (_reason(state), "It has ended."))
        # A waiting request's message holds its place, which changes often and belongs in the status only.
        message = str(after.get("message") or said) if state in BAD or state in ENDED else said
        found.append(EventText(reason, f"{message}{_when(state, after)}", state in BAD))
    was, now = str(before.get("promisedStartTime", "")), str(after.get("promisedStartTime", ""))
    if was and now > was and state == before.get("state"):
        found.append(EventText("PromiseMoved", f"Its promised start moved from {was} to {now}.", is_bad=True))
    return found


def mark_of(status: Fields, now: datetime) -> int:
    """Returns the last percentage in MARKS that its window has passed, or 0."""
    if status.get("state") != "ACTIVE":
        return 0
    try:
        start, end = (datetime.fromisoformat(str(status.get(key))) for key in ("startTime", "endTime"))
    except ValueError:
        return 0
    passed = (now - start) / (end - start) * 100 if end > start else 0.0
    return max((mark for mark in MARKS if passed >= mark), default=0)


def mark_event(mark: int, status: Fields) -> EventText:
    return EventText(_passed(mark), f"{mark} % of its time have passed. It ends at {status.get('endTime')}.")


def life_event(mark: LifeMark) -> EventText:
    reason, _ = _SAID.get(mark.state, (_reason(mark.state), ""))
    named = mark.reason or (_passed(mark.percent) if mark.percent else reason)
    return EventText(named, f"GPR {mark.gpr_name}: {mark.message}", bool(mark.reason) or mark.state in BAD)


def _reason(state: str) -> str:
    return "".join(word.capitalize() for word in state.split("_"))


def _passed(percent: int) -> str:
    return f"Passed{percent}Percent"


def _when(state: str, status: Fields) -> str:
    if state == "ACTIVE" and "endTime" in status:
        return f" Until {status['endTime']}, to the second."
    return ""
