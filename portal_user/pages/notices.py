"""Tells members of an eviction: the notice, and why their GPR waits again. It never says who gets the nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from core.pages import words
from core.words import utc
from gpr.evictions.failed_jobs import failed_jobs_of, jobs_in_words
from gpr.evictions.services import WHY, notices_of
from gpr.models import EndReason, EvictionVictim, Gpr, GprState, VictimKind, VictimOutcome
from gpr.requests.end_reasons import STRICT_ENDS
from gpr.requests.ending import left_s
from journal.models import Event
from portal_shared.access import PageRequest, moment_formatter
from portal_shared.parts.gpr_box import waiting_since

S = GprState
# The past tense of gpr.evictions.services.WHY.
WAS = {
    VictimKind.RECLAIM: "its GPUs were borrowed, and the tenant they are guaranteed to needed them",
    VictimKind.PRIORITY: "a request of higher priority that may evict needed its GPUs",
    VictimKind.DEFRAGMENT: "an administrator moved it to other nodes, so that whole nodes came free",
    VictimKind.ADMIN: "an administrator took its nodes back",
}


@dataclass(frozen=True, slots=True)
class EvictionNotice:
    """Moments in `text` are in UTC, as in Events."""

    at: datetime
    text: str


def notice(gpr: Gpr) -> EvictionNotice | None:
    row = notices_of([gpr]).get(gpr.pk)
    if row is None:
        return None
    rest = words.duration(left_s(gpr, now=row.ends_at))
    if row.restart_at is not None:
        then = f"The {rest} that are left would start about {utc(row.restart_at)}."
    elif gpr.requeue_on_failure:
        then = f"It waits again for the {rest} that are left."
    else:
        then = "It is not queued again, as its owner wished."
    return EvictionNotice(row.ends_at, f"{WHY[VictimKind(row.kind)]}. Save its work. {then}")


def queued_since(gpr: Gpr) -> datetime:
    """Start of its present wait, or of the wait before its last run."""
    if gpr.state == S.QUEUED or gpr.run < 2:
        return waiting_since(gpr)
    back = Event.objects.filter(gpr_id=gpr.pk, kind="gpr.transition", old=S.EXITING, new=S.QUEUED).order_by("-at", "-id").first()
    return back.at if back else waiting_since(gpr)


def waits_again(gpr: Gpr, request: PageRequest) -> str:
    """Empty for a GPR that has not run before."""
    if gpr.state != S.QUEUED or not gpr.run:
        return ""
    moves = Event.objects.filter(Q(new=S.EXITING) | Q(old=S.EXITING, new=S.QUEUED), gpr_id=gpr.pk, kind="gpr.transition")
    last = list(moves.order_by("-id")[:2])
    if len(last) < 2:
        return ""
    back, left = last
    evicted = EvictionVictim.objects.filter(gpr=gpr, outcome=VictimOutcome.EVICTED, outcome_at=left.at).first()
    say, rest = moment_formatter(request), words.duration(gpr.remaining_s)
    ended = f"{STRICT_ENDS[EndReason(left.reason)]} at {say(left.at)}" + (f": {WAS[VictimKind(evicted.kind)]}" if evicted else "")
    return f"{ended}. It waits again since {say(back.at)}, for the {rest} that are left."


def work_gone(gpr: Gpr) -> str:
    """It is empty unless its Jobs failed and no GPU pods wait."""
    jobs = failed_jobs_of([gpr]).get(gpr.pk)
    if not jobs:
        return ""
    them = "it" if len(jobs) == 1 else "them"
    return f"{jobs_in_words(jobs)} since its nodes were taken back, and no GPU pod waits. Cancel the request, or start {them} again."
