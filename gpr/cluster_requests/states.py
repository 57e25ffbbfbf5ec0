"""Computes the states that a cluster's agent writes into the status of its objects. Read at every sync."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from core.database.rare_rows import rare_rows
from core.words import plural, utc
from gpr.evictions.services import WHY, notices_of
from gpr.jobs.selectors import STATE
from gpr.models import ENDED, PROVISIONED, ClusterRequestRecord, EndReason, Gpr, GprState, Job, VictimKind
from gpr.queue.explanations import sentences_for_slices
from gpr.requests.end_reasons import ending
from gpr.requests.selectors import start_positions
from inventory.models import Reservation, ReservationState
from journal.models import Event
from protocol.tenancy.cluster_requests import CLUSTER_REQUEST_TOLD_S, ClusterRequestState, JobProgress
from slices.models import Namespace

S = GprState


def cluster_request_states(cluster_id: UUID, *, now: datetime) -> tuple[ClusterRequestState, ...]:
    """Open and recently ended requests, ordered by uid. Runs at most ten queries."""
    rows = list(_open_rows(cluster_id, now))
    if not rows:
        return ()
    # A workspace that got the namespace later may not see GPRs of the previous one.
    bound = dict(Namespace.objects.filter(cluster=cluster_id).values_list("name", "slice"))
    rows = [row for row in rows if bound.get(row.namespace) in {None, row.gpr.slice_id}]
    gprs = [row.gpr for row in rows]
    positions, held, jobs = start_positions(gprs), _held(gprs), _jobs([row.gpr for row in rows if "job" in row.asked])
    messages = _messages(gprs, held, jobs)
    return tuple(
        _state_of(row, positions.get(row.gpr_id), held.get(row.gpr_id, ()), jobs.get(row.gpr_id), messages[row.gpr_id])
        for row in sorted(rows, key=lambda row: row.uid)
    )


def _open_rows(cluster_id: UUID, now: datetime) -> Sequence[ClusterRequestRecord]:
    # Requests that ended long ago are marked, and not read again.
    told = ClusterRequestRecord.objects.filter(cluster=cluster_id, is_told=True)
    rows = rare_rows(told.select_related("gpr__slice", "gpr__promise"))
    since = now - timedelta(seconds=CLUSTER_REQUEST_TOLD_S)
    over = {row.pk for row in rows if row.gpr.ended_at is not None and row.gpr.ended_at <= since}
    if over:
        ClusterRequestRecord.objects.filter(pk__in=over).update(is_told=False)
    return [row for row in rows if row.pk not in over]


def _state_of(row: ClusterRequestRecord, position: int | None, held: Sequence[Reservation], job: Any, message: str) -> ClusterRequestState:
    gpr, promise = row.gpr, row.gpr.current_promise
    return ClusterRequestState(
        id=row.uid,
        gpr_id=str(gpr.pk),
        state=gpr.state,
        is_auto=row.is_auto,
        is_ended=gpr.is_ended,
        end_reason=gpr.end_reason,
        message=message,
        position=position,
        promised_start_s=_seconds(promise.promised_start_at if promise else None),
        estimated_start_s=_seconds(gpr.planned_start_at),
        started_s=_seconds(gpr.active_at),
        ends_s=_seconds(gpr.ended_at or gpr.ends_at),
        nodes=tuple(reservation.node.name for reservation in held),
        filed_s=_seconds(gpr.created_at),
        job=JobProgress(state=job.state, pods_running=job.pods_running) if job else None,
    )


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _held(gprs: Sequence[Gpr]) -> dict[UUID, list[Reservation]]:
    found: dict[UUID, list[Reservation]] = defaultdict(list)
    holders = [gpr.pk for gpr in gprs if gpr.state in PROVISIONED]
    if holders:
        rows = Reservation.objects.filter(gpr__in=holders, state=ReservationState.HELD).select_related("node")
        for row in rows.order_by("node__name"):
            found[row.gpr_id].append(row)
    return found


def _jobs(gprs: Sequence[Gpr]) -> dict[UUID, Any]:
    """Return the job of each GPR that has one, annotated with its state."""
    return {job.gpr_id: job for job in Job.objects.filter(gpr__in=gprs).annotate(state=STATE)} if gprs else {}


def _messages(gprs: Sequence[Gpr], held: Mapping[UUID, Sequence[Reservation]], jobs: Mapping[UUID, Job]) -> dict[UUID, str]:
    """Returns one sentence for each request: its wait, its progress, or its end."""
    waits, notices, ends = sentences_for_slices(gprs), notices_of(gprs), _end_events(gprs)
    messages: dict[UUID, str] = {}
    for gpr in gprs:
        match gpr.state:
            case S.PENDING_APPROVAL:
                text = f"It waits for an administrator to approve it. {' '.join(gpr.approval_reasons)}".strip()
            case S.QUEUED:
                text = waits.get(gpr.pk, "It is about to be planned.")
            case S.PROVISIONING:
                failed = [f"{row.node.name}: {row.failure}" for row in held.get(gpr.pk, ()) if row.failure]
                text = failed[0] if failed else f"Checks run on {plural(gpr.nodes, 'node')}; the clock starts when all have passed."
            case S.ACTIVE if (notice := notices.get(gpr.pk)) is not None:
                text = f"It will be evicted at {utc(notice.ends_at)}: {WHY[VictimKind(notice.kind)]}. Save its work."
            case S.ACTIVE if gpr.pk in jobs and jobs[gpr.pk].message:
                text = jobs[gpr.pk].message
            case S.ACTIVE:
                text = f"Its nodes take pods of the workspace until {utc(gpr.ends_at)}." if gpr.ends_at else ""
            case S.EXITING:
                text = waits.get(gpr.pk) or f"{EndReason(gpr.end_reason).label}; its nodes are being taken back."
            case _:
                why = jobs[gpr.pk].message if gpr.pk in jobs and jobs[gpr.pk].outcome else ""
                text = f"{ending(gpr, ends.get(gpr.pk))} {why}".strip()
        messages[gpr.pk] = text
    return messages


def _end_events(gprs: Sequence[Gpr]) -> dict[UUID, Event]:
    """Returns the last Event of each ended GPR that says who ended it and why."""
    ids = [gpr.pk for gpr in gprs if gpr.state in ENDED]
    if not ids:
        return {}
    rows = Event.objects.filter(kind="gpr.transition", new__in=[S.EXITING, S.CANCELED, S.REJECTED], gpr_id__in=ids)
    return {event.gpr_id: event for event in rows.select_related("actor").order_by("id") if event.gpr_id}
