"""Computes the status of one request object, and whether to ask the hub about it.

It is pure and level-triggered: all follows from the object, the hub's list and its last answer. The status keeps answers to earlier agents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from protocol.scalars import MOMENT_MAX_S
from protocol.tenancy.cluster_requests import (
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestState,
    ClusterRequestVerdict,
    JobProgress,
)
from worker_agent.kube.api.custom import FINISHED, Custom, Fields
from worker_agent.kube.requests.spec import NOTE_MAX, SpecFault

ACCEPTED, PROVISIONED, CURRENT = "Accepted", "Provisioned", "Current"
COMPLETE, FAILED = "Complete", "Failed"  # of jobs, as Jobs of Kubernetes have them
SUCCEEDED: Final = "SUCCEEDED"
NOT_DONE: Final = frozenset({"FAILED", "STOPPED"})
ACTIVE: Final = "ACTIVE"
LATER_S: Final = 30.0  # until the hub is asked again
TEMPLATE_NOT_FOUND: Final = "TemplateNotFound"
# Refusals that may end without a change of the request: nodes and templates are added; policies, memberships and bindings change.
PASSING: Final = frozenset({"CanNeverStart", "OverPolicy", "NotAllowed", "NoOwner", "NamespaceNotBound", TEMPLATE_NOT_FOUND})
# Refusals by the agent itself, or of what it looks at itself, evaluated again at each look.
OWN: Final = frozenset({"NamespaceNotBound", TEMPLATE_NOT_FOUND, "UnknownField", "InvalidSpec"})
PASSING_S: Final = 300.0
# Fields that change often; a change of these alone is not urgent to write.
MINOR: Final = ("position", "estimatedStartTime", "message", "podsRunning")
NOT_BOUND: Final = SpecFault(
    "NamespaceNotBound",
    "This namespace is bound to no workspace. Make the request in one that is, or bind this one on the pages of EGS.",
)
ENDED_UNSEEN: Final = (
    "It has ended while the cluster's agent was away, or with the namespace's part in its workspace. The pages of EGS say how."
)
AFTER_END: Final = "It has ended, and changes no more. Make a new request."


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """Holds a request object with the hub's answers about it."""

    gpr: Custom
    is_bound: bool | None  # whether its namespace is bound to a workspace; None: not known yet
    words: Fields  # the fields of its template
    asked: ClusterRequest | SpecFault  # what to send to the hub, or why not
    answer: ClusterRequestAnswer | None = None  # the hub's last answer to this generation
    is_listed_since: bool = False  # whether the hub's list was requested after that answer
    state: ClusterRequestState | None = None  # its entry in the hub's list

    @property
    def fault(self) -> SpecFault | None:
        if self.is_bound is False and not self.gpr_id:
            return NOT_BOUND
        return self.asked if isinstance(self.asked, SpecFault) else None

    @property
    def gpr_id(self) -> str:
        known = self.state.gpr_id if self.state else self.answer.gpr_id if self.answer else ""
        return known or str(self.gpr.status_fields.get("gprID") or "")

    @property
    def was_finished(self) -> bool:
        return self.gpr.is_finished

    @property
    def is_lost(self) -> bool:
        # The hub gave it a GPR, yet a later list lacks it: it ended long ago or no longer belongs to this cluster.
        return self.state is None and self.is_listed_since and self.answer is not None and bool(self.gpr_id)

    @property
    def was_answered(self) -> bool:
        """Tell whether the status holds an answer of the hub."""
        is_of_this = self.gpr.status_fields.get("observedGeneration") == self.gpr.metadata.generation
        return is_of_this and bool(self.gpr.status_fields.get("gprID") or self.refusal)

    @property
    def refusal(self) -> str:
        """Returns the hub's reason of refusal in the status, or ""."""
        accepted = self.gpr.condition(ACCEPTED)
        reason = str(accepted.get("reason", ""))
        return reason if accepted.get("status") == "False" and reason not in OWN else ""


def request_due(case: RequestFacts, *, answered_s: float, is_listed: bool) -> ClusterRequest | None:
    """Returns the request if it is to be sent now. `answered_s`: seconds since the answer, or since this agent began. `is_listed`: the
    hub's list is known.
    """
    if case.was_finished or not case.is_bound or not is_listed or case.fault or isinstance(case.asked, SpecFault):
        return None
    if case.answer is not None:
        match case.answer.verdict:
            case ClusterRequestVerdict.LATER:
                is_due = answered_s >= LATER_S
            case ClusterRequestVerdict.REFUSED:
                is_due = not case.gpr_id and condition_reason(case.answer.reason) in PASSING and answered_s >= PASSING_S
            case _:
                is_due = False
    elif not case.was_answered:
        is_due = True
    elif case.gpr_id:
        is_due = case.state is None  # it has ended, or the hub lost it
    else:
        is_due = case.refusal in PASSING and answered_s >= PASSING_S
    return case.asked if is_due else None


def status_of(case: RequestFacts, *, now: datetime) -> Fields:
    """Returns the complete status; equal to the present one if nothing changed."""
    if case.was_finished:
        return _after_end(case, now)
    said, state, fault, answer = case.gpr.status_fields, case.state, case.fault, case.answer
    status: Fields = {
        "observedGeneration": _observed(case),
        "gprID": case.gpr_id or None,
        **_asked_for(case),
        "conditions": said.get("conditions"),
    }
    if case.is_lost:
        status |= {"state": "ENDED", "message": ENDED_UNSEEN}
    elif case.gpr_id:
        status |= _of_state(case) if state else {key: said[key] for key in _OF_STATE if key in said}
    elif fault is not None or (answer and answer.verdict is ClusterRequestVerdict.REFUSED):
        status |= {"state": "REFUSED", "message": fault.message if fault else _note(answer.message if answer else "")}
    elif case.was_answered:
        status |= {key: said[key] for key in ("state", "message") if key in said}
    else:
        status |= {"state": "NEW", "message": _note(answer.message if answer else "EGS has not answered yet.")}
    status["conditions"] = _conditions(case, str(status.get("message", "")), now)
    return {key: value for key, value in status.items() if value is not None and value != []}


def is_minor_change(before: Fields, after: Fields) -> bool:
    # The message of a condition repeats the message of the status, so it is left out.
    def kept(status: Fields) -> list[Any]:
        conditions = [{**each, "message": ""} for each in status.get("conditions", []) if isinstance(each, dict)]
        return [{key: value for key, value in status.items() if key not in (*MINOR, "conditions")}, conditions]

    return kept(before) == kept(after)


def condition_reason(code: str) -> str:
    """Turns the hub's code into a condition's reason."""
    words = re.findall(r"[A-Za-z0-9]+", code)
    reason = "".join(word[0].upper() + word[1:].lower() for word in words)[:127]
    return reason if reason[:1].isalpha() else "Refused"


def rfc3339(seconds: float) -> str:
    """Formats RFC 3339, clamped to the years 1970 to 9999."""
    return datetime.fromtimestamp(min(max(0.0, seconds), MOMENT_MAX_S), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- parts of the status

_OF_STATE: Final = (
    *("state", "endReason", "message", "position", "promisedStartTime", "estimatedStartTime", "startTime", "endTime", "nodes"),
    *("phase", "podsRunning"),
)


def _of_state(case: RequestFacts) -> Fields:
    state = case.state
    if state is None:
        return {}
    times = {
        "promisedStartTime": state.promised_start_s,
        "estimatedStartTime": state.estimated_start_s,
        "startTime": state.started_s,
        "endTime": state.ends_s,
    }
    return {
        "state": state.state,
        "endReason": state.end_reason or None,
        "message": _note(state.message) or None,
        "position": state.position,
        **{key: rfc3339(seconds) for key, seconds in times.items() if seconds is not None},
        "nodes": list(state.nodes),
        "phase": state.job.state if state.job else None,
        "podsRunning": state.job.pods_running if state.job else None,
    }


def _asked_for(case: RequestFacts) -> Fields:
    # Shown for people. The template's fields are stored once the request is filed.
    spec = case.asked.spec if isinstance(case.asked, ClusterRequest) else None
    filed = case.words if case.gpr_id and case.gpr.fields.get("template") else None
    return {"shape": (spec.shape or None) if spec else None, "nodeCount": spec.nodes if spec else None, "templateSpec": filed}


def _observed(case: RequestFacts) -> int | None:
    is_answered = case.fault is not None or (case.answer is not None and case.answer.verdict is not ClusterRequestVerdict.LATER)
    known = case.gpr.status_fields.get("observedGeneration")
    return case.gpr.metadata.generation if is_answered else known


def _conditions(case: RequestFacts, message: str, now: datetime) -> list[Fields]:
    found = {ACCEPTED: _accepted(case), **_life(case, message)}
    if current := _current(case):
        found[CURRENT] = current
    return [condition_of(case.gpr, type_, *said, now) for type_, said in found.items()]


_Said = tuple[str, str, str]  # status, reason, message


def _accepted(case: RequestFacts) -> _Said:
    if case.gpr_id:
        return "True", "Accepted", f"It is request {case.gpr_id} of EGS."
    if case.fault:
        return "False", case.fault.reason, case.fault.message
    match case.answer:
        case ClusterRequestAnswer(verdict=ClusterRequestVerdict.REFUSED, reason=reason, message=message):
            return "False", condition_reason(reason), _note(message)
        case ClusterRequestAnswer(message=message):
            return "Unknown", "Later", _note(message)
    return _kept(case, ACCEPTED) if case.was_answered else ("Unknown", "Asking", "EGS has not answered yet.")


def _life(case: RequestFacts, message: str) -> dict[str, _Said]:
    state = case.state
    of_job = (COMPLETE, FAILED) if case.gpr.is_job else ()
    if case.is_lost:
        ended = {PROVISIONED: ("False", "Ended", ENDED_UNSEEN), FINISHED: ("True", "Ended", ENDED_UNSEEN)}
        return ended | {type_: _kept(case, type_) for type_ in of_job}
    if state is None:
        if case.gpr_id and case.gpr.condition(PROVISIONED):
            return {type_: _kept(case, type_) for type_ in (PROVISIONED, FINISHED, *of_job)}
        reason = "Accepted" if case.gpr_id else "NotAccepted"
        return dict.fromkeys((PROVISIONED, FINISHED, *of_job), ("False", reason, ""))
    reason = condition_reason(state.state)
    is_active = state.state == ACTIVE
    until = f"Until {rfc3339(state.ends_s)}." if is_active and state.ends_s is not None else message
    return {
        PROVISIONED: ("True" if is_active else "False", "Provisioned" if is_active else reason, until),
        FINISHED: ("True" if state.is_ended else "False", reason, message if state.is_ended else ""),
        **(_of_job(state.job, message) if state.job else {}),
    }


def _of_job(job: JobProgress, message: str) -> dict[str, _Said]:
    reason, has_failed = condition_reason(job.state), job.state in NOT_DONE
    return {
        COMPLETE: ("True" if job.state == SUCCEEDED else "False", reason, ""),
        FAILED: ("True" if has_failed else "False", reason, message if has_failed else ""),
    }


def _current(case: RequestFacts) -> _Said | None:
    if not case.gpr_id:  # then the condition Accepted tells it
        return None
    if case.fault:
        return "False", case.fault.reason, case.fault.message
    match case.answer:
        case ClusterRequestAnswer(verdict=ClusterRequestVerdict.REFUSED, reason=reason, message=message):
            return "False", condition_reason(reason), _note(message)
        case ClusterRequestAnswer(verdict=ClusterRequestVerdict.LATER, message=message):
            return "Unknown", "Later", _note(message)
        case None if case.gpr.condition(CURRENT):
            return _kept(case, CURRENT)
    return "True", "Taken", ""


def _after_end(case: RequestFacts, now: datetime) -> Fields:
    said, generation = case.gpr.status_fields, case.gpr.metadata.generation
    if said.get("observedGeneration") == generation:
        return said
    current = condition_of(case.gpr, CURRENT, "False", "Ended", AFTER_END, now)
    others = [each for each in said["conditions"] if each.get("type") != CURRENT]
    return {**said, "observedGeneration": generation, "conditions": [*others, current]}


def _kept(case: RequestFacts, type_: str) -> _Said:
    known = case.gpr.condition(type_)
    return str(known.get("status", "Unknown")), str(known.get("reason", "Asking")), str(known.get("message", ""))


def condition_of(found: Custom, type_: str, status: str, reason: str, message: str, now: datetime) -> Fields:
    # The transition time changes only with the condition's status.
    before = found.condition(type_)
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    made = {"type": type_, "status": status, "reason": reason, "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {**made, "message": message} if message else made


def _note(text: str) -> str:
    return text[:NOTE_MAX]
