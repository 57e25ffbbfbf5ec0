"""Shows what a filled form of a job becomes: the objects in the cluster, and the command that does the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from core.errors import InvalidInput
from core.pages import words
from gpr.jobs.selectors import workload_of
from gpr.jobs.spec import job_check
from gpr.models import Gpr, Job
from gpr.requests.spec import GprSpec
from portal_user.as_api import creation_body, job_body
from portal_user.forms import GprForm
from portal_user.job_form import BoxJobForm, JobFieldsForm, JobForm
from portal_user.pages.capacity import Stock
from portal_user.pages.requests.use import gpus_of_nodes
from protocol.manifests.text import documents_write
from protocol.tenancy.job_objects import BoxFacts, objects_of
from protocol.tenancy.workloads import WorkloadKind
from slices.models import Namespace

NO_NUMBER: Final = UUID(int=0)  # it gets one when it is filed
GRACE_S: Final = 120  # where no cluster is known
# The options of `egs run`, by the API's fields. Others are written below.
OPTIONS: Final = {
    "name": "--name",
    "template": "--template",
    "shape": "--shape",
    "min_gpu_memory_gib": "--memory",
    "nodes": "--nodes",
    "gpus_per_node": "--gpus",
    "priority": "--priority",
    "clusters": "--cluster",
    "after": "--after",
    "after_condition": "--after-condition",
    "node_type": "--node-type",
    "within": "--within",
}
FLAGS: Final = {
    "rdma": "rdma",
    "evictable": "evictable",
    "may_evict": "may-evict",
    "requeue_on_failure": "requeue",
    "run_checks": "checks",
}
OF_JOB: Final = {"image": "--image", "secrets": "--secret", "pull_secret": "--pull-secret", "user_id": "--user", "retries": "--retries"}


@dataclass(frozen=True, slots=True)
class JobPreview:
    command: str
    manifest: str

    @classmethod
    def of(cls, form: GprForm, stock: Sequence[Stock]) -> JobPreview | None:
        """Returns None if the form is of no job, or not complete."""
        if not isinstance(form, JobForm) or not _is_complete(form):
            return None
        spec = form.spec()
        gpr = Gpr(pk=NO_NUMBER, slice=spec.slice, name=spec.name, nodes=spec.nodes, rdma=spec.rdma, run=1)
        clusters = list(spec.clusters or spec.slice.clusters.all())
        per_node = max((kind.gpus_per_node for kind in stock if spec.shape in {"", kind.shape}), default=1)
        namespaces = [each for each in form.namespaces() if each.cluster in clusters]
        box = [["egs", "run", "-n", spec.slice.name], *_box(form, spec)]
        return cls(_command(form, box), _manifest(form, gpr, namespaces, spec.gpus_per_node or per_node))

    @classmethod
    def in_box(cls, form: BoxJobForm) -> JobPreview | None:
        """Returns None if the form is not complete."""
        if not _is_complete(form):
            return None
        gpr, namespaces = form.gpr, form.namespaces()
        gpus_per_node = gpr.gpus_per_node or (gpus_of_nodes(gpr, namespaces[0]) if namespaces else None) or 1
        return cls(_command(form, [["egs", "run", "--in", gpr.name]]), _manifest(form, gpr, namespaces, gpus_per_node))


def _is_complete(form: JobFieldsForm) -> bool:
    if not form.is_bound or not form.is_valid():
        return False
    try:
        job_check(form.what())
    except InvalidInput:
        return False
    return True


def _manifest(form: JobFieldsForm, gpr: Gpr, namespaces: Sequence[Namespace], gpus_per_node: int) -> str:
    work = workload_of(Job(pk=NO_NUMBER, gpr=gpr, **asdict(form.what())), [each.name for each in namespaces])
    grace_s = max((each.cluster.drain_force_after_s for each in namespaces), default=GRACE_S)
    return documents_write(objects_of(work, BoxFacts(gpus_per_node, grace_s)))


def _command(form: JobFieldsForm, box: Sequence[Sequence[str]]) -> str:
    """Writes the options of a box first, then what runs."""
    what, parts = form.what(), list(box)
    if what.kind == WorkloadKind.MANIFEST:
        parts.append(["--file", "job.yaml"])
    elif what.kind != WorkloadKind.JOB:
        parts.append(["--kind", what.kind])
    if what.namespace:
        parts.append(["--namespace", what.namespace])
    template = form.spec().template if isinstance(form, JobForm) else None
    parts += _plain(OF_JOB, job_body(what, template))
    parts += [["--env", f"{name}={value}"] for name, value in what.env.items()]
    parts += [["--volume", f"{claim}:{path}"] for claim, path in what.volumes.items()]
    if what.checkpoint:
        parts.append(["--checkpoint", what.checkpoint[-1]])
    if not what.releases_box and not isinstance(form, BoxJobForm):
        parts.append(["--keep"])
    if what.command:
        parts.append(["--", *what.command])
    return " \\\n  ".join(shlex.join(part) for part in parts)


def _box(form: JobForm, spec: GprSpec) -> Iterator[list[str]]:
    said = creation_body(spec)
    if not form.cleaned_data["name"]:
        del said["name"]
    yield from _plain(OPTIONS, said)
    if "duration_s" in said:
        yield ["--duration", words.duration_exact(spec.duration_s).replace(" ", "")]
    if spec.earliest_start_at is not None:
        # The command reads times of its own zone, which is most often that of the reader.
        yield ["--at" if spec.is_booking else "--not-before", f"{timezone.localtime(spec.earliest_start_at):%Y-%m-%dT%H:%M:%S}"]
    if "idle_timeout_s" in said:
        yield ["--idle-timeout", f"{said['idle_timeout_s']}s" if said["idle_timeout_s"] else "0"]
    for name, option in FLAGS.items():
        if name in said:
            yield [f"--{option}" if said[name] else f"--no-{option}"]
    for name, value in said.get("model", {}).items():
        yield ["--model", f"{name}={value}"]


def _plain(options: Mapping[str, str], said: Mapping[str, Any]) -> list[list[str]]:
    found = ((option, said[name]) for name, option in options.items() if name in said)
    return [[option, str(each)] for option, value in found for each in (value if isinstance(value, list) else [value])]
