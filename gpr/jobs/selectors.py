"""Reads jobs, their states and their output."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final
from uuid import UUID

from django.db.models import Case, CharField, F, Q, QuerySet, Value, When

from accounts.models import User
from accounts.policy import Verb, may, visible_rows
from core.errors import NotAllowed
from core.rest.references import one_by_reference
from core.vault import SecretLost, decrypt
from core.written_sql import IdParam, TimeParam, WrittenQuery
from gpr.models import ENDED, GprState, Job, JobLog, JobState
from protocol.cluster_names import object_name
from protocol.tenancy.workloads import NAME_MAX_CHARS, JobWorkload, LogAsk, WorkloadKind, WorkloadPhase
from protocol.tenancy.workspaces import BindingState
from slices.models import Namespace
from slices.selectors import slices_visible_to

OVER: Final = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED})
_RUNS: Final = Q(gpr__state=GprState.ACTIVE, phase=WorkloadPhase.RUNNING, seen_run=F("gpr__run"))
STATE: Final = Case(
    When(~Q(outcome=""), then=F("outcome")),
    When(gpr__state__in=ENDED, then=Value(JobState.STOPPED)),
    When(gpr__state=GprState.EXITING, then=Value(JobState.STOPPING)),
    When(_RUNS, then=Value(JobState.RUNNING)),
    When(gpr__state__in=[GprState.PROVISIONING, GprState.ACTIVE], then=Value(JobState.STARTING)),
    default=Value(JobState.WAITING),
    output_field=CharField(),
)

_READ_NOW: Final = JobLog.objects.filter(
    wanted_until_at__gt=TimeParam("now"), job__gpr__cluster=IdParam("cluster"), job__gpr__state=GprState.ACTIVE
)
_ASKED: Final = WrittenQuery(_READ_NOW.order_by("pk").values_list("job", "job__gpr__run", "rank"))


def jobs_visible_to(actor: User) -> QuerySet[Job]:
    rows = Job.objects.select_related("gpr__slice", "gpr__owner", "gpr__cluster", "gpr__promise")
    return visible_rows(rows, actor, Q(gpr__slice__in=slices_visible_to(actor))).annotate(state=STATE, name=F("gpr__name"))


def job_for(actor: User, reference: str | UUID, *, write: bool = False, notebook: bool = False) -> Job:
    """Finds a job, or only a `notebook`, by its id, by that of its GPR, or by name. Raises NotFound, NotAllowed, or Conflict."""
    rows = notebooks_visible_to(actor) if notebook else jobs_visible_to(actor)
    job = rows.filter(gpr=reference).first() if isinstance(reference, UUID) else None
    job = job or one_by_reference(rows, reference, what="notebook" if notebook else "job")
    if write and not may(actor, Verb.CHANGE, job.gpr):
        raise NotAllowed("Only its owner, an owner of the workspace or an administrator may change it.")
    return job


def workloads_of(cluster_id: UUID) -> tuple[JobWorkload, ...]:
    """Returns the jobs that run in the open boxes of the cluster. Runs two queries."""
    jobs = Job.objects.filter(outcome="", gpr__cluster=cluster_id, gpr__state=GprState.ACTIVE).select_related("gpr").order_by("pk")
    rows = list(jobs)
    if not rows:
        return ()
    # The oldest first, so that a new one changes nothing. Whether it is ready, its agent knows.
    bound = Namespace.objects.filter(cluster=cluster_id, slice__in={job.gpr.slice_id for job in rows}).exclude(state=BindingState.CONFLICT)
    names: dict[UUID, list[str]] = {}
    for slice_id, name in bound.order_by("created_at", "name").values_list("slice", "name"):
        names.setdefault(slice_id, []).append(name)
    return tuple(workload_of(job, names.get(job.gpr.slice_id, [])) for job in rows)


def workload_of(job: Job, namespaces: list[str]) -> JobWorkload:
    gpr = job.gpr
    namespace = job.namespace if job.namespace in namespaces else ("" if job.namespace else next(iter(namespaces), ""))
    return JobWorkload(
        id=str(job.pk),
        gpr_id=str(gpr.pk),
        run=gpr.run,
        slice=str(gpr.slice_id),
        namespace=namespace,
        name=objects_name(gpr.name, job.pk, gpr.run),
        nodes=gpr.nodes,
        kind=job.kind,
        image=job.image,
        command=tuple(job.command),
        env=dict(sorted(job.env.items())),
        secrets=tuple(job.secrets),
        volumes=dict(sorted(job.volumes.items())),
        pull_secret=job.pull_secret,
        user_id=job.user_id,
        retries=job.retries,
        checkpoint=tuple(job.checkpoint),
        rdma=gpr.rdma,
        objects=tuple(job.objects_wanted),
        token=token_of(job),
    )


def notebooks_visible_to(actor: User) -> QuerySet[Job]:
    return jobs_visible_to(actor).filter(kind=WorkloadKind.NOTEBOOK)


def token_of(job: Job) -> str:
    """Returns "" for one that has none, or whose key is lost."""
    try:
        return decrypt(job.token_sealed) if job.token_sealed else ""
    except SecretLost:
        return ""


def objects_name(name: str, job_id: UUID, run: int) -> str:
    """Differs in each run, begins with a letter, and leaves room for what Kubernetes appends for pods."""
    end = f"-{job_id.hex[:8]}-{run}"
    begin = object_name(name)[: NAME_MAX_CHARS - len(end) - 4].strip("-")
    return f"{begin if begin[:1].isalpha() else f'job-{begin}'.strip('-')}{end}"


def log_asks_of(cluster_id: UUID, now: datetime) -> tuple[LogAsk, ...]:
    """Runs one query."""
    return tuple(LogAsk(id=str(job_id), run=run, rank=rank) for job_id, run, rank in _ASKED(cluster=cluster_id, now=now))


def kinds_for(namespaces: Iterable[Namespace]) -> list[str]:
    """Returns the kinds that some cluster of these serves. An agent that has not told its kinds yet serves Job."""
    served = {WorkloadKind.JOB.value, *(kind for each in namespaces for kind in _kinds_of(each))}
    return [kind.value for kind in WorkloadKind if kind.value in served]


def clusters_with(namespaces: Iterable[Namespace], kind: str) -> set[UUID]:
    """Return the ids of the clusters of these namespaces that serve the kind, by their agents' reports."""
    served = {each.cluster_id: _kinds_of(each) for each in namespaces}
    return {cluster_id for cluster_id, kinds in served.items() if kind in kinds}


def clusters_unheard(namespaces: Iterable[Namespace]) -> set[UUID]:
    """Return the ids of clusters whose agent has not told yet which kinds it can make."""
    return {each.cluster_id for each in namespaces if not _kinds_of(each)}


def _kinds_of(namespace: Namespace) -> list[str]:
    session = getattr(namespace.cluster, "agent", None)
    return list(session.workload_kinds) if session else []
