"""Shows how to use a box: kubeconfig, commands, a Job that fits it, and pods that wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.db.models import Count, Min, Sum
from django.urls import reverse

from core.pages import words
from gpr.models import PROVISIONED, Gpr, GprState
from inventory.models import Node
from observability.workloads.models import Pod, WorkloadState
from observability.workloads.selectors import PodView, pods_in
from portal_shared.access import PageRequest
from portal_user.pages.requests.job import IMAGE, ExampleJob, job_name
from portal_user.pages.tenants.access import why_no_kubeconfig
from portal_user.pages.waiting_pods import SHOWS, WaitingPods, namespaces_of, waiting_pods
from protocol.tenancy.workspaces import BindingState
from slices.models import Namespace

S = GprState
HELD_BACK_SHOWN, WORKLOADS_SHOWN = 5, 5


@dataclass(frozen=True, slots=True)
class BoxPods:
    """Shows pods that are in its box, and what keeps some of them from running."""

    text: str  # empty: none is there
    held_back: tuple[str, ...]
    url: str
    workloads: tuple[tuple[str, str], ...]  # name and address

    @classmethod
    def of(cls, gpr: Gpr) -> BoxPods:
        there = Pod.objects.filter(gpr=gpr, gone_at=None)
        running = there.filter(pods_in(PodView.RUNNING)).aggregate(count=Count("pk"), gpus=Sum("gpu_count", default=0))
        kept = list(there.filter(pods_in(PodView.HELD_BACK)).order_by("created_at", "pk").values_list("name", "why")[: HELD_BACK_SHOWN + 1])
        carried = gpr.workloads.exclude(state=WorkloadState.ENDED).order_by("-created_at", "pk")[:WORKLOADS_SHOWN]
        more = ["and more"] if len(kept) > HELD_BACK_SHOWN else []
        is_any = running["count"] or kept
        return cls(
            text=f"{words.plural(running['count'], 'pod')} with {words.plural(running['gpus'], 'GPU')} in its box" if is_any else "",
            held_back=(*(f"{name}. {why or 'It starts.'}" for name, why in kept[:HELD_BACK_SHOWN]), *more),
            url=f"{reverse('pods')}?{urlencode({'gpr': str(gpr.pk)})}",
            workloads=tuple((each.name, reverse("workload", args=[each.pk])) for each in carried),
        )


@dataclass(frozen=True, slots=True)
class Use:
    title: str
    hint: str
    places: str  # its namespaces that are ready; empty: none
    access_url: str
    kubeconfig_url: str  # empty: not possible
    box_pods: BoxPods | None  # None: it has no box
    pods: tuple[WaitingPods, ...]
    commands: str
    job: ExampleJob | None
    job_url: str
    job_says: str
    runs_url: str  # of the page of its job; empty: it has none
    run_url: str  # of the form of a job; empty: the reader may start none here

    @classmethod
    def of(cls, gpr: Gpr, request: PageRequest, *, may_change: bool) -> Use | None:
        if gpr.state not in SHOWS:
            return None
        rows = namespaces_of(gpr)
        ready = _ready(gpr, rows)
        runs = getattr(gpr, "job_pk", None)
        job = _job(gpr, ready[0]) if ready and runs is None else None
        kubeconfig_url = _kubeconfig_url(gpr, ready[0], request) if ready else ""
        cluster = ready[0].cluster.name if kubeconfig_url else ""
        return cls(
            title="Use it now" if gpr.state == S.ACTIVE else "Use it when it starts",
            hint="" if gpr.state == S.ACTIVE else "Pods may be made now: they wait for it.",
            places=", ".join(f"{row.name} in {row.cluster.name}" for row in ready),
            access_url=reverse("access", args=[gpr.slice.name]),
            kubeconfig_url=kubeconfig_url,
            box_pods=BoxPods.of(gpr) if gpr.state in PROVISIONED else None,
            pods=waiting_pods(gpr, rows, request),
            commands="\n".join(_commands(gpr, cluster, job, may_change=may_change, may_run=bool(ready) and runs is None)),
            job=job,
            job_url=reverse("gpr-job", args=[gpr.pk]) if job else "",
            job_says=_job_says(job) if job else "",
            runs_url=reverse("job", args=[runs]) if runs else "",
            run_url=reverse("gpr-run", args=[gpr.pk]) if ready and runs is None and may_change else "",
        )


def box_job(gpr: Gpr) -> ExampleJob | None:
    """Returns None if no namespace can run it, or the number of GPUs of its nodes is unknown."""
    ready = _ready(gpr, namespaces_of(gpr)) if gpr.state in SHOWS else []
    return _job(gpr, ready[0]) if ready else None


def _ready(gpr: Gpr, rows: Sequence[Namespace]) -> list[Namespace]:
    """Namespaces of the cluster where it is planned come first."""
    ready = [row for row in rows if row.state == BindingState.READY]
    promise = gpr.current_promise if gpr.state == S.QUEUED else None
    if promise is None or len({row.cluster_id for row in ready}) < 2:
        return ready
    planned = set(Node.objects.filter(pk__in=promise.slot_nodes[:1]).values_list("cluster_id", flat=True))
    return sorted(ready, key=lambda row: row.cluster_id not in planned)


def _job(gpr: Gpr, namespace: Namespace) -> ExampleJob | None:
    gpus_per_node = gpr.gpus_per_node or gpus_of_nodes(gpr, namespace)
    if gpus_per_node is None:
        return None
    return ExampleJob(
        name=job_name(gpr.name),
        namespace=namespace.name,
        node_count=gpr.nodes,
        gpus_per_node=gpus_per_node,
        is_part=gpr.gpus_per_node is not None,
        grace_s=namespace.cluster.drain_force_after_s,
    )


def gpus_of_nodes(gpr: Gpr, namespace: Namespace) -> int | None:
    """Returns the fewest GPUs that one of its nodes has, or may have."""
    nodes = Node.objects.filter(cluster=namespace.cluster_id, gone_at=None, gpu_count__gt=0)
    if gpr.state in PROVISIONED:
        nodes = nodes.filter(reservations__gpr=gpr, reservations__run=gpr.run)
    elif gpr.shape:
        nodes = nodes.filter(shape=gpr.shape)
    else:
        nodes = nodes.filter(gpu_memory_gib__gte=gpr.min_gpu_memory_gib)
    fewest: int | None = nodes.aggregate(fewest=Min("gpu_count"))["fewest"]
    return fewest


def _job_says(job: ExampleJob) -> str:
    return f"{words.plural(job.node_count, 'pod')} with {words.plural(job.gpus_per_node, 'GPU')}{' each' if job.node_count > 1 else ''}"


def _kubeconfig_url(gpr: Gpr, namespace: Namespace, request: PageRequest) -> str:
    if why_no_kubeconfig(request, gpr.slice):
        return ""
    return f"{reverse('kubeconfig-ask', args=[gpr.slice.name])}?{urlencode({'cluster': namespace.cluster.name})}"


def _commands(gpr: Gpr, cluster: str, job: ExampleJob | None, *, may_change: bool, may_run: bool) -> Iterator[str]:
    """`cluster`: for which the reader can get a kubeconfig; or none."""
    if cluster:
        file = f"{gpr.slice.name}.kubeconfig"
        yield f"egs kubeconfig -n {gpr.slice.name} --cluster {cluster} -f {file}"
        if job and may_change:
            yield f"kubectl --kubeconfig {file} apply -f {job.name}.yaml"
    waits = gpr.state in {S.PENDING_APPROVAL, S.QUEUED}
    yield f"egs gpr {'watch' if waits else 'show'} {gpr.name}"
    if not may_change:
        return
    if may_run:
        yield f"egs run --in {gpr.name} --image {IMAGE} -- COMMAND"
    if gpr.state == S.ACTIVE:
        yield f"egs gpr extend {gpr.name} 1h"
    yield f"egs gpr {'cancel' if waits else 'release'} {gpr.name}"
