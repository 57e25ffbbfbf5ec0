"""Makes every write to cases: a case is a node's way from being set aside to its return.

A person's decision stands: what an administrator set aside or keeps aside is not touched, and what one returned is in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import Exists, OuterRef

from accounts.models import User
from core.errors import Conflict, InvalidInput
from core.words import plural
from inventory.models import CordonCause, Node, Repair, Reservation, ReservationState
from inventory.services.nodes import node_uncordon
from inventory.services.repairs import repair_begin, repair_end, why_no_repair
from journal.guard import set_aside_on_error
from journal.models import Severity
from journal.services import event_record
from observability.remediation.counts import counts_keep
from observability.remediation.faults import ACTION_NAMES, CHECK_ACTIONS, DEFAULT_ACTION, REPAIRS, XID_ACTIONS, Action, GpuFault, stronger
from observability.remediation.models import CLOSED, WHY_MAX_CHARS, CaseState, Mode, RemediationCase
from observability.remediation.policies import policies_by_cluster
from protocol.agents.events import Outcome
from protocol.assignments import Desired, Phase

EVIDENCE_MAX: Final = 100
FLAPPING: Final = timedelta(days=7)
# So long a node that only has to look well again may take, before more is done to it.
PATIENCE: Final = timedelta(minutes=30)
S = CaseState


# -- the periodic review -----------------------------------------------------------------------------------------------


def cases_review(*, now: datetime) -> None:
    """Runs two queries when no node is set aside."""
    is_known = RemediationCase.objects.filter(node=OuterRef("pk"), closed_at=None)
    for node in Node.objects.filter(~Exists(is_known), cordoned_at__isnull=False, gone_at=None).order_by("pk"):
        failed = f"EGS could not decide what to do about node {node.name}"
        with set_aside_on_error("case_open", failed, now=now, node_id=node.pk, cluster_id=node.cluster_id):
            case_open(node=node, evidence=[], now=now)
    for case in RemediationCase.objects.filter(closed_at=None).select_related("node").order_by("pk"):
        failed = f"The remediation of node {case.node.name} could not go on"
        with set_aside_on_error("case_review", failed, now=now, node_id=case.node_id, cluster_id=case.node.cluster_id):
            _review(case, now)


@transaction.atomic
def case_open(*, node: Node, evidence: Sequence[Mapping[str, Any]], now: datetime) -> RemediationCase:
    """Opens a case for a node that is set aside."""
    node = Node.objects.select_for_update().select_related("cluster").get(pk=node.pk)
    if node.cordoned_at is None:
        raise Conflict("This node is not set aside any more.")
    cause = CordonCause(node.cordon_cause or CordonCause.PERSON)
    case = RemediationCase(
        node=node,
        opened_at=now,
        tries_since_at=now,
        cause=cause,
        code=node.cordon_code,
        why=_own_words(node, cause),
        evidence=list(evidence)[:EVIDENCE_MAX],
        action=_first_action(cause, node.cordon_code),
        state=S.OPEN,
    )
    if cause == CordonCause.PERSON:
        case.state, case.state_why = S.KEPT, "An administrator set it aside."
    elif (count := _returns_within(node, now)) >= policies_by_cluster({node.cluster_id})[node.cluster_id].returns_max:
        case.state, case.state_why = S.ESCALATED, f"It came back {plural(count, 'time')} within a week, and failed again."
    case.save(force_insert=True)
    if cause != CordonCause.PERSON:
        _record(case, "opened", f"Node {node.name} is set aside: {case.why} Next: {_next(case)}.", now, severity=Severity.WARNING)
    if case.state == S.ESCALATED:
        _record(case, "escalated", f"Node {node.name} needs a person. {case.state_why}", now, severity=Severity.ERROR)
    return case


@transaction.atomic
def fault_add(*, node: Node, evidence: Sequence[Mapping[str, Any]], faults: Sequence[GpuFault], now: datetime) -> None:
    """Adds faults to the node's case, which is opened if there is none. A worse fault asks for a stronger action."""
    case = _locked_or_none(node=node)
    if case is None:
        case = case_open(node=node, evidence=evidence, now=now)
    else:
        case.evidence = [*case.evidence, *evidence][:EVIDENCE_MAX]
    actions = list(Action)
    case.action = max([case.action, *(fault.action for fault in faults)], key=lambda action: actions.index(Action(action)))
    case.save(update_fields=["evidence", "action"])


def _review(case: RemediationCase, now: datetime) -> None:
    with transaction.atomic():
        case = _locked(case)
        node = case.node
        if node.gone_at is not None:
            _end_repairs(case)
            _close(case, S.GONE, "It left its cluster.", None, now)
        elif node.cordoned_at is None:
            _end_repairs(case)
            _close(case, S.RETURNED, "An administrator uses it again.", None, now)
        elif case.state in (S.OPEN, S.ASKING):
            _decide(case, now)
        elif case.state in (S.ACTING, S.PROVING):
            _follow(case, now)


# -- what is to be done ------------------------------------------------------------------------------------------------


def _decide(case: RemediationCase, now: datetime) -> None:
    node = case.node
    if Reservation.objects.filter(node=node, state=ReservationState.HELD).exists():
        _wait(case, "A request still holds the node.")
    elif case.approved_by_id is not None:
        _begin(case, now)
    elif case.action == Action.SUPPORT:
        _escalate(case, "The vendor's support has to look at it: send them the log.", now)
    elif case.action == Action.CHECK and not _looks_well(node):
        if now - case.tries_since_at < PATIENCE:
            _wait(case, "It is not ready yet, or some of its GPUs are sick.")
        else:
            _set(case, S.OPEN, "", action=stronger(case.action))
    else:
        _decide_by_policy(case, now)


def _decide_by_policy(case: RemediationCase, now: datetime) -> None:
    mode = policies_by_cluster({case.node.cluster_id})[case.node.cluster_id].mode_of(case.action)
    if mode == Mode.AUTO:
        _begin(case, now)
    elif mode == Mode.NEVER:
        _escalate(case, f"The policy of its cluster does not allow EGS to do this: {_next(case)}.", now)
    elif case.state != S.ASKING:
        _set(case, S.ASKING, "The policy of its cluster asks an administrator.")
        _record(case, "asked", f"Node {case.node.name} waits for your approval: {_next(case)}. {case.why}", now, severity=Severity.WARNING)


def _begin(case: RemediationCase, now: datetime) -> None:
    if why := why_no_repair(case.node):
        _wait(case, why)
        return
    action = "" if case.action == Action.CHECK else case.action
    actor = case.approved_by
    repair_begin(node=case.node, case_id=case.pk, action=action, actor=actor, now=now)
    case.approved_by = None
    case.save(update_fields=["approved_by"])
    _set(case, S.ACTING if action else S.PROVING, "")
    _record(case, "began", f"Node {case.node.name}: {_next(case)}.", now, actor=actor)


def _follow(case: RemediationCase, now: datetime) -> None:
    repair = case.repairs.order_by("begun_at").last()
    if repair is None:
        _set(case, S.OPEN, "")
    elif repair.released_at is None:
        if repair.passed_at is not None or repair.phase in (Phase.FAILED, Phase.EXITING):
            repair_end(repair=repair)
        if case.state == S.ACTING and repair.steps.filter(step=repair.action, outcome=Outcome.OK).exists():
            _set(case, S.PROVING, "")
    elif repair.passed_at is not None:
        node_uncordon(node=case.node, actor=None, now=now)
        _close(case, S.RETURNED, "All entry checks passed.", None, now)
    else:
        _after_failure(case, repair, now)


def _after_failure(case: RemediationCase, repair: Repair, now: datetime) -> None:
    policy = policies_by_cluster({case.node.cluster_id})[case.node.cluster_id]
    failed = case.repairs.filter(begun_at__gte=case.tries_since_at, passed_at=None, released_at__isnull=False).count()
    last = repair.steps.exclude(outcome=Outcome.OK).order_by("started_at").last()
    why = (repair.failure or "the agent gave it up").rstrip(".")
    if last is not None and repair.action and last.step == repair.action:
        _escalate(case, f"It could not be done: {last.log or why}", now)
    elif failed >= policy.tries_max:
        _escalate(case, f"{plural(failed, 'repair')} failed. The last: {why}.", now)
    else:
        _record(case, "failed", f"A repair of node {case.node.name} failed: {why}.", now, severity=Severity.WARNING)
        _set(case, S.OPEN, f"The last repair failed: {why}.", action=stronger(case.action))


# -- what administrators do --------------------------------------------------------------------------------------------


@transaction.atomic
def case_approve(*, case: RemediationCase, action: str, actor: User, why: str, now: datetime) -> None:
    """Do this to the node as soon as nobody holds it. Raises Conflict, InvalidInput."""
    case = _locked(case)
    _refuse_closed(case)
    if action not in REPAIRS:
        raise InvalidInput({"action": [f"Name one of {', '.join(REPAIRS)}."]})
    if case.state in (S.ACTING, S.PROVING):
        raise Conflict("It is being repaired: wait for the end, or keep it aside.")
    case.approved_by = actor
    case.save(update_fields=["approved_by"])
    _set(case, S.OPEN, "", action=Action(action), tries_since_at=now if case.state in (S.ESCALATED, S.KEPT) else case.tries_since_at)
    _record(case, "approved", f"Node {case.node.name}: {_next(case)} was approved. {why}".strip(), now, actor=actor)
    _decide(case, now)


@transaction.atomic
def case_keep(*, case: RemediationCase, actor: User, why: str, now: datetime) -> None:
    """EGS does nothing more to it. A repair at work ends. Raises Conflict."""
    case = _locked(case)
    _refuse_closed(case)
    _end_repairs(case)
    case.approved_by = None
    case.save(update_fields=["approved_by"])
    _set(case, S.KEPT, f"{actor.name}: {why}"[:WHY_MAX_CHARS])
    _record(case, "kept", f"Node {case.node.name} is kept aside: {why}", now, actor=actor)


@transaction.atomic
def case_give_back(*, case: RemediationCase, actor: User, why: str, now: datetime) -> None:
    """Use the node again without checks. Raises Conflict."""
    case = _locked(case)
    _refuse_closed(case)
    _end_repairs(case)
    node_uncordon(node=case.node, actor=actor, now=now)
    _close(case, S.RETURNED, f"By hand: {why}"[:WHY_MAX_CHARS], actor, now)


@transaction.atomic
def case_resume(*, case: RemediationCase, actor: User, now: datetime) -> None:
    """Let EGS go on by its policy. Raises Conflict."""
    case = _locked(case)
    if case.state not in (S.KEPT, S.ESCALATED):
        raise Conflict("Nobody keeps this node aside: EGS is at it already." if case.closed_at is None else "This case is closed.")
    action = Action.CHECK if case.action == Action.SUPPORT else Action(case.action)
    _set(case, S.OPEN, "", action=action, tries_since_at=now)
    _record(case, "resumed", f"EGS goes on with node {case.node.name}: {_next(case)}.", now, actor=actor)


# -- parts -------------------------------------------------------------------------------------------------------------


def _first_action(cause: CordonCause, code: str) -> Action:
    if cause == CordonCause.CHECK:
        return CHECK_ACTIONS.get(code, DEFAULT_ACTION)
    if cause == CordonCause.FAULT and code.startswith("xid "):
        return XID_ACTIONS.get(int(code.removeprefix("xid ")), Action.RESET_GPUS)
    return Action.RESET_GPUS if cause == CordonCause.FAULT else Action.CHECK


def _own_words(node: Node, cause: CordonCause) -> str:
    """Takes out the names of tenants, which the reason of a replacement has."""
    return "It failed while a request used it, and another node took its place." if cause == CordonCause.LOST else node.cordon_reason


def _returns_within(node: Node, now: datetime) -> int:
    return RemediationCase.objects.filter(
        node=node, state=S.RETURNED, closed_by=None, closed_at__gte=now - FLAPPING, repairs__passed_at__isnull=False
    ).distinct().count()  # fmt: skip


def _looks_well(node: Node) -> bool:
    return node.is_ready and node.broken_at is None and node.sick_gpus_at is None


def _next(case: RemediationCase) -> str:
    name = ACTION_NAMES[case.action]
    return name[0].lower() + name[1:]


def _locked(case: RemediationCase) -> RemediationCase:
    rows = RemediationCase.objects.select_for_update(of=("self",)).select_related("node__cluster", "approved_by")
    return rows.get(pk=case.pk)


def _locked_or_none(*, node: Node) -> RemediationCase | None:
    return RemediationCase.objects.select_for_update(of=("self",)).filter(node=node, closed_at=None).first()


def _refuse_closed(case: RemediationCase) -> None:
    if case.state in CLOSED:
        raise Conflict("This case is closed.")


def _wait(case: RemediationCase, why: str) -> None:
    if (case.state, case.state_why) != (S.OPEN, why):
        _set(case, S.OPEN, why)


def _escalate(case: RemediationCase, why: str, now: datetime) -> None:
    _set(case, S.ESCALATED, why[:WHY_MAX_CHARS])
    _record(case, "escalated", f"Node {case.node.name} needs a person. {why}", now, severity=Severity.ERROR)


def _set(case: RemediationCase, state: CaseState, why: str, **changes: Any) -> None:
    case.state, case.state_why = state, why[:WHY_MAX_CHARS]
    for name, value in changes.items():
        setattr(case, name, value)
    case.save(update_fields=["state", "state_why", *changes])


def _end_repairs(case: RemediationCase) -> None:
    for repair in case.repairs.filter(released_at=None, desired=Desired.PRESENT).select_related("node"):
        repair_end(repair=repair)


def _close(case: RemediationCase, state: CaseState, why: str, actor: User | None, now: datetime) -> None:
    counts_keep(node=case.node, now=now)
    _set(case, state, why, closed_at=now, closed_by=actor)
    if state == S.RETURNED:
        _record(case, "returned", f"Node {case.node.name} is in use again. {why}", now, actor=actor)
    else:
        _record(case, "gone", f"Node {case.node.name} left its cluster; its case is closed.", now)


def _record(
    case: RemediationCase, what: str, message: str, now: datetime, *, severity: Severity = Severity.INFO, actor: User | None = None
) -> None:
    event_record(
        kind=f"remediation.{what}",
        message=message,
        at=now,
        actor=actor,
        severity=severity,
        node_id=case.node_id,
        cluster_id=case.node.cluster_id,
        data={"case": str(case.pk), "cause": case.cause, "code": case.code, "action": case.action},
    )
