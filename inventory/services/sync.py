"""Handles one sync with an agent, without waiting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F

from core.words import plural
from core.written_sql import IdParam, WrittenQuery, rows_update
from inventory import tenancy
from inventory.cluster_requests import handler
from inventory.models import AgentSession, Cluster, Gpu, Hub, Node, Repair, Reservation, SupplyOrder, SupplyOrderState
from inventory.rows import gpus_by_reservation
from inventory.services import repairs
from inventory.services.agents import AgentIdentity, AgentSuperseded, session_check
from inventory.services.checks import policies_by_shape
from inventory.services.reservations import ReservationReport, is_news, reservations_observe, reservations_of_agent
from journal.guard import AuditSubject, set_aside_on_error, write_or_set_aside
from journal.hints import TICK, hint
from journal.models import Event, Severity
from journal.services import event_record
from protocol.agents.listings import ASSIGNMENTS, CLUSTER_REQUESTS, LIFE, TEMPLATES, WORKLOADS, WORKSPACES
from protocol.agents.sync import SyncReply, SyncRequest
from protocol.assignments import LEASE_TTL_S, Assignment, Drain, Observed
from protocol.nodes.checks import CheckPolicy
from protocol.nodes.drift import DRIFT_AGAIN_S, Drift
from protocol.nodes.inventory import NodeOrder

MESSAGE_MAX_CHARS = 500
DRIFT, STEPS_LOST = "cluster.drift", "cluster.steps_lost"
AGAIN = timedelta(seconds=DRIFT_AGAIN_S / 2)


class _ToldBox(NamedTuple):
    """Selects fields of Reservation: what the agent is told of it."""

    pk: UUID
    gpr_id: UUID
    gpr__name: str
    slice_id: UUID
    slice__name: str
    cluster_id: UUID
    cluster__drain_grace_s: int
    cluster__drain_force_after_s: int
    node_id: UUID
    node__name: str
    node__uid: str
    node__shape: str
    epoch: int
    desired: str
    run: int
    gang_count: int
    namespaces: list[str]
    starts_at: datetime
    enter_by_at: datetime
    duration_s: int
    not_after_at: datetime | None
    entry_steps: list[str]
    exit_steps: list[str]
    replaces_id: UUID | None


# Agents sync every few seconds.
_TOLD_OF_SESSION: Final = (
    *("session_epoch", "boot_id", "stored_seq", "last_sync_at"),
    *("known_generation", "clock_offset_s", "agent_version", "workload_kinds"),
)
_SESSION: Final = WrittenQuery(AgentSession.objects.select_for_update(), key="cluster__id")
_CLUSTER: Final = WrittenQuery(Cluster.objects.order_by().values_list("generation", "repairs_drift"))
_HUB: Final = WrittenQuery(Hub.objects.values_list("pk", flat=True))
_OF_AGENT: Final = reservations_of_agent(IdParam("cluster")).order_by("pk")
_TOLD: Final = WrittenQuery(_OF_AGENT)
_BOXES: Final = WrittenQuery(_OF_AGENT.values_list(*_ToldBox._fields))
_REPAIRS: Final = WrittenQuery(Repair.objects.filter(node__cluster=IdParam("cluster"), released_at=None).select_related("node__cluster"))
_GPUS_THERE: Final = WrittenQuery(Gpu.objects.filter(gone_at=None).order_by().values_list("node", "uuid"), key="node__id")
_ORDERED: Final = SupplyOrder.objects.filter(supply__cluster=IdParam("cluster"), state=SupplyOrderState.ORDERED)
_ORDERS: Final = WrittenQuery(_ORDERED.select_related("supply").order_by("expected_at", "pk"))


@transaction.atomic
def sync_receive(*, agent: AgentIdentity, message: SyncRequest, now: datetime) -> int:
    """Returns the session's epoch. Raises AgentSuperseded."""
    (session,) = _SESSION([agent.cluster.pk])
    if message.session_epoch == 0:
        _begin_session(session, message)
    session_check(session, message.session_epoch or session.session_epoch)
    if session.boot_id != message.boot_id:
        raise AgentSuperseded("Another process of this agent has begun a newer session. This one should stop.")
    session.last_sync_at = now
    session.known_generation = message.known_generation
    session.clock_offset_s = message.clock_offset_s
    session.agent_version = message.agent_version[:63]
    if message.workload_kinds is not None:
        session.workload_kinds = sorted(message.workload_kinds)
    rows_update([session], _TOLD_OF_SESSION)
    observations_store(cluster_id=agent.cluster.pk, observed=message.observed, now=now)
    _record_drifts(agent.cluster, message.drifts, now)
    _record_lost_steps(agent.cluster, message.steps_lost, now)
    _notice_rewind(agent.cluster, message, now)
    return session.session_epoch


def sync_reply(*, agent: AgentIdentity, message: SyncRequest, session_epoch: int, received_at: datetime, now: datetime) -> SyncReply:
    """Returns the reply, without lists that the agent has already."""
    # The generation is read first: after a change in between the set is newer than its number, and is sent again.
    ((generation, repairs_drift),) = _CLUSTER([agent.cluster.pk])
    cluster_id = agent.cluster.pk
    assignments = desired_set(cluster_id=cluster_id, now=now)
    lists = {
        **ASSIGNMENTS.tell(message, generation, lambda: assignments),
        **WORKSPACES.tell(message, generation, lambda: tenancy.workspaces(cluster_id)),
        # Places and estimates change without a new generation.
        **CLUSTER_REQUESTS.tell(message, generation, lambda: handler().states(cluster_id, now=now)),
        **LIFE.tell(message, generation, lambda: handler().life_marks(cluster_id, now=now)),
        **TEMPLATES.tell(message, generation, lambda: handler().auto_templates(cluster_id)),
        **WORKLOADS.tell(message, generation, lambda: handler().workloads(cluster_id)),
    }
    return SyncReply(
        hub_id=hub_id(),
        session_epoch=session_epoch,
        received_s=received_at.timestamp(),
        sent_s=now.timestamp(),
        lease_ttl_s=LEASE_TTL_S,
        generation=generation,
        count=len(assignments),
        orders=node_orders(cluster_id=agent.cluster.pk),
        repairs_drift=repairs_drift,
        warn_before_s=settings.EGS_END_WARNING_S,
        log_asks=handler().log_asks(cluster_id, now) if message.have_workloads is not None else (),
        idle_releases=handler().idle_releases(cluster_id),
        **lists,
    )


def generation_now(*, cluster_id: UUID) -> int:
    ((generation, _),) = _CLUSTER([cluster_id])
    return generation


def desired_set(*, cluster_id: UUID, now: datetime) -> tuple[Assignment, ...]:
    """Returns all reservations and repairs that the agent has not released, in order of id.

    A reservation that causes an error is left out: the agent keeps what it knows of it.
    """
    policy_of_shape = policies_by_shape(cluster_id=cluster_id)
    boxes = [_ToldBox._make(row) for row in _BOXES(cluster=cluster_id)]
    gpus = gpus_by_reservation([box.pk for box in boxes])
    found = []
    for box in boxes:
        with set_aside_on_error("assignment_tell", "The agent could not be told of a box on this node", now=now, **_subject(box)):
            found.append(_assignment(box, gpus[box.pk], policy_of_shape(box.node__shape)))
    under_repair = _REPAIRS(cluster=cluster_id)
    there: dict[UUID, list[str]] = defaultdict(list)
    for node_id, uuid in sorted(_GPUS_THERE([repair.node_id for repair in under_repair])):
        there[node_id].append(uuid)
    found += [_repair_assignment(repair, there[repair.node_id], policy_of_shape(repair.node.shape)) for repair in under_repair]
    return tuple(sorted(found, key=lambda assignment: UUID(assignment.id)))


def node_orders(*, cluster_id: UUID) -> tuple[NodeOrder, ...]:
    return tuple(map(node_order, _ORDERS(cluster=cluster_id)))


def node_order(row: SupplyOrder) -> NodeOrder:
    supply = row.supply
    return NodeOrder(
        id=str(row.pk),
        supply=supply.name,
        kind=supply.kind,
        shape=supply.shape,
        gpus_per_node=supply.gpus_per_node,
        gpu_memory_gib=supply.gpu_memory_gib,
        order_by_s=row.order_by_at.timestamp(),
        expected_s=row.expected_at.timestamp(),
    )


def hub_id() -> str:
    known = _HUB()
    return str(known[0] if known else Hub.objects.get_or_create(singleton=True)[0].pk)


def observations_store(*, cluster_id: UUID, observed: tuple[Observed, ...], now: datetime) -> None:
    """Unknown ids and old epochs are ignored."""
    if not observed:
        return
    _repairs_store(cluster_id, observed, now)
    rows = {str(row.pk): row for row in _TOLD(cluster=cluster_id)}
    reports = [_report(rows[seen.assignment_id], seen) for seen in observed if _is_news(rows.get(seen.assignment_id), seen)]
    write_or_set_aside(
        reports,
        lambda some: reservations_observe(some, now=now),
        at_once=len(reports) or 1,  # one transaction locks all nodes in their order
        code="observation_store",
        failed="EGS could not store what the agent reported of a box on this node",
        now=now,
        subject=lambda report: _subject(report.reservation),
    )


def _repairs_store(cluster_id: UUID, observed: tuple[Observed, ...], now: datetime) -> None:
    rows = {str(row.pk): row for row in _REPAIRS(cluster=cluster_id)}
    known = [(row, seen) for seen in observed if (row := rows.get(seen.assignment_id)) is not None and row.epoch == seen.epoch]
    news = [repairs.RepairReport(row, seen.phase, seen.failure) for row, seen in known if repairs.is_news(row, seen.phase, seen.failure)]
    if news:
        repairs.repairs_observe(news, now=now)


def _subject(row: Reservation | _ToldBox) -> AuditSubject:
    return {"gpr_id": row.gpr_id, "node_id": row.node_id, "cluster_id": row.cluster_id}


def _report(row: Reservation, seen: Observed) -> ReservationReport:
    return ReservationReport(
        reservation=row,
        phase=seen.phase,
        active_at=_moment(seen.active_s),
        exit_began_at=_moment(seen.exit_began_s),
        failure=seen.failure,
    )


def _is_news(row: Reservation | None, seen: Observed) -> bool:
    return row is not None and row.epoch == seen.epoch and is_news(row, seen.phase, seen.failure)


def _begin_session(session: AgentSession, message: SyncRequest) -> None:
    """A repeated request of the same boot gets the same session."""
    if session.boot_id == message.boot_id:
        return
    session.session_epoch += 1
    session.boot_id = message.boot_id
    session.stored_seq = 0
    hint(TICK)


def _record_drifts(cluster: Cluster, drifts: Sequence[Drift], now: datetime) -> None:
    """Skips repeats: an agent that lost the answer reports again."""
    if not drifts:
        return
    known = _recent_messages(cluster, DRIFT, now)
    there = Node.objects.filter(cluster=cluster, gone_at=None, name__in={drift.node for drift in drifts})
    node_ids = dict(there.values_list("name", "pk"))
    for drift in drifts:
        message = _drift_message(cluster, drift)
        if message in known:
            continue
        event_record(
            kind=DRIFT,
            message=message,
            at=now,
            severity=Severity.WARNING,
            cluster_id=cluster.pk,
            node_id=node_ids.get(drift.node),
            data={"what": drift.what, "is_repaired": drift.is_repaired},
        )


def _record_lost_steps(cluster: Cluster, step_count: int, now: datetime) -> None:
    message = (
        f"The results of up to {plural(step_count, 'step')} on nodes of {cluster.name} are lost: its agent could not keep more while "
        "it had no word from the hub. It did report how far each box is."
    )
    if step_count and message not in _recent_messages(cluster, STEPS_LOST, now):
        event_record(kind=STEPS_LOST, message=message, at=now, severity=Severity.WARNING, cluster_id=cluster.pk, data={"count": step_count})


def _recent_messages(cluster: Cluster, kind: str, now: datetime) -> set[str]:
    told = Event.objects.filter(cluster_id=cluster.pk, kind=kind, at__gt=now - AGAIN)
    return set(told.values_list("message", flat=True))


def _drift_message(cluster: Cluster, drift: Drift) -> str:
    if drift.is_added:
        outcome = "They were removed." if drift.is_repaired else "They are left as they are."
        return f"Somebody added {drift.what} of {cluster.name}. {drift.detail} {outcome}"[:MESSAGE_MAX_CHARS]
    if drift.is_foreign:
        return f"{drift.what} of {cluster.name} works against EGS. {drift.detail}"[:MESSAGE_MAX_CHARS]
    outcome = "It was repaired." if drift.is_repaired else "It is left as it is."
    return f"Somebody else changed what EGS keeps in {cluster.name}: {drift.what}. {drift.detail} {outcome}"[:MESSAGE_MAX_CHARS]


def _notice_rewind(cluster: Cluster, message: SyncRequest, now: datetime) -> None:
    """Detects a restored database: the agent knows this hub at a later generation."""
    # The cluster was read earlier in this exchange; since then its generation can only have risen.
    if message.known_generation <= cluster.generation or message.known_hub_id != hub_id():
        return
    rewound = Cluster.objects.filter(pk=cluster.pk, generation__lt=message.known_generation, rewound_at=None)
    if not rewound.update(rewound_at=now, generation=F("generation")):
        return
    event_record(
        kind="cluster.rewound",
        message=f"The agent of {cluster.name} knows a later state than this database: it was restored from an older copy. "
        "Nothing starts there until an administrator has compared both and resumes the cluster.",
        at=now,
        severity=Severity.ERROR,
        cluster_id=cluster.pk,
        data={"agent_generation": message.known_generation},
    )


def _assignment(row: _ToldBox, gpus: Sequence[str], checks: CheckPolicy) -> Assignment:
    return Assignment(
        id=str(row.pk),
        gpr_id=str(row.gpr_id),
        gpr_name=row.gpr__name,
        slice=row.slice__name,
        slice_id=str(row.slice_id),
        namespaces=tuple(row.namespaces),
        node=row.node__name,
        node_uid=row.node__uid,
        gpus=tuple(gpus),
        epoch=row.epoch,
        desired=row.desired,
        run=row.run,
        gang_count=row.gang_count,
        not_before_s=row.starts_at.timestamp(),
        enter_by_s=row.enter_by_at.timestamp(),
        duration_s=float(row.duration_s),  # the agent's decoded type, so that both digests agree
        not_after_s=row.not_after_at.timestamp() if row.not_after_at else None,
        entry_steps=tuple(row.entry_steps),
        exit_steps=tuple(row.exit_steps),
        drain=Drain(grace_s=float(row.cluster__drain_grace_s), force_after_s=float(row.cluster__drain_force_after_s)),
        checks=checks,
        replaces=str(row.replaces_id or ""),
    )


def _repair_assignment(row: Repair, gpus: Sequence[str], checks: CheckPolicy) -> Assignment:
    cluster = row.node.cluster
    return Assignment(
        id=str(row.pk),
        gpr_id=str(row.pk),
        gpr_name=f"repair of {row.node.name}",
        slice="",
        slice_id=str(row.pk),  # no namespace has this label
        namespaces=(),
        node=row.node.name,
        node_uid=row.node.uid,
        gpus=tuple(gpus),
        epoch=row.epoch,
        desired=row.desired,
        gang_count=1,
        not_before_s=row.begun_at.timestamp(),
        enter_by_s=row.enter_by_at.timestamp(),
        duration_s=float(repairs.REPAIR_WITHIN_S),
        not_after_s=None,
        entry_steps=tuple(row.entry_steps),
        exit_steps=repairs.EXIT_STEPS,
        drain=Drain(grace_s=float(cluster.drain_grace_s), force_after_s=float(cluster.drain_force_after_s)),
        checks=checks,
        is_repair=True,
    )


def _moment(at_s: float | None) -> datetime | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)
