"""Keeps the output of jobs: its last part stays for each pod, and the agent sends what comes while somebody reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from core.errors import InvalidInput
from core.rest.references import id_of
from gpr.jobs.selectors import token_of
from gpr.models import GprState, Job, JobLog
from inventory.models import Cluster
from inventory.services.clusters import desired_set_changed
from journal.notices.periodic import Throttle
from protocol.tenancy.workloads import LogChunk

KEPT_CHARS: Final = 256 * 1024  # of each pod
READ_MAX_CHARS: Final = 64 * 1024  # in one answer
WANTED: Final = timedelta(seconds=60)
WANTED_AGAIN: Final = timedelta(seconds=30)  # a reader's request is stored once in this time
READ_AT_ONCE: Final = 16  # pods of one job whose output is kept

LOGS_KEPT: Final = timedelta(days=7)  # after the end of the request
PRUNED_AT_ONCE: Final = 200
_THROTTLE: Final = Throttle(timedelta(hours=1))


@dataclass(frozen=True, slots=True)
class LogPart:
    text: str
    next: int  # where to read on
    dropped: bool  # output before the text is not kept any more
    is_live: bool  # more may come


def log_read(*, job: Job, rank: int, since: int | None, now: datetime) -> LogPart:
    """Returns what is there behind `since` characters, and has the agent send what comes next. None asks for the last part. Raises
    InvalidInput.
    """
    if not 0 <= rank < job.gpr.nodes:
        raise InvalidInput({"rank": [f"This job has {job.gpr.nodes} pods: from 0 to {job.gpr.nodes - 1}."]})
    is_live = not job.outcome and not job.gpr.is_ended
    log = JobLog.objects.filter(job=job, rank=rank).first()
    if job.gpr.state == GprState.ACTIVE and is_live:
        log = _want(job, rank, log, now)
    if log is None:
        return LogPart("", next=0, dropped=False, is_live=is_live)
    begin = max(0, len(log.text) - READ_MAX_CHARS if since is None else since - log.dropped)
    text = log.text[begin : begin + READ_MAX_CHARS]
    return LogPart(
        text,
        next=log.dropped + begin + len(text),
        dropped=log.dropped + begin > (since or 0),
        is_live=is_live or begin + len(text) < len(log.text),
    )


def _want(job: Job, rank: int, log: JobLog | None, now: datetime) -> JobLog:
    if log is not None and log.wanted_until_at > now + WANTED_AGAIN:
        return log
    with transaction.atomic():
        if log is None and JobLog.objects.filter(job=job).count() >= READ_AT_ONCE:
            text = f"The output of {READ_AT_ONCE} pods of this job is read already. Look at others with kubectl logs."
            raise InvalidInput({"rank": [text]})
        log, _ = JobLog.objects.update_or_create(job=job, rank=rank, defaults={"wanted_until_at": now + WANTED})
        if job.gpr.cluster_id:
            desired_set_changed([job.gpr.cluster_id])
    return log


@transaction.atomic
def log_take(*, cluster: Cluster, chunk: LogChunk, now: datetime) -> str:
    """Appends what an agent sends, once. Returns the time of the last line that is stored."""
    job_id = id_of(chunk.id)
    rows = Job.objects.filter(gpr__cluster=cluster, gpr__run=chunk.run).select_related("gpr")
    job = rows.filter(pk=job_id).first() if job_id else None
    if job is None or chunk.rank >= job.gpr.nodes:
        return chunk.until
    log, _ = JobLog.objects.get_or_create(job=job, rank=chunk.rank, defaults={"wanted_until_at": now})
    log = JobLog.objects.select_for_update().get(pk=log.pk)
    if log.run != chunk.run:
        log.run, log.until = chunk.run, ""
    if log.until != chunk.since:
        log.save(update_fields=("run", "until"))
        return log.until
    text = log.text + _without_token(job, chunk.text)
    log.dropped += max(0, len(text) - KEPT_CHARS)
    log.text, log.until = text[-KEPT_CHARS:], chunk.until
    log.save()
    return log.until


def _without_token(job: Job, text: str) -> str:
    token = token_of(job)
    return text.replace(token, "[token]") if token else text


def logs_watch(*, now: datetime) -> None:
    """Does nothing within an hour of the last time."""
    if _THROTTLE.is_due(now):
        logs_prune(now=now)


def logs_prune(*, now: datetime) -> None:
    old = JobLog.objects.filter(job__gpr__ended_at__lt=now - LOGS_KEPT).order_by("pk").values_list("pk", flat=True)
    while pks := list(old[:PRUNED_AT_ONCE]):
        JobLog.objects.filter(pk__in=pks).delete()
