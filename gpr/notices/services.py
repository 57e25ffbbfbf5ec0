from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from core.words import duration_exact, utc
from gpr.allocation.absence import was_just_away
from gpr.events import gpr_event_record
from gpr.models import Gpr, GprState
from inventory.models import AgentSession
from inventory.selectors import cluster_is_silent
from journal.models import Event, Severity
from journal.notices.periodic import Throttle
from journal.services import event_record
from slices.notices import owners_of

ENDS_SOON, RESTART, UNDECIDED = "gpr.ends_soon", "gpr.restart_promised", "gpr.undecided"
REMINDED_SHARE: Final = 0.25  # of the time for a decision is left when the approvers are reminded
_REMINDING: Final = Throttle(timedelta(seconds=30))
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
    rows = Gpr.objects.filter(state=GprState.ACTIVE, ends_at__gt=now, ends_at__lte=now + warning, active_at__lt=F("ends_at") - warning)
    ends = {pk: ends_at for pk, ends_at in rows.values_list("pk", "ends_at") if ends_at is not None}
    _tell_once(ENDS_SOON, ends, rows, "ends_at", "{name} ends at {at}, in {left}. Save its work, or extend it.", now)


def undecided_record(*, now: datetime) -> None:
    """Remind once of each request on which nobody has decided after three quarters of the time for it, and again after an edit."""
    if not _REMINDING.is_due(now):
        return
    rows = Gpr.objects.filter(state=GprState.PENDING_APPROVAL, decide_by_at__gt=now)
    waiting = rows.values_list("pk", "decide_by_at", "slice__decide_within_s")
    due = {pk: at for pk, at, within_s in waiting if at is not None and at - now <= REMINDED_SHARE * timedelta(seconds=within_s)}
    text = "{name} still waits for approval. If nobody decides by {at}, in {left}, it is rejected."
    _tell_once(UNDECIDED, due, rows, "decide_by_at", text, now)


def _tell_once(kind: str, due: Mapping[UUID, datetime], rows: QuerySet[Gpr], column: str, text: str, now: datetime) -> None:
    """Tells of each GPR that is due, and of the time in `column`, unless that was told."""
    told = set(Event.objects.filter(kind=kind, gpr_id__in=due).values_list("gpr_id", "new")) if due else set()
    for pk, at in due.items():
        if (pk, utc(at)) not in told:
            _tell(kind, rows.filter(**{"pk": pk, column: at}), at, text, now)


@transaction.atomic
def _tell(kind: str, row: QuerySet[Gpr], at: datetime, text: str, now: datetime) -> None:
    # Another process may be about to record the same.
    gpr = row.select_for_update().first()
    if gpr is None or Event.objects.filter(kind=kind, gpr_id=gpr.pk, new=utc(at)).exists():
        return
    told = text.format(name=gpr.name, at=utc(at), left=duration_exact(int((at - now).total_seconds())))
    gpr_event_record(kind, gpr, told, now, severity=Severity.WARNING, new=utc(at), cluster_id=gpr.cluster_id)


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
    gpr_event_record(RESTART, gpr, f"{gpr.name} starts again at {utc(gpr.promise.promised_start_at)} at the latest.", now)


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
    text = f"The agent of cluster {agent.cluster.name} is silent since {utc(agent.last_sync_at)}."
    then = "Boxes there end on time, but nothing starts there."
    event_record(kind="agent.silent", message=f"{text} {then}", at=now, severity=Severity.ERROR, cluster_id=agent.pk)


@transaction.atomic
def _record_return(agent: AgentSession, now: datetime) -> None:
    # Another process may be about to record the same.
    if not AgentSession.objects.filter(pk=agent.pk, silence_told_at=agent.silence_told_at).update(silence_told_at=None):
        return
    text = f"The agent of cluster {agent.cluster.name} is heard again."
    event_record(kind="agent.heard_again", message=text, at=now, cluster_id=agent.pk)
