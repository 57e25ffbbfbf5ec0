"""What agents report: ends of steps with their logs, and the inventory. Each message counts once, in order."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction

from egs.rest.references import id_of
from inventory.models import AgentSession, CheckResult, Reservation, StepResult
from inventory.services.agents import AgentIdentity, session_check
from inventory.services.nodes import inventory_store, node_set_aside
from journal.models import Severity
from journal.services import event_record
from worker_agent.limits import sentence
from worker_agent.protocol import ENTRY_ATTEMPTS, AgentEvent, EventsReply, EventsRequest, InventoryEvent, Outcome, StepEvent, Verdict
from worker_agent.steps import EXIT_CHECKS

LOG_MAX_CHARS, MESSAGE_MAX_CHARS, WHY_MAX_CHARS = 64_000, 400, 200


def events_store(*, agent: AgentIdentity, message: EventsRequest, now: datetime) -> EventsReply:
    """Store what comes next in order; a repeat is skipped, a gap is left for the agent to send again. Raises AgentSuperseded.

    One transaction an event: what is stored stays stored, and no transaction locks nodes for two.
    """
    in_order = sorted(message.events, key=lambda event: event.seq)
    stale = [event.seq for event in in_order if not _store_next(agent, message.session_epoch, event, now)]
    stored_seq = AgentSession.objects.values_list("stored_seq", flat=True).get(pk=agent.cluster.pk)
    return EventsReply(stored_seq=stored_seq, stale=tuple(stale))


@transaction.atomic
def _store_next(agent: AgentIdentity, session_epoch: int, event: AgentEvent, now: datetime) -> bool:
    """False when it came too late to count."""
    session = AgentSession.objects.select_for_update().get(pk=agent.cluster.pk)
    session_check(session, session_epoch)
    if event.seq != session.stored_seq + 1:
        return True
    AgentSession.objects.filter(pk=session.pk).update(stored_seq=event.seq)
    return _store(agent, event, now)


def _store(agent: AgentIdentity, event: AgentEvent, now: datetime) -> bool:
    if isinstance(event, InventoryEvent):
        inventory_store(cluster=agent.cluster, nodes=event.nodes, now=now)
        return True
    return _store_step(agent, event, now)


def _store_step(agent: AgentIdentity, event: StepEvent, now: datetime) -> bool:
    rows = Reservation.objects.select_related("node").filter(cluster=agent.cluster, epoch=event.epoch)
    assignment_id = id_of(event.assignment_id)
    row = rows.filter(pk=assignment_id).first() if assignment_id else None
    if row is None:
        return False
    stored, is_new = StepResult.objects.get_or_create(
        reservation=row,
        step=event.step[:63],
        attempt=event.attempt,
        defaults={
            "outcome": event.outcome,
            "started_at": datetime.fromtimestamp(event.started_s, UTC),
            "ended_at": datetime.fromtimestamp(event.ended_s, UTC),
            "log": event.log[:LOG_MAX_CHARS],
            "evidence": event.evidence,
            "blames_node": event.blames_node,
        },
    )
    if is_new:
        _store_results(stored, event)
        _tell(row, event, now)
    return True


def _store_results(step: StepResult, event: StepEvent) -> None:
    """The last of two of one name and GPU counts."""
    by_name = {(result.check, result.gpu): result for result in event.results}
    CheckResult.objects.bulk_create(
        CheckResult(
            step=step,
            what=result.check,
            gpu_uuid=result.gpu,
            value=result.value,
            unit=result.unit,
            threshold=result.threshold,
            is_least=result.is_least,
            verdict=result.verdict,
            text=result.text,
        )
        for result in by_name.values()
    )


def _tell(row: Reservation, event: StepEvent, now: datetime) -> None:
    failed = event.outcome != Outcome.OK
    event_record(
        kind="node.step_failed" if failed else "node.step_passed",
        message=_message(row, event),
        at=now,
        severity=Severity.WARNING if failed else Severity.INFO,
        reason=event.step[:63],
        gpr_id=row.gpr_id,
        slice_id=row.slice_id,
        node_id=row.node_id,
        cluster_id=row.cluster_id,
        data={"attempt": event.attempt, "outcome": event.outcome, "blames_node": event.blames_node},
    )
    if _has_failed_for_good(row, event):
        stage = "Entry" if event.step in row.entry_steps else "Exit"
        node_set_aside(node=row.node, why=f"{stage} check {event.step} failed.{_worst(event)}"[:WHY_MAX_CHARS], now=now)


def _message(row: Reservation, event: StepEvent) -> str:
    if event.outcome == Outcome.OK:
        return f"{row.node.name}: {event.step} passed."
    if not event.blames_node:
        return f"{row.node.name}: {event.step} could not be made: {event.log}"[:MESSAGE_MAX_CHARS]
    return f"{row.node.name}: {event.step} failed.{_worst(event)}"[:MESSAGE_MAX_CHARS]


def _worst(event: StepEvent) -> str:
    """The first measurement that failed, as a sentence."""
    bad = next((result for result in event.results if result.verdict == Verdict.FAIL), None)
    return f" {sentence(bad)}{f', GPU {bad.gpu}' if bad.gpu else ''}." if bad else ""


def _has_failed_for_good(row: Reservation, event: StepEvent) -> bool:
    """The agent tries each check again; one failure may be chance. What it could not make says nothing of the node."""
    is_check = event.step in row.entry_steps or event.step in EXIT_CHECKS
    if event.outcome != Outcome.FAILED or not event.blames_node or not is_check:
        return False
    return row.steps.filter(step=event.step, outcome=Outcome.FAILED, blames_node=True).count() >= ENTRY_ATTEMPTS
