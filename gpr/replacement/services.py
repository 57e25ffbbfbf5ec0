"""Replaces failing nodes of running boxes: a spare is checked and opened before the failing node is drained.

The end of the box stays, and no promise moves. The spare is a reservation of the same run that names the other in `replaces`; it is no
part of the box until `joined_at`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Prefetch, Q, QuerySet

from accounts.models import User
from core.errors import Conflict, IllegalTransition, NotFound, StaleState
from core.words import are, duration_exact, plural
from core.written_sql import TimeParam, WrittenQuery
from gpr.allocation.absence import was_just_away
from gpr.allocation.live import snapshot_load
from gpr.allocation.pools import PoolKey
from gpr.allocation.snapshot import Loaded, nodes_free_at
from gpr.allocation.starts import namespaces_of, reservation_of, starting_cluster
from gpr.allocation.stored_plan import plan_lock
from gpr.models import Gpr, GprState
from inventory.models import CordonCause, Node, Reservation, ReservationState, ReservedGpu
from inventory.services.nodes import node_set_aside
from inventory.services.reservations import box_count, reservation_want_absent, reservations_hold, spare_join
from journal.guard import set_aside_on_error
from journal.hints import TICK, hint
from journal.models import Severity
from journal.services import event_record
from planner.sharing.spares import NoSpareReason, SpareRequest, spare_for
from planner.snapshot import Within
from protocol.assignments import Desired, Phase

# The pause after a search without result, since each search costs some plans.
SEEK_EVERY_S: Final = 15
# The agent itself gives up an entry at its time-out. The hub does so only after this much more silence.
SILENCE_S: Final = 30
WHY_MAX_CHARS: Final = 200

NO_SPARE: Final = {
    NoSpareReason.NONE_FREE: "No other node of its kind is free until its end.",
    NoSpareReason.NOT_NEAR: "No node of its kind that is free until its end is near enough to its other nodes.",
    NoSpareReason.PROMISED: "The free nodes of its kind are promised to others before its end.",
    NoSpareReason.WOULD_EVICT: "Others are entitled to the free nodes of its kind, so it would evict a request.",
}


@dataclass(frozen=True, slots=True)
class Loss:
    why: str


# -- what a box is made of ---------------------------------------------------------------------------------------------


def box_of(rows: Sequence[Reservation]) -> list[Reservation]:
    """Returns the reservations that make up the box: no spares on their way, no replaced nodes."""
    replaced = {row.replaces_id for row in rows if row.joined_at is not None}
    return [row for row in rows if row.pk not in replaced and (row.replaces_id is None or row.joined_at is not None)]


def spares_of(rows: Sequence[Reservation]) -> list[Reservation]:
    return [row for row in rows if row.replaces_id is not None and row.joined_at is None and row.desired == Desired.PRESENT]


def loss_of(gpr: Gpr, rows: Sequence[Reservation], now: datetime) -> Loss | None:
    """Returns why the box cannot go on, as no spare came in time; None while it can."""
    box, coming = box_of(rows), {row.replaces_id for row in spares_of(rows)}
    gone = [row for row in box if (row.node.gone_at is not None or row.is_given_up) and row.pk not in coming]
    for row in gone:
        tried_count = sum(other.replaces_id == row.pk for other in rows)
        if why := _why_no_more(gpr, tried_count, now):
            return Loss(f"No spare took its place. {why}")
        since = max(filter(None, [row.failing_at, row.node.gone_at]), default=now)
        has_waited = row.failing_at is not None and (now - since).total_seconds() >= settings.EGS_SPARE_WAIT_S
        is_all_gone = len(gone) == len(box) and row.spare_sought_at is not None
        if has_waited or is_all_gone:
            return Loss(f"No spare took its place. {row.spare_refusal}")
    return None


# -- the tick ----------------------------------------------------------------------------------------------------------


def replacements_review(*, now: datetime) -> None:
    """Record failing nodes and look for spares. Runs one query when all nodes are well."""
    if settings.EGS_SPARE_TRIES_MAX < 1:
        return
    grace_at = now - timedelta(seconds=settings.EGS_SPARE_GRACE_S)
    for row in _failing_rows(grace_at) if _FAILING(grace=grace_at) else ():
        failed = f"The replacement of node {row.node.name} could not be reviewed"
        with set_aside_on_error("replacement_review", failed, now=now, gpr_id=row.gpr_id, node_id=row.node_id):
            _review(row, now)


def spare_is_due(spare: Reservation, now: datetime) -> bool:
    """Tells whether the spare joins or is given up now."""
    return spare.phase == Phase.ACTIVE or bool(_why_given_up(spare, now))


def spare_advance(*, gpr: Gpr, spare: Reservation, now: datetime) -> None:
    if spare.phase == Phase.ACTIVE:
        _join(gpr, spare, now)
    else:
        _drop(gpr, spare, _why_given_up(spare, now), now)


@transaction.atomic
def node_replace(*, gpr: Gpr, node_id: UUID, actor: User, why: str, now: datetime) -> None:
    """Replace a node for an administrator, also right after a search that found no spare.

    Raises NotFound, IllegalTransition, or Conflict with the reason why there is no spare.
    """
    plan_lock()
    rows = list(Reservation.objects.filter(gpr=gpr, run=gpr.run).select_related("node"))
    row = next((row for row in box_of(rows) if row.node_id == node_id), None)
    if row is None:
        raise NotFound("node of this GPR")
    if any(spare.replaces_id == row.pk for spare in spares_of(rows)):
        raise Conflict(f"A spare for {row.node.name} is on its way already.")
    _refuse_inactive(gpr)
    row.gpr = gpr
    if refusal := _why_no_more(gpr, 0, now):
        raise Conflict(refusal)
    _seek(row, now)
    asked = {"failing_at": row.failing_at or now, "failing_why": why[:WHY_MAX_CHARS], "replacement_asked_by": actor}
    Reservation.objects.filter(pk=row.pk).update(**asked)
    _record(row, "gpr.replacement_asked", f"Node {row.node.name} of {gpr.name} is to be replaced: {why}", now, actor=actor)


@transaction.atomic
def boxes_replace(*, node: Node, actor: User, why: str, now: datetime) -> None:
    """Calls `node_replace` for every box on this node, all or none. Raises Conflict if there is none."""
    plan_lock()
    rows = Reservation.objects.filter(node=node, state=ReservationState.HELD, desired=Desired.PRESENT, gpr__state=GprState.ACTIVE)
    gprs = [row.gpr for row in rows.exclude(replaces__isnull=False, joined_at=None).select_related("gpr").order_by("pk")]
    if not gprs:
        raise Conflict(f"No GPR runs on {node.name}: there is nothing to replace.")
    for gpr in gprs:
        node_replace(gpr=gpr, node_id=node.pk, actor=actor, why=why, now=now)


# -- what fails --------------------------------------------------------------------------------------------------------


def _failing_rows(grace_at: datetime | TimeParam) -> QuerySet[Reservation]:
    # Members of running boxes that fail or are to be replaced, also those that were given up and are free by now.
    bad = Q(gpu__is_healthy=False, gpu__node__sick_gpus_at__lte=grace_at) | Q(gpu__gone_at__lte=grace_at)
    fails = Q(node__gone_at__isnull=False) | Q(node__broken_at__lte=grace_at) | Q(node__faulty_at__isnull=False)
    fails |= Q(pk__in=ReservedGpu.objects.filter(bad, state=ReservationState.HELD).values("reservation"))
    is_member = Q(replaces=None) | Q(joined_at__isnull=False)
    rows = Reservation.objects.filter(is_member, gpr__state=GprState.ACTIVE, run=F("gpr__run"))
    rows = rows.filter(Q(failing_at__isnull=False) | fails & Q(state=ReservationState.HELD))
    rows = rows.exclude(Exists(Reservation.objects.filter(replaces=OuterRef("pk"), joined_at__isnull=False)))
    gpus = Prefetch("gpus", queryset=ReservedGpu.objects.select_related("gpu"))
    return rows.select_related("gpr", "node").prefetch_related(gpus, "spares").order_by("failing_at", "pk")


_FAILING: Final = WrittenQuery(_failing_rows(TimeParam("grace")).order_by().values_list("pk")[:1])


def _trouble_of(row: Reservation, now: datetime) -> str:
    # Part of a sentence; "" when the node is well, or unwell for less than the grace time, as when a driver restarts.
    node = row.node
    if node.gone_at is not None:
        return "it is gone from the cluster"
    grace_at = now - timedelta(seconds=settings.EGS_SPARE_GRACE_S)
    if node.broken_at is not None and node.broken_at <= grace_at:
        return "it is not ready any more"
    if node.faulty_at is not None:
        # Others may hold the GPU that has the fault: whose it is tells a box of the whole node alone.
        is_whole = len(row.gpus.all()) == node.gpu_count and node.cordon_cause == CordonCause.FAULT
        return node.cordon_reason.rstrip(".") if is_whole else "its hardware has a fault"
    has_sick = node.sick_gpus_at is not None and node.sick_gpus_at <= grace_at
    gpus = [reserved.gpu for reserved in row.gpus.all()]
    bad = [gpu for gpu in gpus if (gpu.gone_at is not None and gpu.gone_at <= grace_at) or (has_sick and not gpu.is_healthy)]
    return f"{plural(len(bad), 'GPU')} of it {are(len(bad))} sick or gone" if bad else ""


def _review(row: Reservation, now: datetime) -> None:
    trouble, is_coming = _trouble_of(row, now), any(spare.is_coming for spare in row.spares.all())
    if row.failing_at is None:
        _record_failing(row, trouble, now)
    elif not trouble and not is_coming and row.replacement_asked_by_id is None and row.desired == Desired.PRESENT:
        _record_recovery(row, now)
        return
    if row.node.gone_at is not None and row.desired == Desired.PRESENT:
        # Nothing runs there any more, so the spare need not wait for it.
        reservation_want_absent(reservation=row, ends_at=nodes_free_at(now))
    box_count(gpr_id=row.gpr_id)
    if is_coming:
        return
    if why := _why_no_more(row.gpr, len(row.spares.all()), now):
        _record_refusal(row, why, now)
    elif row.spare_sought_at is None or (now - row.spare_sought_at).total_seconds() >= SEEK_EVERY_S:
        try:
            _seek(row, now)
        except Conflict as none:
            _record_refusal(row, none.detail, now)


@transaction.atomic
def _record_failing(row: Reservation, trouble: str, now: datetime) -> None:
    why = f"{trouble[:1].upper()}{trouble[1:]}."
    if not Reservation.objects.filter(pk=row.pk, failing_at=None).update(failing_at=now, failing_why=why):
        raise StaleState("It was noted meanwhile.")
    row.failing_at = now
    text = f"Node {row.node.name} of {row.gpr.name} fails: {trouble}. A spare is looked for; its end stays."
    _record(row, "gpr.node_failing", text, now, severity=Severity.WARNING)


@transaction.atomic
def _record_recovery(row: Reservation, now: datetime) -> None:
    Reservation.objects.filter(pk=row.pk).update(failing_at=None, failing_why="", spare_sought_at=None, spare_refusal="")
    _record(row, "gpr.node_recovered", f"Node {row.node.name} of {row.gpr.name} is well again; it stays.", now)


@transaction.atomic
def _record_refusal(row: Reservation, why: str, now: datetime) -> None:
    # An Event is written only when the reason changes.
    why = why[:WHY_MAX_CHARS]
    Reservation.objects.filter(pk=row.pk).update(spare_sought_at=now, spare_refusal=why)
    if why != row.spare_refusal:
        text = f"There is no spare for node {row.node.name} of {row.gpr.name}. {why}"
        _record(row, "gpr.replacement_failed", text, now, severity=Severity.WARNING)


def _why_no_more(gpr: Gpr, tried_count: int, now: datetime) -> str:
    if gpr.ends_at is None or (gpr.ends_at - now).total_seconds() < settings.EGS_SPARE_LEAST_S:
        return f"It ends within {duration_exact(settings.EGS_SPARE_LEAST_S)}: a spare would hardly be ready before."
    if tried_count >= settings.EGS_SPARE_TRIES_MAX:
        return f"{plural(tried_count, 'spare')} failed on the way in." if tried_count else "Spares are switched off."
    return ""


# -- the spare ---------------------------------------------------------------------------------------------------------


@transaction.atomic
def _seek(row: Reservation, now: datetime) -> None:
    """Raises Conflict without a spare, IllegalTransition or StaleState when the box changed."""
    plan_lock()
    gpr = Gpr.objects.select_for_update(of=("self",)).select_related("slice", "cluster").get(pk=row.gpr_id)
    _refuse_inactive(gpr)
    if gpr.ends_at is None or gpr.cluster is None or gpr.run != row.run:
        raise StaleState("It was started anew since.")
    starting_cluster(gpr.cluster.name, now)
    loaded = snapshot_load(now=now)
    answer = spare_for(loaded.snapshot, _wanted(gpr, row, loaded))
    if answer.why is not None:
        raise Conflict(NO_SPARE[answer.why])
    times = {"starts_at": now, "ends_at": nodes_free_at(gpr.ends_at), "not_after_at": gpr.ends_at}
    spare = reservation_of(gpr, UUID(answer.node), namespaces_of([gpr.slice_id]), **times, replaces_id=row.pk)
    reservations_hold([spare])
    text = f"Node {spare.node.name} is being prepared as a spare for {row.node.name} of {gpr.name}."
    _record(spare, "gpr.spare_entering", text, now)
    hint(TICK)


def _refuse_inactive(gpr: Gpr) -> None:
    """Raises IllegalTransition."""
    if gpr.state != GprState.ACTIVE:
        raise IllegalTransition(f"Only an active GPR gets another node; this one is {gpr.get_state_display().lower()}.", state=gpr.state)


def _wanted(gpr: Gpr, row: Reservation, loaded: Loaded) -> SpareRequest:
    gpus = [reserved.gpu for reserved in ReservedGpu.objects.filter(reservation=row).select_related("gpu")]
    memory_gib = min((gpu.memory_gib for gpu in gpus), default=0)
    tried = Reservation.objects.filter(replaces=row.pk).values_list("node", flat=True)
    return SpareRequest(
        box=str(gpr.pk),
        leaving=str(row.node_id),
        pools=tuple(id_ for id_, key in loaded.places.keys.items() if _is_like(key, row, memory_gib, loaded)),
        gpu_count=len(gpus),
        within=Within(gpr.within),
        barred=frozenset({str(row.node_id), *map(str, tried)}),
    )


def _is_like(key: PoolKey, row: Reservation, memory_gib: int, loaded: Loaded) -> bool:
    node, cluster = row.node, loaded.places.cluster_names[row.cluster_id]
    is_kind = (key.cluster, key.shape, key.rdma) == (cluster, node.shape, node.rdma) and key.gpu_memory_gib >= memory_gib
    return is_kind and not key.supply and key.node_type == node.node_type


@transaction.atomic
def _join(gpr: Gpr, spare: Reservation, now: datetime) -> None:
    """Raises StaleState when the box is not active."""
    _lock_active(gpr)
    replaced = _replaced_by(spare)
    spare_join(spare=spare, ends_at=nodes_free_at(now), now=now)
    if replaced.node.gone_at is None:
        why = f"Replaced in {gpr.name}. {replaced.failing_why}"[:WHY_MAX_CHARS]
        cause = CordonCause.PERSON if replaced.replacement_asked_by_id else CordonCause.LOST
        node_set_aside(node=replaced.node, why=why, now=now, cause=cause)
    text = f"Node {spare.node.name} took the place of {replaced.node.name} in {gpr.name}. {replaced.failing_why} Its end stays."
    _record(spare, "gpr.node_replaced", text, now, data={"replaced": replaced.node.name, "by": spare.node.name})
    hint(TICK)


@transaction.atomic
def _drop(gpr: Gpr, spare: Reservation, why: str, now: datetime) -> None:
    # The next spare is looked for at once.
    _lock_active(gpr)
    replaced = _replaced_by(spare)
    reservation_want_absent(reservation=spare, ends_at=nodes_free_at(now))
    text = f"Spare {spare.node.name} did not take the place of {replaced.node.name} in {gpr.name}: {why}"
    _record(spare, "gpr.replacement_failed", text, now, severity=Severity.WARNING)
    hint(TICK)


def _replaced_by(spare: Reservation) -> Reservation:
    return Reservation.objects.select_related("node").get(spares=spare)


def _lock_active(gpr: Gpr) -> None:
    if Gpr.objects.select_for_update().get(pk=gpr.pk).state != GprState.ACTIVE:
        raise StaleState("It is not active any more.")


def _why_given_up(spare: Reservation, now: datetime) -> str:
    if spare.node.gone_at is not None:
        return "it is gone from the cluster."
    if spare.phase in {Phase.FAILED, Phase.EXITING, Phase.RELEASED} or spare.state == ReservationState.RELEASED:
        return spare.failure or "it left."
    is_silent = now > spare.enter_by_at + timedelta(seconds=SILENCE_S) and not was_just_away(now=now)
    return "it was not ready in time." if is_silent else ""


def _record(
    row: Reservation,
    kind: str,
    text: str,
    now: datetime,
    *,
    severity: Severity = Severity.INFO,
    actor: User | None = None,
    data: dict[str, Any] | None = None,
) -> None:
    event_record(
        kind=kind,
        message=text,
        at=now,
        actor=actor,
        severity=severity,
        gpr_id=row.gpr_id,
        slice_id=row.slice_id,
        node_id=row.node_id,
        cluster_id=row.cluster_id,
        data=data,
    )
