"""Shows jobs of a workspace: a list, and one job with its pods and its output."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import yaml
from django.conf import settings
from django.db.models import Q, QuerySet
from django.urls import reverse

from accounts.policy import Verb, may
from core.errors import InvalidInput
from core.pages import words
from core.pages.parts import EventRow, ListFoot, Pair, Tab
from core.rest.fields import whole_number
from gpr.jobs.logs import LogPart, log_read
from gpr.jobs.selectors import OVER, job_for, jobs_visible_to, objects_name
from gpr.models import PROVISIONED, Gpr, GprState, Job, JobState
from gpr.requests.selectors import events_visible_to
from inventory.models import agent_is_live
from observability.workloads.models import Pod
from observability.workloads.selectors import pods_visible_to
from portal_shared.access import PageRequest
from portal_shared.parts.paging import foot_of, page_of, state_of, url_with
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.job_form import BoxJobForm
from portal_user.pages.requests.job_preview import JobPreview
from portal_user.pages.requests.listing import may_create
from portal_user.pages.requests.offers import api_snippet
from protocol.tenancy.workloads import WorkloadKind
from slices.models import Slice

S = JobState
PARTS: Final = ("now", "log", "events")
EVENTS_SHOWN: Final = 20
PODS_SHOWN: Final = 100
RANKS_SHOWN: Final = 16
# The states of requests that look alike.
LOOKS: Final = {
    S.WAITING: GprState.QUEUED,
    S.STARTING: GprState.PROVISIONING,
    S.RUNNING: GprState.ACTIVE,
    S.STOPPING: GprState.EXITING,
    S.SUCCEEDED: GprState.COMPLETED,
    S.FAILED: GprState.FAILED,
    S.STOPPED: GprState.CANCELED,
}
GROUPS: Final = {"": "All", "now": "Not over", "succeeded": "Succeeded", "failed": "Failed", "stopped": "Stopped"}


@dataclass(frozen=True, slots=True)
class JobRow:
    id: UUID
    name: str
    url: str
    look: str
    word: str
    what: str  # its image, or its kind
    command: str
    owner: str
    size: str
    message: str
    at: datetime  # when it ended, or was filed
    is_over: bool

    @classmethod
    def of(cls, job: Any) -> JobRow:
        state = JobState(job.state)
        return cls(
            id=job.pk,
            name=job.name,
            url=reverse("job", args=[job.pk]),
            look=LOOKS[state],
            word=state.label,
            what=job.image or words.plural(len(job.objects_wanted), "object"),
            command=shlex.join(job.command),
            owner=job.gpr.owner.name,
            size=size_of(job.gpr),
            message=job.message if state in {S.STARTING, S.FAILED} else "",
            at=job.finished_at or job.gpr.ended_at or job.created_at,
            is_over=state in OVER,
        )


@dataclass(frozen=True, slots=True)
class JobsPage:
    shell: Shell
    mark: WorkspaceMark
    rows: tuple[JobRow, ...]
    tabs: tuple[Tab, ...]
    foot: ListFoot
    part_url: str
    group: str
    create_url: str  # empty: the reader may file none
    command: str

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice) -> JobsPage:
        group, url = state_of(request, GROUPS), reverse("jobs", args=[slice_.name])
        rows: QuerySet[Any] = jobs_visible_to(request.user).filter(gpr__slice=slice_)
        if group:
            rows = rows.exclude(state__in=OVER) if group == "now" else rows.filter(state=group.upper())
        found = page_of(request, rows, ordering=("-created_at", "id"))
        filters = {"state": group}
        may_file = may_create(request, slice_)
        return cls(
            shell=Shell.user(request, page="jobs", slice_=slice_, may_create=may_file),
            mark=WorkspaceMark.of(slice_),
            rows=tuple(JobRow.of(job) for job in found.rows),
            tabs=tuple(Tab(label, url_with(url, {"state": key}), is_current=key == group) for key, label in GROUPS.items()),
            foot=foot_of(found, url, filters),
            part_url=url_with(url, {**filters, "cursor": request.GET.get("cursor", ""), "part": "list"}),
            group=group,
            create_url=reverse("job-create", args=[slice_.name]) if may_file else "",
            command=f"egs run -n {slice_.name} --gpus 8 --hours 1 --image IMAGE -- COMMAND",
        )


@dataclass(frozen=True, slots=True)
class BoxJobPage:
    """Shows the form of a job in the box of a request that is there."""

    shell: Shell
    mark: WorkspaceMark
    gpr: Gpr
    form: BoxJobForm
    folds: Mapping[str, str]
    opens: Mapping[str, bool]
    job: JobPreview | None
    panel: BoxJobCall
    pairs: tuple[Pair, ...]
    url: str
    back_url: str

    @classmethod
    def build(cls, request: PageRequest, form: BoxJobForm) -> BoxJobPage:
        gpr = form.gpr
        given = {name: form[name].value() for name in form.fields}
        is_shown = form.is_bound and form.is_valid()
        return cls(
            shell=Shell.user(request, page="jobs", slice_=gpr.slice),
            mark=WorkspaceMark.of(gpr.slice),
            gpr=gpr,
            form=form,
            folds=form.fold_values(given),
            opens={fold: form.is_bound and any(name in form.errors for name in names) for fold, names in form.OWN_FOLDS.items()},
            job=JobPreview.in_box(form),
            panel=BoxJobCall(api_snippet(request, form) if is_shown else ""),
            pairs=(
                Pair("Request", gpr.name),
                Pair("State", str(words.STATE_WORDS[gpr.state])),
                Pair("Nodes", size_of(gpr)),
                Pair("Time", words.duration_exact(gpr.duration_s)),
                Pair("Cluster", gpr.cluster.name if gpr.cluster else ""),
                Pair("Ends", words.moment(gpr.ends_at, now=request.now, zone=request.zone) if gpr.ends_at else ""),
            ),
            url=reverse("gpr-run", args=[gpr.pk]),
            back_url=reverse("gpr", args=[gpr.pk]),
        )


@dataclass(frozen=True, slots=True)
class BoxJobCall:
    snippet: str


@dataclass(frozen=True, slots=True)
class PodRow:
    id: UUID
    name: str
    place: str
    look: str
    word: str
    why: str
    node: str

    @classmethod
    def of(cls, pod: Pod) -> PodRow:
        waits = bool(pod.hold) or not pod.node
        look, word = (GprState.QUEUED, "Waiting") if waits else (GprState.ACTIVE, "Running")
        place = pod.place if not pod.role else pod.place.capitalize()
        return cls(pod.pk, pod.name, f"Pod {place}" if place.isdigit() else place, look, word, pod.why, pod.node)


@dataclass(frozen=True, slots=True)
class JobPage:
    id: UUID
    name: str
    url: str
    list_url: str
    list_name: str
    open_url: str  # empty: it is no notebook of the reader that runs
    ends_at: datetime | None
    promised_at: datetime | None  # None: it does not wait in the queue
    gpr_url: str
    look: str
    word: str
    sentence: str
    mark: WorkspaceMark
    shell: Shell
    stop_url: str  # empty: not allowed, or over
    stop_verb: str
    pairs: tuple[Pair, ...]
    pods: tuple[PodRow, ...]
    silent: str  # empty: its cluster is heard, so that the pods are those of now
    manifest: str
    log: LogPart | None  # None: not asked for
    rank: int
    ranks: tuple[Tab, ...]
    events: tuple[EventRow, ...]

    @classmethod
    def build(cls, request: PageRequest, pk: UUID, *, part: str = "") -> JobPage:
        job: Any = job_for(request.user, pk)
        gpr, state, rank = job.gpr, JobState(job.state), _rank(request)
        url, list_name = reverse("job", args=[job.pk]), "Notebooks" if job.kind == WorkloadKind.NOTEBOOK else "Jobs"
        waits = gpr.state in {GprState.PENDING_APPROVAL, GprState.QUEUED}
        holds = gpr.state in {GprState.PROVISIONING, GprState.ACTIVE}
        may_stop = (waits or holds) and request.may_write and may(request.user, Verb.CHANGE, gpr)
        return cls(
            id=job.pk,
            name=gpr.name,
            url=url,
            list_url=reverse(list_name.lower(), args=[gpr.slice.name]),
            list_name=list_name,
            open_url=open_url(job, request),
            ends_at=gpr.ends_at if gpr.state in PROVISIONED else None,
            promised_at=gpr.promise.promised_start_at if gpr.state == GprState.QUEUED and hasattr(gpr, "promise") else None,
            gpr_url=reverse("gpr", args=[gpr.pk]),
            look=LOOKS[state],
            word=state.label,
            sentence=_sentence(job, state),
            mark=WorkspaceMark.of(gpr.slice),
            shell=Shell.user(request, page=list_name.lower(), slice_=gpr.slice, may_create=may_create(request, gpr.slice)),
            stop_url=reverse("gpr-delete" if waits else "gpr-release", args=[gpr.pk]) if may_stop else "",
            stop_verb=f"{'Cancel' if waits else 'Stop'} {list_name.lower().removesuffix('s')}",
            pairs=tuple(_pairs(job)),
            pods=tuple(PodRow.of(pod) for pod in _pods(request, job)) if gpr.state in PROVISIONED else (),
            silent=_silent(request, job),
            manifest=yaml.safe_dump_all(job.objects_wanted, sort_keys=False) if job.objects_wanted else "",
            log=log_read(job=job, rank=rank, since=None, now=request.now) if part in {"", "log"} else None,
            rank=rank,
            ranks=tuple(
                Tab(f"Pod {each}", url_with(url, {"rank": str(each) if each else ""}), is_current=each == rank)
                for each in range(min(gpr.nodes, RANKS_SHOWN))
            )
            if gpr.nodes > 1
            else (),
            events=_events(request, job),
        )

    @property
    def log_url(self) -> str:
        return url_with(self.url, {"rank": str(self.rank) if self.rank else "", "part": "log"})


def _pods(request: PageRequest, job: Job) -> QuerySet[Pod]:
    """Returns pods of the job's own objects, even waiting ones, and all pods that its box has let in."""
    gpr = job.gpr
    own = Q(workload__slice=gpr.slice_id, workload__cluster=gpr.cluster_id, workload__name=objects_name(gpr.name, job.pk, gpr.run))
    return pods_visible_to(request.user).filter(own | Q(gpr=gpr), gone_at=None).order_by("rank", "name")[:PODS_SHOWN]


def _silent(request: PageRequest, job: Job) -> str:
    gpr = job.gpr
    agent = getattr(gpr.cluster, "agent", None)
    if gpr.state not in PROVISIONED or agent_is_live(agent, request.now, within_s=settings.EGS_AGENT_UNREACHABLE_S):
        return ""
    return f"{gpr.cluster.name if gpr.cluster else 'The cluster'} is silent: this is what was known last."


def open_url(job: Any, request: PageRequest) -> str:
    """Returns "" where it is no notebook, does not run, or belongs to somebody else."""
    is_open = job.kind == WorkloadKind.NOTEBOOK and job.state == S.RUNNING and request.may_write
    return reverse("notebook-open", args=[job.pk]) if is_open and may(request.user, Verb.READ_SECRET, job.gpr) else ""


def size_of(gpr: Gpr) -> str:
    gpus = "all GPUs" if gpr.gpus_per_node is None else words.plural(gpr.gpus_per_node, "GPU")
    return f"{words.plural(gpr.nodes, 'node')}, {gpus}{' each' if gpr.nodes > 1 else ''}"


def _rank(request: PageRequest) -> int:
    """Raises InvalidInput."""
    try:
        return whole_number(request.GET.get("rank", "0"))
    except ValueError:
        raise InvalidInput({"rank": ["There is no such pod."]}) from None


def _sentence(job: Job, state: JobState) -> str:
    match state:
        case S.WAITING if job.gpr.state == GprState.PENDING_APPROVAL:
            return "Its request waits for an approval."
        case S.WAITING:
            return "It starts when its request gets nodes."
        case S.STARTING if job.gpr.state == GprState.PROVISIONING:
            return "Its nodes are being checked."
        case S.STARTING:
            return job.message or "Its pods are being made."
        case S.RUNNING:
            return job.message or f"{words.plural(job.pods_running, 'pod')} {'runs' if job.pods_running == 1 else 'run'}."
        case S.STOPPING:
            return "Its nodes are being taken back."
        case S.STOPPED:
            return "Its request ended before it had finished."
    return job.message


def _pairs(job: Any) -> list[Pair]:
    gpr = job.gpr
    not_yet = "" if job.state in OVER else "not started yet"
    return [
        Pair("Nodes", size_of(gpr)),
        Pair("Time", words.duration_exact(gpr.duration_s)),
        Pair("Cluster", gpr.cluster.name if gpr.cluster else not_yet),
        Pair("Namespace", job.namespace or "the first of the workspace"),
        Pair("Kind", job.kind),
        Pair("Image", job.image, is_code=True),
        Pair("Command", shlex.join(job.command), is_code=True),
        Pair("Variables", ", ".join(sorted(job.env)), is_code=True),
        Pair("Volumes", ", ".join(f"{claim} at {path}" for claim, path in sorted(job.volumes.items()))),
        Pair("Retries", str(job.retries)),
        Pair("When finished", "gives its nodes back" if job.releases_box else "keeps its nodes until their end"),
        Pair("Runs", str(gpr.run) if gpr.run else not_yet),
        *(Pair(str(name), str(value)) for name, value in sorted(gpr.model.items())),
    ]


def _events(request: PageRequest, job: Job) -> tuple[EventRow, ...]:
    told = Q(kind__startswith="job.") | Q(kind__startswith="gpr.")
    rows = events_visible_to(request.user).filter(told, gpr_id=job.gpr_id).order_by("-id")[:EVENTS_SHOWN]
    return tuple(EventRow(at=event.at, text=event.message, severity=event.severity, state=event.new) for event in rows)
