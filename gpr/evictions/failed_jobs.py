"""Jobs that failed when the nodes of a requeued GPR were taken back. Each is stored as an Event only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db import transaction

from core.rest.references import id_of
from gpr.events import gpr_event_record
from gpr.models import Gpr, GprState
from gpr.requests.ending import goes_back
from inventory.models import Cluster, Reservation
from journal.guard import set_aside_on_error
from journal.models import Event, Severity
from protocol.tenancy.waiting_pods import JobFailed
from slices.models import Namespace

KIND: Final = "gpr.job_failed"
JOBS_NAMED_MAX: Final = 3


def jobs_failed_take(*, cluster: Cluster, failed: Iterable[JobFailed], now: datetime) -> None:
    """Store what an agent reports; repeated reports have no effect."""
    jobs: dict[UUID, list[str]] = defaultdict(list)
    for each in failed:
        if gpr_id := id_of(each.gpr_id):
            jobs[gpr_id].append(f"{each.namespace}/{each.name}")
    for gpr_id, names in jobs.items():
        with set_aside_on_error("failed_jobs_store", "EGS could not store that Jobs of this request failed", now=now, gpr_id=gpr_id):
            _take(cluster, gpr_id, names, now)


@transaction.atomic
def _take(cluster: Cluster, gpr_id: UUID, names: Sequence[str], now: datetime) -> None:
    gpr = Gpr.objects.select_for_update().filter(pk=gpr_id, state__in=[GprState.EXITING, GprState.QUEUED]).first()
    if gpr is None or (gpr.state == GprState.EXITING and not goes_back(gpr)):
        return
    if not Reservation.objects.filter(gpr=gpr, run=gpr.run, cluster=cluster).exists():
        return
    known = _recorded({gpr.pk: gpr.run}).get(gpr.pk, ())
    if not (news := [name for name in names if name not in known]):
        return
    text, data = f"{jobs_in_words(news)} since the nodes of {gpr.name} were taken back.", {"run": gpr.run, "jobs": news}
    gpr_event_record(KIND, gpr, text, now, severity=Severity.WARNING, cluster_id=cluster.pk, data=data)


def jobs_in_words(names: Sequence[str]) -> str:
    # The start of a sentence, as "Job vision/train has failed".
    shown, more = ", ".join(names[:JOBS_NAMED_MAX]), len(names) - JOBS_NAMED_MAX
    return f"Job {shown} has failed" if len(names) == 1 else f"Jobs {shown}{f' and {more} more' if more > 0 else ''} have failed"


def failed_jobs_of(gprs: Iterable[Gpr]) -> dict[UUID, tuple[str, ...]]:
    """Returns Jobs of requeued GPRs in whose workspace no GPU pod waits. Runs at most two queries."""
    again = [gpr for gpr in gprs if gpr.state == GprState.QUEUED and gpr.run]
    if not again:
        return {}
    needed = set(Namespace.objects.filter(slice__in={gpr.slice_id for gpr in again}, waiting__isnull=False).values_list("slice", flat=True))
    return _recorded({gpr.pk: gpr.run for gpr in again if gpr.slice_id not in needed})


def _recorded(runs: dict[UUID, int]) -> dict[UUID, tuple[str, ...]]:
    found: dict[UUID, tuple[str, ...]] = {}
    for gpr_id, data in Event.objects.filter(kind=KIND, gpr_id__in=runs).order_by("id").values_list("gpr_id", "data"):
        if gpr_id is not None and data["run"] == runs[gpr_id]:
            found[gpr_id] = (*found.get(gpr_id, ()), *data["jobs"])
    return found
