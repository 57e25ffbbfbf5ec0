"""What agents report: ends of steps with their logs, and the inventory. Each message counts once, in order."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from django.db import transaction

from inventory.models import AgentSession, Reservation, StepResult
from inventory.services.agents import AgentIdentity, session_check
from inventory.services.nodes import inventory_store, node_set_aside
from journal.models import Severity
from journal.services import event_record
from worker_agent.protocol import ENTRY_ATTEMPTS, AgentEvent, EventsReply, EventsRequest, InventoryEvent, Outcome, StepEvent

LOG_MAX_CHARS = 64_000


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
    assignment_id = _uuid(event.assignment_id)
    row = rows.filter(pk=assignment_id).first() if assignment_id else None
    if row is None:
        return False
    _, is_new = StepResult.objects.get_or_create(
        reservation=row,
        step=event.step[:63],
        attempt=event.attempt,
        defaults={
            "outcome": event.outcome,
            "started_at": datetime.fromtimestamp(event.started_s, UTC),
            "ended_at": datetime.fromtimestamp(event.ended_s, UTC),
            "log": event.log[:LOG_MAX_CHARS],
            "evidence": event.evidence,
        },
    )
    if is_new:
        _tell(row, event, now)
    return True


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _tell(row: Reservation, event: StepEvent, now: datetime) -> None:
    failed = event.outcome != Outcome.OK
    event_record(
        kind="node.step_failed" if failed else "node.step_passed",
        message=f"{row.node.name}: {event.step} {'failed' if failed else 'passed'}.",
        at=now,
        severity=Severity.WARNING if failed else Severity.INFO,
        reason=event.step[:63],
        gpr_id=row.gpr_id,
        slice_id=row.slice_id,
        node_id=row.node_id,
        cluster_id=row.cluster_id,
        data={"attempt": event.attempt, "outcome": event.outcome},
    )
    if _has_failed_for_good(row, event):
        node_set_aside(node=row.node, why=f"Entry check {event.step} failed.", now=now)


def _has_failed_for_good(row: Reservation, event: StepEvent) -> bool:
    """The agent tries each entry check again; one failure may be chance. A step that it does not know says nothing of the node."""
    if event.outcome != Outcome.FAILED or event.step not in row.entry_steps:
        return False
    return row.steps.filter(step=event.step, outcome=Outcome.FAILED).count() >= ENTRY_ATTEMPTS
