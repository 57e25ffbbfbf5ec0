"""Stores agents' reports, each once and in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from uuid import UUID

from django.db import DataError, IntegrityError, InterfaceError, OperationalError, transaction

from core.errors import EgsError
from core.rest.references import id_of
from inventory.models import AgentSession, CheckResult, CordonCause, Repair, Reservation, StepResult
from inventory.services.agents import AgentIdentity, session_check
from inventory.services.inventory import inventory_store
from inventory.services.nodes import node_set_aside
from journal.guard import set_aside_on_error
from journal.models import Event, Severity
from journal.services import events_record
from protocol.agents.events import AgentEvent, EventsReply, EventsRequest, InventoryEvent, Outcome, StepEvent
from protocol.assignments import ENTRY_ATTEMPTS
from protocol.nodes.check_limits import sentence
from protocol.nodes.checks import Verdict
from protocol.nodes.steps import EXIT_CHECKS, step_name

# A value that does not fit its column or the calendar: the agent's message is refused.
UNSTORABLE = (DataError, IntegrityError, ValueError, OverflowError)
RETRIED = (EgsError, OperationalError, InterfaceError)
Assigned = Reservation | Repair
LOG_MAX_CHARS, MESSAGE_MAX_CHARS, WHY_MAX_CHARS = 64_000, 400, 200


def events_store(*, agent: AgentIdentity, message: EventsRequest, now: datetime) -> EventsReply:
    """Repeats are skipped; after a gap the agent has to send again. Raises AgentSuperseded.

    Passed steps share a transaction. Each other event has its own, so that no transaction locks nodes for two.
    """
    in_order = sorted(message.events, key=lambda event: event.seq)
    stale = [seq for batch in _batches(in_order) for seq in _store_batch(agent, message.session_epoch, batch, now)]
    stored_seq = AgentSession.objects.values_list("stored_seq", flat=True).get(pk=agent.cluster.pk)
    return EventsReply(stored_seq=stored_seq, stale=tuple(stale))


def _batches(events: Iterable[AgentEvent]) -> Iterator[list[AgentEvent]]:
    for has_passed, group in groupby(events, lambda event: isinstance(event, StepEvent) and event.outcome == Outcome.OK):
        events_of_group = list(group)
        yield from [events_of_group] if has_passed else [[event] for event in events_of_group]


def _store_batch(agent: AgentIdentity, session_epoch: int, batch: Sequence[AgentEvent], now: datetime) -> list[int]:
    """Returns the numbers of stale events."""
    if len(batch) == 1:
        return _store_alone(agent, session_epoch, batch[0], now)
    try:
        return _store_next(agent, session_epoch, batch, now)
    except RETRIED:
        raise
    except Exception:
        return [seq for event in batch for seq in _store_alone(agent, session_epoch, event, now)]


def _store_alone(agent: AgentIdentity, session_epoch: int, event: AgentEvent, now: datetime) -> list[int]:
    failed, cluster_id = f"Event {event.seq} of the agent of {agent.cluster.name} could not be stored", agent.cluster.pk
    stale: list[int] = []
    with set_aside_on_error("agent_event_store", failed, now=now, cluster_id=cluster_id, raises=(*RETRIED, *UNSTORABLE)) as attempt:
        stale = _store_next(agent, session_epoch, [event], now)
    # Skip the event: the agent would repeat it for ever and send nothing after it.
    if attempt.error is not None:
        AgentSession.objects.filter(pk=cluster_id, session_epoch=session_epoch, stored_seq=event.seq - 1).update(stored_seq=event.seq)
    return stale


@transaction.atomic
def _store_next(agent: AgentIdentity, session_epoch: int, batch: Sequence[AgentEvent], now: datetime) -> list[int]:
    session = AgentSession.objects.select_for_update().get(pk=agent.cluster.pk)
    session_check(session, session_epoch)
    unstored = [event for event in batch if event.seq > session.stored_seq]
    due = [event for seq, event in enumerate(unstored, session.stored_seq + 1) if event.seq == seq]
    if not due:
        return []
    AgentSession.objects.filter(pk=session.pk).update(stored_seq=due[-1].seq)
    for event in due:
        if isinstance(event, InventoryEvent):
            inventory_store(cluster=agent.cluster, nodes=event.nodes, now=now)
    return _store_steps(agent, [event for event in due if isinstance(event, StepEvent)], now)


def _store_steps(agent: AgentIdentity, events: Sequence[StepEvent], now: datetime) -> list[int]:
    """Returns the numbers of events of unknown reservations or old epochs."""
    ids = {event.seq: id_of(event.assignment_id) for event in events}
    wanted = {id_ for id_ in ids.values() if id_}
    rows: dict[UUID, Assigned] = {
        row.pk: row for row in Reservation.objects.select_related("node").filter(cluster=agent.cluster, pk__in=wanted)
    }
    if unknown := wanted - rows.keys():
        rows |= {row.pk: row for row in Repair.objects.select_related("node").filter(node__cluster=agent.cluster, pk__in=unknown)}
    found = {event.seq: row for event in events if (id_ := ids[event.seq]) and (row := rows.get(id_)) and row.epoch == event.epoch}
    known = set(_known_attempts(rows.values()))
    new: dict[tuple[UUID | None, str, int], StepEvent] = {}
    for event in events:
        key = (ids[event.seq], event.step[:63], event.attempt)
        if event.seq in found and key not in known:
            new.setdefault(key, event)
    _store_new([(found[event.seq], event) for event in new.values()], now)
    return [event.seq for event in events if event.seq not in found]


def _known_attempts(rows: Iterable[Assigned]) -> Iterator[tuple[UUID | None, str, int]]:
    repair_ids = [row.pk for row in rows if isinstance(row, Repair)]
    reservation_ids = [row.pk for row in rows if isinstance(row, Reservation)]
    yield from StepResult.objects.filter(reservation__in=reservation_ids).values_list("reservation_id", "step", "attempt")
    if repair_ids:
        yield from StepResult.objects.filter(repair__in=repair_ids).values_list("repair_id", "step", "attempt")


def _store_new(told: Sequence[tuple[Assigned, StepEvent]], now: datetime) -> None:
    # In order of reservations: their foreign keys lock them.
    ordered = sorted(told, key=lambda each: each[0].pk)
    steps = StepResult.objects.bulk_create([_step(row, event) for row, event in ordered])
    CheckResult.objects.bulk_create(result for step, (_, event) in zip(steps, ordered, strict=True) for result in _results(step, event))
    events_record([_told(row, event, now) for row, event in told])
    for row, event in told:
        if _has_failed_for_good(row, event):
            stage = "Entry" if event.step in row.entry_steps else "Exit"
            why = f"{stage} check {step_name(event.step)} failed.{_worst(event)}"[:WHY_MAX_CHARS]
            node_set_aside(node=row.node, why=why, now=now, cause=CordonCause.CHECK, code=event.step[:63])


def _step(row: Assigned, event: StepEvent) -> StepResult:
    return StepResult(
        reservation=row if isinstance(row, Reservation) else None,
        repair=row if isinstance(row, Repair) else None,
        step=event.step[:63],
        attempt=event.attempt,
        outcome=event.outcome,
        started_at=datetime.fromtimestamp(event.started_s, UTC),
        ended_at=datetime.fromtimestamp(event.ended_s, UTC),
        log=event.log[:LOG_MAX_CHARS],
        evidence=event.evidence,
        blames_node=event.blames_node,
    )


def _results(step: StepResult, event: StepEvent) -> Iterator[CheckResult]:
    by_name = {(result.check, result.gpu): result for result in event.results}
    for result in by_name.values():
        yield CheckResult(
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


def _told(row: Assigned, event: StepEvent, now: datetime) -> Event:
    failed = event.outcome != Outcome.OK
    box = row if isinstance(row, Reservation) else None
    return Event(
        kind="node.step_failed" if failed else "node.step_passed",
        message=_message(row, event),
        at=now,
        severity=Severity.WARNING if failed else Severity.INFO,
        reason=event.step[:63],
        gpr_id=box.gpr_id if box else None,
        slice_id=box.slice_id if box else None,
        node_id=row.node_id,
        cluster_id=row.node.cluster_id,
        data={"attempt": event.attempt, "outcome": event.outcome, "blames_node": event.blames_node},
    )


def _message(row: Assigned, event: StepEvent) -> str:
    if event.outcome == Outcome.OK:
        return f"{row.node.name}: {step_name(event.step)} passed."
    if not event.blames_node:
        return f"{row.node.name}: {step_name(event.step)} could not be made: {event.log}"[:MESSAGE_MAX_CHARS]
    return f"{row.node.name}: {step_name(event.step)} failed.{_worst(event)}"[:MESSAGE_MAX_CHARS]


def _worst(event: StepEvent) -> str:
    bad = next((result for result in event.results if result.verdict == Verdict.FAIL), None)
    return f" {sentence(bad)}{f', GPU {bad.gpu}' if bad.gpu else ''}." if bad else ""


def _has_failed_for_good(row: Assigned, event: StepEvent) -> bool:
    """The agent repeats failed checks."""
    if isinstance(row, Repair):
        return False  # it is set aside anyway
    is_check = event.step in row.entry_steps or event.step in EXIT_CHECKS
    if event.outcome != Outcome.FAILED or not event.blames_node or not is_check:
        return False
    return row.steps.filter(step=event.step, outcome=Outcome.FAILED, blames_node=True).count() >= ENTRY_ATTEMPTS
