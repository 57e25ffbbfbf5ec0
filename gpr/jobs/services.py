"""Files jobs, cancels them, and stores how they went."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from accounts.policy import Verb, may
from core.errors import Conflict, IllegalTransition, InvalidInput, NotAllowed
from core.rest.references import id_of
from core.vault import encrypt, rotate_rows
from core.words import plural
from gpr.allocation.stored_plan import plan_turn
from gpr.events import gpr_event_record
from gpr.jobs.selectors import clusters_unheard, clusters_with, objects_name, token_of
from gpr.jobs.spec import JobSpec, job_check
from gpr.models import EndReason, Gpr, GprState, Job, JobOutcome, JobState
from gpr.requests.editing import gpr_cancel
from gpr.requests.ending import exit_begin, gpr_release
from gpr.requests.services import gpr_submit
from gpr.requests.spec import GprSpec
from inventory.models import Cluster
from inventory.services.clusters import desired_set_changed
from journal.guard import set_aside_on_error
from journal.hints import hint, slice_topic
from journal.models import Severity
from protocol.tenancy.workloads import NOTEBOOK_PORT, WorkloadKind, WorkloadPhase, WorkloadSeen
from slices.models import Namespace, Slice

# The route in idempotency keys: the API and the pages share it.
JOBS_ROUTE: Final = "jobs"
TAKES_A_JOB: Final = frozenset({GprState.PENDING_APPROVAL, GprState.QUEUED, GprState.PROVISIONING, GprState.ACTIVE})
MESSAGE_MAX_CHARS: Final = 500
SEEN: Final = ("seen_run", "phase", "message", "pods_running", "seen_namespace", "url", "outcome", "finished_at")
TOKEN_BYTES: Final = 32
EVERYWHERE: Final = frozenset({WorkloadKind.JOB, WorkloadKind.NOTEBOOK})  # kinds of every cluster
OUTCOMES: Final = {WorkloadPhase.SUCCEEDED: JobOutcome.SUCCEEDED, WorkloadPhase.FAILED: JobOutcome.FAILED}


@dataclass(frozen=True, slots=True)
class NotebookAccess:
    token: str
    url: str  # "": the cluster has no ingress for it
    cluster: str
    namespace: str
    service: str
    port: int = NOTEBOOK_PORT


@plan_turn()
@transaction.atomic
def job_create(*, actor: User, spec: GprSpec, what: JobSpec, now: datetime) -> Job:
    """Files the GPR and its job together. Raises InvalidInput and the errors of `gpr_submit`."""
    gpr = gpr_submit(actor=actor, spec=spec_for_job(spec, what), now=now)
    return job_add(gpr=gpr, what=what, actor=actor, now=now)


@transaction.atomic
def job_start_in(*, gpr: Gpr, what: JobSpec, actor: User, now: datetime) -> Job:
    """Gives a job to a request that has none. Raises InvalidInput, IllegalTransition, or Conflict if there is one."""
    job_check(what)
    gpr = Gpr.objects.select_for_update(of=("self",)).select_related("slice", "cluster").get(pk=gpr.pk)
    if gpr.state not in TAKES_A_JOB:
        raise IllegalTransition(f"{gpr.name} is {gpr.get_state_display().lower()}: nothing new can run in its box.", state=gpr.state)
    if Job.objects.filter(gpr=gpr).exists():
        raise Conflict(f"{gpr.name} has a job already.")
    _refuse_many_nodes(gpr.nodes, what)
    allowed = {cluster.pk: cluster for cluster in ([gpr.cluster] if gpr.cluster else gpr.clusters.all() or gpr.slice.clusters.all())}
    lacking = allowed.keys() - _fitting(gpr.slice, allowed.keys(), what)
    if lacking:
        names = ", ".join(sorted(allowed[pk].name for pk in lacking))
        raise InvalidInput({"namespace": [f"{gpr.name} may start in {names}, where this cannot run."]})
    job = job_add(gpr=gpr, what=what, actor=actor, now=now)
    if gpr.cluster_id is not None:
        desired_set_changed([gpr.cluster_id])
    return job


def spec_for_job(spec: GprSpec, what: JobSpec) -> GprSpec:
    """Limits the request to the clusters where the job may run. Raises InvalidInput."""
    job_check(what)
    _refuse_many_nodes(spec.nodes, what)
    allowed = {cluster.pk: cluster for cluster in (spec.clusters or spec.slice.clusters.all())}
    chosen = _fitting(spec.slice, allowed.keys(), what)
    is_any = not spec.clusters and chosen == allowed.keys()
    return replace(spec, clusters=() if is_any else tuple(allowed[pk] for pk in sorted(chosen)))


def _refuse_many_nodes(nodes: int, what: JobSpec) -> None:
    if what.kind == WorkloadKind.NOTEBOOK and nodes != 1:
        raise InvalidInput({"nodes": ["A notebook runs on one node."]})


def job_add(*, gpr: Gpr, what: JobSpec, actor: User, now: datetime) -> Job:
    """Callers have checked `what`, and that it can run where the GPR may start."""
    token_sealed = encrypt(secrets.token_urlsafe(TOKEN_BYTES)) if what.kind == WorkloadKind.NOTEBOOK else ""
    job = Job.objects.create(gpr=gpr, created_at=now, token_sealed=token_sealed, **asdict(what))
    text = f"{gpr.name} runs {what.image or plural(len(what.objects_wanted), 'object')} as {what.kind} when its nodes are there."
    _record(job, "job.created", text, now, actor=actor)
    return job


def job_cancel(*, job: Job, actor: User, now: datetime) -> None:
    """Withdraws its request, or gives its nodes back. Raises IllegalTransition or StaleState."""
    gpr = job.gpr
    if gpr.state in {GprState.PENDING_APPROVAL, GprState.QUEUED}:
        gpr_cancel(gpr=gpr, actor=actor, now=now)
    elif gpr.state in {GprState.PROVISIONING, GprState.ACTIVE}:
        gpr_release(gpr=gpr, actor=actor, now=now)
    else:
        raise IllegalTransition(f"This job is over: its request is {gpr.get_state_display().lower()}.", state=gpr.state)


def refuse_others(notebook: Job, actor: User) -> None:
    """Raises NotAllowed."""
    if not may(actor, Verb.READ_SECRET, notebook.gpr):
        raise NotAllowed(f"Only {notebook.gpr.owner.name}, who filed this notebook, may open it. File one of your own.")


@transaction.atomic
def notebook_open(*, job: Any, actor: User, now: datetime) -> NotebookAccess:
    """Tells its token. `job`: with its state, as selectors read it. Raises NotAllowed or IllegalTransition."""
    refuse_others(job, actor)
    if job.state != JobState.RUNNING:
        raise IllegalTransition(f"It does not run: it is {JobState(job.state).label.lower()}. {job.message}".strip(), state=job.state)
    token = token_of(job)
    if not token:
        raise IllegalTransition("Its token cannot be read any more: the key is gone. Stop it, and file it again.", state=job.state)
    _record(job, "job.opened", f"{actor.name} opened the notebook {job.gpr.name}.", now, actor=actor)
    return NotebookAccess(
        token=token,
        url=job.url,
        cluster=job.gpr.cluster.name,
        namespace=job.seen_namespace,
        service=objects_name(job.gpr.name, job.pk, job.gpr.run),
    )


def tokens_rotate() -> tuple[int, int]:
    """Encrypt all tokens with the newest key. Returns how many it encrypted, and how many no key reads."""
    return rotate_rows(Job.objects.all(), "token_sealed")


def workloads_take(*, cluster: Cluster, seen: Sequence[WorkloadSeen], now: datetime) -> None:
    """Store what an agent reports; repeated and old reports have no effect."""
    for each in seen:
        if job_id := id_of(each.id):
            with set_aside_on_error("workload_store", "EGS could not store how a job goes", now=now, cluster_id=cluster.pk):
                _take(cluster, job_id, each, now)


@transaction.atomic
def _take(cluster: Cluster, job_id: UUID, seen: WorkloadSeen, now: datetime) -> None:
    # The row is locked, so that neither the tick nor a person moves it before its nodes are given back.
    rows = Gpr.objects.select_for_update(of=("self",)).filter(job=job_id, cluster=cluster, state=GprState.ACTIVE, run=seen.run)
    gpr = rows.select_related("slice").first()
    job = Job.objects.filter(pk=job_id, outcome="").first()
    if gpr is None or job is None:
        return
    job.gpr = gpr
    was = (job.seen_run, job.phase, job.message)
    job.seen_run, job.phase, job.message, job.pods_running = seen.run, seen.phase, seen.message[:MESSAGE_MAX_CHARS], seen.pods_running
    job.seen_namespace, job.url = seen.namespace, seen.url
    if outcome := OUTCOMES.get(seen.phase):
        job.outcome, job.finished_at = outcome, now
    job.save(update_fields=SEEN)
    hint(slice_topic(gpr.slice_id))
    if outcome is not None:
        _finish(job, now)
    elif seen.phase == WorkloadPhase.REFUSED and was != (job.seen_run, job.phase, job.message):
        _record(job, "job.refused", f"The cluster does not take the job of {gpr.name}: {job.message}", now, severity=Severity.WARNING)
    elif seen.phase == WorkloadPhase.RUNNING and was[:2] != (job.seen_run, job.phase):
        _record(job, "job.running", f"The job of {gpr.name} runs.", now)


def _finish(job: Job, now: datetime) -> None:
    has_failed, gpr = job.outcome == JobOutcome.FAILED, job.gpr
    text = f"The job of {gpr.name} has {'failed' if has_failed else 'succeeded'}."
    severity = Severity.WARNING if has_failed else Severity.INFO
    _record(job, "job.failed" if has_failed else "job.succeeded", f"{text} {job.message}".strip(), now, severity=severity)
    if job.releases_box:
        exit_begin(gpr=gpr, reason=EndReason.EARLY_RELEASE, now=now, why=text)


def _fitting(slice_: Slice, allowed: Collection[UUID], what: JobSpec) -> set[UUID]:
    """Returns the clusters where the workspace has the namespace and that serve the kind. Raises InvalidInput if there is none."""
    namespaces = list(_namespaces(slice_, what.namespace).filter(cluster__in=allowed))
    if not namespaces:
        called = f" called {what.namespace}" if what.namespace else ""
        text = f"Workspace {slice_.name} has no namespace{called} in a cluster where this may run. An owner of it can bind one."
        raise InvalidInput({"namespace": [text]})
    kind = WorkloadKind.JOB.value if what.kind == WorkloadKind.MANIFEST else what.kind
    # An agent that has not told its kinds yet serves those that need nothing in the cluster.
    fitting = clusters_with(namespaces, kind) or (clusters_unheard(namespaces) if kind in EVERYWHERE else set())
    if not fitting:
        what_to_do = "Its agent has to be upgraded." if kind in EVERYWHERE else "Use Job, or ask an administrator to install it."
        raise InvalidInput({"kind": [f"No cluster where this may run serves {kind}. {what_to_do}"]})
    return fitting


def _namespaces(slice_: Slice, name: str) -> QuerySet[Namespace]:
    rows = Namespace.objects.filter(slice=slice_).select_related("cluster__agent")
    return rows.filter(name=name) if name else rows


def _record(job: Job, kind: str, message: str, now: datetime, **fields: Any) -> None:
    data = {"job": str(job.pk), "run": job.gpr.run}
    gpr_event_record(kind, job.gpr, message, now, cluster_id=job.gpr.cluster_id, data=data, **fields)
