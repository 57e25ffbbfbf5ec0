"""Every write to repairs: tries to repair and check nodes that are set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction

from accounts.models import User
from core.errors import Conflict
from inventory.models import AgentSession, Node, Repair, Reservation, ReservationState, is_later
from inventory.services.checks import skipped_steps_by_node
from inventory.services.clusters import desired_set_changed
from protocol.assignments import Desired, Phase
from protocol.nodes.steps import GANG_STEPS, EntryStep, ExitStep, RepairStep

# A reboot of a large server takes a quarter of an hour, and may be tried twice.
REPAIR_WITHIN_S: Final = 3600
EXIT_STEPS: Final = (ExitStep.DRAIN, ExitStep.NODE_CLEAN)
FAILURE_MAX_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class RepairReport:
    repair: Repair
    phase: Phase
    failure: str = ""


def repair_steps(node: Node, action: str) -> list[str]:
    """Returns the action, then the entry checks that the node's policy asks for."""
    skipped = skipped_steps_by_node(cluster_ids={node.cluster_id})(node)
    checks = [step for step in EntryStep if step not in skipped and step not in GANG_STEPS]
    return [*([action] if action else []), *checks]


def why_no_repair(node: Node) -> str:
    """Says why no repair can begin now, or returns ""."""
    if node.gone_at is not None:
        return "The node is gone from its cluster."
    if node.cordoned_at is None:
        return "The node is not set aside."
    if Reservation.objects.filter(node=node, state=ReservationState.HELD).exists():
        return "A request still holds the node."
    if Repair.objects.filter(node=node, released_at=None).exists():
        return "Its last repair is not over."
    session = AgentSession.objects.filter(pk=node.cluster_id).first()
    if session is None or not set(RepairStep) <= set(session.capabilities):
        return "The agent of its cluster is too old to repair nodes, or has not joined."
    return ""


@transaction.atomic
def repair_begin(*, node: Node, case_id: UUID, action: str, actor: User | None, now: datetime) -> Repair:
    """Raises Conflict with the reason why it cannot begin."""
    node = Node.objects.select_for_update().get(pk=node.pk)
    if why := why_no_repair(node):
        raise Conflict(why)
    node.epoch += 1
    node.save(update_fields=["epoch"])
    repair = Repair.objects.create(
        case_id=case_id,
        node=node,
        epoch=node.epoch,
        action=action,
        entry_steps=repair_steps(node, action),
        begun_at=now,
        begun_by=actor,
        enter_by_at=now + timedelta(seconds=REPAIR_WITHIN_S),
    )
    desired_set_changed([node.cluster_id])
    return repair


@transaction.atomic
def repair_end(*, repair: Repair) -> None:
    """Tell the agent to leave the node."""
    if Repair.objects.filter(pk=repair.pk, desired=Desired.PRESENT).update(desired=Desired.ABSENT):
        desired_set_changed([repair.node.cluster_id])


@transaction.atomic
def repairs_observe(reports: Sequence[RepairReport], *, now: datetime) -> None:
    """Stores what the agent saw. The caller holds the lock of the agent's session."""
    locked = Repair.objects.select_for_update(of=("self",)).filter(pk__in={report.repair.pk for report in reports})
    rows = {row.pk: row for row in locked.select_related("node").order_by("pk")}
    for report in reports:
        row = rows.get(report.repair.pk)
        if row is None or not is_news(row, report.phase, report.failure):
            continue
        row.phase, row.failure = report.phase, report.failure[:FAILURE_MAX_CHARS] or row.failure
        if row.phase == Phase.ENTERED and row.passed_at is None:
            row.passed_at = now
        if row.phase == Phase.RELEASED:
            row.released_at = now
        row.save(update_fields=["phase", "failure", "passed_at", "released_at"])
    desired_set_changed(row.node.cluster_id for row in rows.values() if row.released_at is not None)


def is_news(row: Repair, phase: Phase, failure: str) -> bool:
    has_other_failure = bool(failure) and row.failure != failure[:FAILURE_MAX_CHARS]
    return has_other_failure if row.phase == phase else is_later(phase, Phase(row.phase))
