"""Makes every write to reservations. A GPU stays held until its agent reports the release, or an administrator forces it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any, Final
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from fast_update.fast import fast_update

from accounts.models import User
from core.errors import Conflict, NotFound
from core.written_sql import IdParam, TimeParam, WrittenQuery, rows_insert
from inventory.models import Gpu, Node, Reservation, ReservationState, ReservedGpu, is_later
from inventory.rows import windows_since
from inventory.services.checks import skipped_steps_by_node
from inventory.services.clusters import desired_set_changed
from journal.hints import TICK, hint, slice_topic
from journal.models import Severity
from journal.services import event_record
from protocol.assignments import Desired, Phase

FAILURE_MAX_CHARS = 200


@transaction.atomic
def reservations_hold(rows: Sequence[Reservation]) -> None:
    """Stores new reservations, each with as many GPUs of its node as its GPR asks for. Their cluster, epoch and state are set here.

    Raises Conflict when a node or enough of its GPUs are not available; nothing is held then.
    Node rows are locked in order of id: inserts that conflict in the exclusion constraint would otherwise deadlock.
    """
    nodes = _lock_nodes(rows)
    node_ids = sorted({row.node_id for row in rows})
    if not all(node_id in nodes and is_usable(nodes[node_id]) for node_id in node_ids):
        raise Conflict("A node of the plan is no longer usable.")
    taken = [nodes[node_id] for node_id in node_ids]
    _refuse_closed(rows, nodes)
    free = _free_gpus(node_ids, min(row.starts_at for row in rows))
    skipped = skipped_steps_by_node(cluster_ids={node.cluster_id for node in taken})
    reserved = []
    for row in rows:
        node = nodes[row.node_id]
        node.epoch += 1
        row.node, row.cluster_id, row.epoch, row.state = node, node.cluster_id, node.epoch, ReservationState.HELD
        no_step = skipped(node)
        row.entry_steps = [step for step in row.entry_steps if step not in no_step]
        row.exit_steps = [step for step in row.exit_steps if step not in no_step]
        reserved += [
            ReservedGpu(reservation=row, gpu_id=gpu_id, state=row.state, starts_at=row.starts_at, ends_at=row.ends_at)
            for gpu_id in _pick(node, free, row.gpr.gpus_per_node)
        ]
    fast_update(Node.objects.all(), taken, ["epoch"], None)
    try:
        rows_insert(rows)
        rows_insert(reserved, keyed=False)
    except IntegrityError:
        raise Conflict("A GPU of the plan is reserved by another.") from None
    for row in rows:
        if row.replaces_id is not None:
            _count_box(row.gpr_id)
    desired_set_changed(node.cluster_id for node in taken)


@transaction.atomic(savepoint=False)
def reservations_want_absent(*, gpr_ids: Collection[UUID]) -> None:
    """Tell the agents to begin the exits now."""
    changed = [row for row in _lock_held(gpr__in=gpr_ids) if row.desired != Desired.ABSENT]
    Reservation.objects.filter(pk__in=[row.pk for row in changed]).update(desired=Desired.ABSENT)
    desired_set_changed(row.cluster_id for row in changed)


@transaction.atomic
def reservation_want_absent(*, reservation: Reservation, ends_at: datetime) -> None:
    """One node leaves a box that goes on; its GPUs should be free at `ends_at`."""
    _lock_box(reservation)
    _take_out(reservation.pk, ends_at)
    _count_box(reservation.gpr_id)
    desired_set_changed([reservation.cluster_id])


def box_count(*, gpr_id: UUID) -> None:
    """Correct the node count that the agents know, after a forced release."""
    wanted = Reservation.objects.filter(gpr=gpr_id, state=ReservationState.HELD, desired=Desired.PRESENT)
    told = list(wanted.values_list("gang_count", flat=True))
    if set(told) <= {len(told)}:
        return
    with transaction.atomic():
        clusters = {row.cluster_id for row in _lock_held(gpr_id=gpr_id)}
        _count_box(gpr_id)
        desired_set_changed(clusters)


@transaction.atomic
def spare_join(*, spare: Reservation, ends_at: datetime, now: datetime) -> None:
    """The spare replaces its node, which leaves. Raises Conflict when the spare is not held any more."""
    replaced = Reservation.objects.get(spares=spare)
    _lock_box(replaced)
    if not Reservation.objects.filter(pk=spare.pk, state=ReservationState.HELD).update(joined_at=now):
        raise Conflict("The spare is not held any more.")
    _take_out(replaced.pk, ends_at)
    _count_box(spare.gpr_id)
    desired_set_changed([spare.cluster_id])


@dataclass(frozen=True, slots=True)
class BoxWindow:
    gpr_id: UUID
    not_after_at: datetime
    ends_at: datetime


@transaction.atomic
def reservations_set_windows(windows: Sequence[BoxWindow]) -> None:
    """Set the ends of running boxes, except for nodes that leave earlier.

    Raises Conflict when GPUs are reserved for another box by then.
    """
    of_gpr = {window.gpr_id: window for window in windows}
    rows = [row for row in _lock_held(gpr__in=list(of_gpr)) if row.desired == Desired.PRESENT]
    for row in rows:
        row.not_after_at, row.ends_at = of_gpr[row.gpr_id].not_after_at, of_gpr[row.gpr_id].ends_at
    try:
        fast_update(Reservation.objects.all(), rows, ["not_after_at", "ends_at"], None)
        _repeat(rows, ["ends_at"])
    except IntegrityError:
        raise Conflict("The GPUs are reserved for another from then on.") from None
    desired_set_changed(row.cluster_id for row in rows)


@dataclass(frozen=True, slots=True)
class ReservationReport:
    """Holds an agent's report. `active_at` and `exit_began_at` are its estimates, which are clamped to possible values."""

    reservation: Reservation
    phase: Phase
    active_at: datetime | None = None
    exit_began_at: datetime | None = None
    failure: str = ""


@transaction.atomic
def reservations_observe(reports: Sequence[ReservationReport], *, now: datetime) -> None:
    """Stores what the agent saw; only its RELEASED frees a node for the next box. The caller holds the lock of the agent's session."""
    # All nodes at once and in the common order of locks.
    node_ids = {report.reservation.node_id for report in reports}
    list(Node.objects.select_for_update().filter(pk__in=node_ids).order_by("pk").values_list("pk"))
    locked = Reservation.objects.select_for_update().filter(pk__in={report.reservation.pk for report in reports}).order_by("pk")
    rows = {row.pk: row for row in locked}
    known = [(row, report) for report in reports if (row := rows.get(report.reservation.pk)) is not None]
    changed = list({row.pk: row for row, report in known if _take(row, report, now)}.values())
    fast_update(Reservation.objects.all(), changed, ["phase", "failure", "active_at", "exit_began_at"], None)
    released = [row for row in changed if row.phase == Phase.RELEASED]
    _release([row for row in released if row.state == ReservationState.HELD], now)
    desired_set_changed(row.cluster_id for row in released)
    for slice_id in {row.slice_id for row in changed}:
        hint(slice_topic(slice_id))


def _take(row: Reservation, report: ReservationReport, now: datetime) -> bool:
    """Returns whether the row changed. After a forced release it stores only the phase."""
    if not is_news(row, report.phase, report.failure):
        return False
    if row.phase != report.phase and row.state == ReservationState.HELD:
        hint(TICK)
    row.phase = report.phase
    if row.state == ReservationState.HELD:
        row.failure = report.failure[:FAILURE_MAX_CHARS]
        if report.active_at is not None and row.active_at is None:
            row.active_at = min(max(report.active_at, row.starts_at), now)
        if report.exit_began_at is not None and row.exit_began_at is None:
            row.exit_began_at = min(max(report.exit_began_at, row.starts_at), now)
    return True


def reservations_of_agent(cluster_id: UUID | IdParam) -> QuerySet[Reservation]:
    """Returns all reservations that the agent has not released, even after a forced release."""
    return Reservation.objects.filter(cluster_id=cluster_id).exclude(phase=Phase.RELEASED).exclude(state=ReservationState.PLANNED)


def is_news(row: Reservation, phase: Phase, failure: str) -> bool:
    """Tell whether the phase is later or the failure is another."""
    if row.phase == phase:
        return row.state == ReservationState.HELD and row.failure != failure[:FAILURE_MAX_CHARS]
    return is_later(phase, Phase(row.phase))


@transaction.atomic
def reservation_force_release(*, reservation: Reservation, actor: User, why: str, now: datetime) -> None:
    """Raises Conflict when it is not held. The agent still has to confirm its release."""
    node = Node.objects.select_for_update().get(pk=reservation.node_id)
    row = Reservation.objects.select_for_update().get(pk=reservation.pk)
    if row.state != ReservationState.HELD:
        raise Conflict("This reservation is not held any more.")
    # The agent must not act on the old epoch.
    Node.objects.filter(pk=node.pk).update(epoch=node.epoch + 1)
    row.desired, row.failure = Desired.ABSENT, f"Released by force: {why}"[:FAILURE_MAX_CHARS]
    row.save(update_fields=["desired", "failure"])
    event_record(
        kind="reservation.force_released",
        message=f"Node {node.name} was released by force: {why}",
        at=now,
        actor=actor,
        severity=Severity.WARNING,
        gpr_id=row.gpr_id,
        slice_id=row.slice_id,
        node_id=node.pk,
        cluster_id=node.cluster_id,
    )
    _release([row], now)
    desired_set_changed([row.cluster_id])
    hint(TICK)


@transaction.atomic
def node_force_release(*, node: Node, reservation_ids: Sequence[UUID], actor: User, why: str, now: datetime) -> None:
    """Releases all of these reservations or none. Raises NotFound, Conflict."""
    rows = list(Reservation.objects.filter(node=node, pk__in=reservation_ids).order_by("pk"))
    if len(rows) != len(set(reservation_ids)):
        raise NotFound("reservation of this node")
    for row in rows:
        reservation_force_release(reservation=row, actor=actor, why=why, now=now)


@transaction.atomic
def reservations_set_namespaces(*, slice_id: UUID, cluster_id: UUID, namespaces: Sequence[str]) -> None:
    rows = _lock_held(slice_id=slice_id, cluster_id=cluster_id)
    if Reservation.objects.filter(pk__in=[row.pk for row in rows]).update(namespaces=list(namespaces)):
        desired_set_changed([cluster_id])


def is_usable(node: Node) -> bool:
    return node.gone_at is None and node.is_ready and node.cordoned_at is None


def _lock_nodes(rows: Sequence[Reservation]) -> dict[UUID, Node]:
    """Locks for a spare also the other nodes of its box, whose count changes."""
    wanted = {row.node_id for row in rows}
    for row in rows:
        if row.replaces_id is not None:
            of_box = Q(gpr=row.gpr_id, state=ReservationState.HELD) | Q(pk=row.replaces_id)
            wanted.update(Reservation.objects.filter(of_box).values_list("node", flat=True))
    return {node.pk: node for node in _LOCKED_NODES(wanted)}


def _refuse_closed(rows: Sequence[Reservation], nodes: Mapping[UUID, Node]) -> None:
    """Raises Conflict if a node closes before its box ends."""
    windows = windows_since(min(row.starts_at for row in rows))
    for row, window in product(rows, windows):
        is_closed = window.node_id == row.node_id or (window.node_id is None and window.cluster_id == nodes[row.node_id].cluster_id)
        if is_closed and window.starts_at < row.ends_at and row.starts_at < window.ends_at:
            raise Conflict("A node of the plan is closed for maintenance before the box would be over.")


def _lock_box(reservation: Reservation) -> None:
    held = Reservation.objects.filter(gpr=reservation.gpr_id, state=ReservationState.HELD)
    wanted = Q(pk__in=held.values("node")) | Q(pk=reservation.node_id)
    list(Node.objects.select_for_update().filter(wanted).order_by("pk").values_list("pk"))
    list(held.select_for_update().order_by("pk").values_list("pk"))


def _take_out(pk: UUID, ends_at: datetime) -> None:
    """Needs the box locked. A released reservation keeps its end."""
    row = Reservation.objects.get(pk=pk)
    row.desired = Desired.ABSENT
    if row.state == ReservationState.HELD:
        row.ends_at = max(min(row.ends_at, ends_at), row.starts_at + timedelta(microseconds=1))
        ReservedGpu.objects.filter(reservation=row).update(ends_at=row.ends_at)
    row.save(update_fields=["desired", "ends_at"])


def _count_box(gpr_id: UUID) -> None:
    """Needs the box locked."""
    wanted = Reservation.objects.filter(gpr=gpr_id, state=ReservationState.HELD, desired=Desired.PRESENT)
    wanted.update(gang_count=wanted.count())


def _lock_held(**whose: Any) -> list[Reservation]:
    held = Reservation.objects.filter(**whose, state=ReservationState.HELD)
    # A subquery, since a join would lock a node's reservation before the next node, which can deadlock.
    list(Node.objects.select_for_update().filter(pk__in=held.values("node")).order_by("pk").values_list("pk"))
    return list(held.select_for_update().order_by("pk"))


def _free_gpus(node_ids: Collection[UUID], starts_at: datetime) -> dict[UUID, list[UUID]]:
    free: dict[UUID, list[UUID]] = defaultdict(list)
    for node_id, gpu_id in _FREE_GPUS(node_ids, starts_at=starts_at):
        free[node_id].append(gpu_id)
    return free


def _pick(node: Node, free: dict[UUID, list[UUID]], gpus_per_node: int | None) -> list[UUID]:
    there, wanted = free[node.pk], node.gpu_count if gpus_per_node is None else gpus_per_node
    if len(there) < wanted:
        raise Conflict("A node of the plan has too few free GPUs.")
    free[node.pk] = there[wanted:]
    return there[:wanted]


_LOCKED_NODES: Final = WrittenQuery(Node.objects.select_for_update().order_by("pk"))
# A GPU that was released after the planned start is skipped: the schedule would show two holders at once.
_TAKEN: Final = Q(state=ReservationState.HELD) | Q(reservation__released_at__gt=TimeParam("starts_at"))
_HELD_GPUS: Final = ReservedGpu.objects.filter(_TAKEN, gpu=OuterRef("pk"))
_FREE: Final = Gpu.objects.filter(is_healthy=True, gone_at=None).exclude(Exists(_HELD_GPUS)).order_by("index")
_FREE_GPUS: Final = WrittenQuery(_FREE.values_list("node", "pk"), key="node__id")


def _release(rows: Sequence[Reservation], now: datetime) -> None:
    """Sets `ends_at` to the real end."""
    for row in rows:
        row.state, row.released_at = ReservationState.RELEASED, now
        row.ends_at = max(now, row.starts_at + timedelta(microseconds=1))
    _repeat(rows, ["state", "ends_at"])
    fast_update(Reservation.objects.all(), rows, ["state", "released_at", "ends_at"], None)


def _repeat(rows: Sequence[Reservation], fields: Sequence[str]) -> None:
    """Copy fields to the ReservedGpu rows."""
    of_id = {row.pk: row for row in rows}
    gpus = list(ReservedGpu.objects.filter(reservation__in=of_id).order_by("pk"))
    for gpu in gpus:
        for name in fields:
            setattr(gpu, name, getattr(of_id[gpu.reservation_id], name))
    fast_update(ReservedGpu.objects.all(), gpus, fields, None)
