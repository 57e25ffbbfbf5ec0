from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from core.words import duration_exact, utc
from gpr.allocation.absence import was_just_away
from gpr.models import Gpr, GprState
from inventory.models import AgentSession
from inventory.selectors import cluster_is_silent
from journal.models import Event, Severity
from journal.notices.periodic import Pace
from journal.services import event_record
from slices.notices import owners_of

ENDS_SOON, RESTART, UNDECIDED = "gpr.ends_soon", "gpr.restart_promised", "gpr.undecided"
REMINDED_SHARE: Final = 0.25  # of the time for a decision is left when the approvers are reminded
_REMINDING: Final = Pace(timedelta(seconds=30))
# The next plan promises a start to what was taken back; after this long it is no news.
RESTART_NEWS: Final = timedelta(minutes=10)


def requesters_of(events: Sequence[Event]) -> dict[int, list[UUID]]:
    """Returns the owner of each Event's GPR; where a program is, which reads nothing, those of its workspace. Runs up to two queries."""
    rows = Gpr.objects.filter(pk__in={event.gpr_id for event in events}).values_list("pk", "owner", "owner__is_service")
    owners = {pk: owner for pk, owner, is_service in rows if not is_service}
    found = {event.pk: [owners[event.gpr_id]] for event in events if event.gpr_id in owners}
    programs = {pk for pk, _, is_service in rows if is_service}
    return found | (owners_of([event for event in events if event.gpr_id in programs]) if programs else {})


def ends_soon_record(*, now: datetime) -> None:
    """Tell once of each box that ends within the warning time, and again after an extension. Runs one query when there is none.

    A box that is no longer than that is not told of: its start was.
    """
    warning = timedelta(seconds=settings.EGS_END_WARNING_S)
    ending = Gpr.objects.filter(state=GprState.ACTIVE, ends_at__gt=now, ends_at__lte=now + warning, active_at__lt=F("ends_at") - warning)
    ends = [(pk, ends_at) for pk, ends_at in ending.values_list("pk", "ends_at") if ends_at is not None]
    told = set(Event.objects.filter(kind=ENDS_SOON, gpr_id__in=dict(ends)).values_list("gpr_id", "new")) if ends else set()
    for pk, ends_at in ends:
        if (pk, utc(ends_at)) not in told:
            _record_end(pk, ends_at, now)


@transaction.atomic
def _record_end(pk: UUID, ends_at: datetime, now: datetime) -> None:
    # Another process may be about to record the same.
    gpr = Gpr.objects.select_for_update().filter(pk=pk, state=GprState.ACTIVE, ends_at=ends_at).first()
    if gpr is None or Event.objects.filter(kind=ENDS_SOON, gpr_id=pk, new=utc(ends_at)).exists():
        return
    left_s = int((ends_at - now).total_seconds())
    event_record(
        kind=ENDS_SOON,
        message=f"{gpr.name} ends at {utc(ends_at)}, in {duration_exact(left_s)}. Save its work, or extend it.",
        at=now,
        severity=Severity.WARNING,
        new=utc(ends_at),
        gpr_id=pk,
        slice_id=gpr.slice_id,
        cluster_id=gpr.cluster_id,
    )


def undecided_record(*, now: datetime) -> None:
    """Remind once of each request on which nobody has decided after three quarters of the time for it, and again after an edit."""
    if not _REMINDING.is_due(now):
        return
    rows = Gpr.objects.filter(state=GprState.PENDING_APPROVAL, decide_by_at__gt=now)
    waiting = rows.values_list("pk", "decide_by_at", "slice__decide_within_s")
    due = {pk: at for pk, at, within_s in waiting if at is not None and at - now <= REMINDED_SHARE * timedelta(seconds=within_s)}
    told = set(Event.objects.filter(kind=UNDECIDED, gpr_id__in=due).values_list("gpr_id", "new")) if due else set()
    for pk, decide_by_at in due.items():
        if (pk, utc(decide_by_at)) not in told:
            _record_undecided(pk, decide_by_at, now)


@transaction.atomic
def _record_undecided(pk: UUID, decide_by_at: datetime, now: datetime) -> None:
    # Another process may be about to record the same.
    gpr = Gpr.objects.select_for_update().filter(pk=pk, state=GprState.PENDING_APPROVAL, decide_by_at=decide_by_at).first()
    if gpr is None or Event.objects.filter(kind=UNDECIDED, gpr_id=pk, new=utc(decide_by_at)).exists():
        return
    left = duration_exact(int((decide_by_at - now).total_seconds()))
    event_record(
        kind=UNDECIDED,
        message=f"{gpr.name} still waits for approval. If nobody decides by {utc(decide_by_at)}, in {left}, it is rejected.",
        at=now,
        severity=Severity.WARNING,
        new=utc(decide_by_at),
        gpr_id=pk,
        slice_id=gpr.slice_id,
    )


def restarts_record(*, now: datetime) -> None:
    """Tell once of each GPR that waits again when it is back, as soon as it has a promise. Runs one query when there is none."""
    since_at = now - RESTART_NEWS
    again = Gpr.objects.filter(state=GprState.QUEUED, run__gt=0, state_changed_at__gt=since_at, promise__isnull=False)
    told = None
    for gpr in again.select_related("promise"):
        if told is None:
            told = dict(Event.objects.filter(kind=RESTART, at__gt=since_at).order_by("at").values_list("gpr_id", "at"))
        if gpr.pk not in told or told[gpr.pk] < gpr.state_changed_at:
            _record_restart(gpr, now)


@transaction.atomic
def _record_restart(gpr: Gpr, now: datetime) -> None:
    # Another process may be about to record the same.
    is_still = Gpr.objects.select_for_update().filter(pk=gpr.pk, state=GprState.QUEUED, state_changed_at=gpr.state_changed_at).exists()
    if not is_still or Event.objects.filter(kind=RESTART, gpr_id=gpr.pk, at__gte=gpr.state_changed_at).exists():
        return
    event_record(
        kind=RESTART,
        message=f"{gpr.name} starts again at {utc(gpr.promise.promised_start_at)} at the latest.",
        at=now,
        gpr_id=gpr.pk,
        slice_id=gpr.slice_id,
    )


def silent_agents_record(*, now: datetime) -> None:
    """Tell administrators once of each agent that falls silent, and once when it is heard again. Runs one query when there is no such
    agent.
    """
    since_at = now - timedelta(seconds=settings.EGS_AGENT_UNREACHABLE_S)
    falls_silent = Q(silence_told_at=None, last_sync_at__lt=since_at)
    is_back = Q(silence_told_at__isnull=False, last_sync_at__gte=since_at)
    agents = list(AgentSession.objects.filter(falls_silent | is_back).select_related("cluster"))
    for agent in agents:
        if agent.silence_told_at is not None:
            _record_return(agent, now)
        # After an absence of the hub itself agents get the time to report.
        elif cluster_is_silent(agent.cluster, now) and not was_just_away(now=now):
            _record_silence(agent, now)


@transaction.atomic
def _record_silence(agent: AgentSession, now: datetime) -> None:
    # Another process may be about to record the same.
    is_mine = AgentSession.objects.filter(pk=agent.pk, last_sync_at=agent.last_sync_at, silence_told_at=None).update(silence_told_at=now)
    if not is_mine or agent.last_sync_at is None:
        return
    event_record(
        kind="agent.silent",
        message=f"The agent of cluster {agent.cluster.name} is silent since {utc(agent.last_sync_at)}. "
        "Boxes there end on time, but nothing starts there.",
        at=now,
        severity=Severity.ERROR,
        cluster_id=agent.pk,
    )


@transaction.atomic
def _record_return(agent: AgentSession, now: datetime) -> None:
    # Another process may be about to record the same.
    if not AgentSession.objects.filter(pk=agent.pk, silence_told_at=agent.silence_told_at).update(silence_told_at=None):
        return
    text = f"The agent of cluster {agent.cluster.name} is heard again."
    event_record(kind="agent.heard_again", message=text, at=now, cluster_id=agent.pk)
