"""Makes the objects of jobs while their boxes are open, deletes them when the boxes close, and reports how the jobs go.

An object is never changed: each run has its own. An object that others made is left alone, also if it has the wanted name. It deletes
objects by the labels that the agent wrote, so that an agent that restarts finds them; a person who writes these labels loses only that
object. Must not live here: what the objects are (protocol/tenancy/job_objects.py), when a box is open (boxes/core.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from protocol.cluster_names import INDEX_OF_POD, JOB, JOB_BOX, JOB_FIELD_MANAGER
from protocol.manifests.objects import MANIFEST_KINDS, objects_fault
from protocol.tenancy.job_objects import BoxFacts, Object, main_of, objects_of, owner_label, pod_selector
from protocol.tenancy.notebooks import NO_INGRESS, PARTS, IngressWay
from protocol.tenancy.workloads import WorkloadKind, WorkloadPhase, WorkloadSeen
from worker_agent.cluster.base import ClusterError, Note, Throttled, Unavailable, WriteConflict
from worker_agent.hub.workloads import NO_NAMESPACE, BoxJob, PodLogPart, Run
from worker_agent.kube.api.client import Api, Forbidden, Missing
from worker_agent.kube.api.custom import ServedKinds
from worker_agent.kube.api.objects import Condition, Meta, Node, Pod
from worker_agent.kube.api.paging import ObjectPage, listed
from worker_agent.kube.checks.jobs import terminated, waits_for
from worker_agent.kube.jobs.logs import PodLogs
from worker_agent.kube.nodes.view import is_rdma

LOOK_S: Final = 2.0  # between lists of objects
LOOK_AT_ALL_S: Final = 60.0  # between looks for objects of boxes that closed while no agent was at work
KINDS_S: Final = 300.0  # between looks which kinds there are
TEXT_MAX: Final = 400
# The conditions of all kinds that finish.
DONE: Final = frozenset({"Complete", "Completed", "Succeeded"})
FAILED: Final = "Failed"
# Kinds with a definition of their own, by group version.
OPTIONAL: Final = {key: plural for key, plural in MANIFEST_KINDS.items() if "." in key[0].partition("/")[0]}

Place = tuple[str, str, str]  # path of the kind, namespace, name


class _Status(msgspec.Struct, frozen=True, kw_only=True):
    conditions: tuple[Condition, ...] | None = None
    active: int | None = None
    ready: int | None = None


class _Object(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Meta
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class _Found:
    uid: str
    run: Run
    seen: _Object


class KubernetesWorkloads:
    """One thread uses it. `bound`: the workspace to which the agent bound a namespace, or ""."""

    def __init__(
        self,
        *,
        api: Api,
        bound: Callable[[str], str],
        pods: Callable[[], Iterable[Pod]],
        nodes: Callable[[], Iterable[Node]],
        why: Callable[[Pod], str],
        note: Note,
        ingress: IngressWay = NO_INGRESS,
    ) -> None:
        self._api, self._bound, self._pods, self._nodes, self._why, self._note = api, bound, pods, nodes, why, note
        self._ingress = ingress
        self._logs = PodLogs(api)
        self._kinds: tuple[str, ...] | None = None
        self._kinds_not_before_mono = self._all_not_before_mono = self._not_before_mono = float("-inf")
        self._found: dict[Place, _Found] = {}
        self._listed_paths: set[str] = set()  # kinds that have objects of ours
        self._made: dict[tuple[str, int], str] = {}  # by job and run whose objects this process made, or saw: the namespace
        self._taken: set[Place] = set()  # places where the last creation found something
        self._seen: dict[str, WorkloadSeen] = {}
        self._told = ""

    # -- kinds ---------------------------------------------------------------------------------------------------------

    def kinds(self) -> tuple[str, ...] | None:
        now_mono = time.monotonic()
        if now_mono >= self._kinds_not_before_mono:
            self._kinds_not_before_mono = now_mono + KINDS_S
            try:
                served = {kind for version, kind in OPTIONAL if self._is_served(version, kind)}
                self._kinds = tuple(sorted({WorkloadKind.JOB, WorkloadKind.NOTEBOOK, *served}))
            except ClusterError as error:
                self._note("job_kinds_unseen", {"why": str(error)})
        return self._kinds

    def _is_served(self, version: str, kind: str) -> bool:
        try:
            return self._api.get(f"/apis/{version}", ServedKinds).may_create(OPTIONAL[version, kind])
        except Missing:
            return False

    def _paths(self) -> list[str]:
        served = set(self._kinds or ())
        return [
            _path(version, plural)
            for (version, kind), plural in MANIFEST_KINDS.items()
            if (version, kind) not in OPTIONAL or kind in served
        ]

    # -- one look ------------------------------------------------------------------------------------------------------

    def reconcile(self, jobs: Sequence[BoxJob], runs: Collection[Run], *, now_s: float) -> Sequence[WorkloadSeen]:
        now_mono = time.monotonic()
        is_new = any((job.workload.id, job.workload.run) not in self._made for job in jobs)
        is_over = any(found.run not in runs for found in self._found.values())
        if now_mono < self._not_before_mono and not is_new and not is_over:
            return list(self._seen.values())
        self._not_before_mono = now_mono + LOOK_S
        try:
            self._look(jobs, now_mono)
            self._delete_closed(runs)
        except ClusterError as error:
            self._trouble(str(error))
            return list(self._seen.values())
        self._told = ""
        self._seen = {job.workload.id: self._advance(self._where_it_runs(job)) for job in jobs}
        there = {(job.workload.id, job.workload.run) for job in jobs}
        self._made = {key: namespace for key, namespace in self._made.items() if key in there}
        return list(self._seen.values())

    def _trouble(self, why: str) -> None:
        if why != self._told:
            self._told = why
            self._note("jobs_unseen", {"why": why})

    def _look(self, jobs: Sequence[BoxJob], now_mono: float) -> None:
        """Raises ClusterError."""
        objects = (each for job in jobs for each in self._objects(job) if _is_listed(each))
        paths = {_path(each["apiVersion"], _plural(each)) for each in objects} | self._listed_paths
        if now_mono >= self._all_not_before_mono:
            paths |= set(self._paths())
        found: dict[Place, _Found] = {}
        for path in sorted(paths):
            for each in listed(self._api, path, ObjectPage[_Object], labelSelector=JOB):
                if (run := _run_of(each.metadata)) is not None and not each.metadata.deletionTimestamp:
                    found[path, each.metadata.namespace, each.metadata.name] = _Found(each.metadata.uid, run, each)
        self._found, self._listed_paths = found, {path for path, _, _ in found}
        if now_mono >= self._all_not_before_mono:
            self._all_not_before_mono = now_mono + LOOK_AT_ALL_S

    def _delete_closed(self, runs: Collection[Run]) -> None:
        for (path, namespace, name), found in list(self._found.items()):
            if found.run in runs:
                continue
            try:
                self._api.delete(_object_path(path, namespace, name), uid=found.uid)
            except (WriteConflict, Forbidden) as error:
                # It is gone already; or the namespace is no workspace's any more, and the object belongs to whoever has it now.
                self._note("job_not_deleted", {"namespace": namespace, "name": name, "why": str(error)})
            del self._found[path, namespace, name]

    def _objects(self, job: BoxJob) -> list[Object]:
        if job.workload.kind == WorkloadKind.MANIFEST and objects_fault(job.workload.objects):
            return []  # the hub checks this; the agent trusts nobody with what it may make
        try:
            box = BoxFacts(job.box.gpus_per_node, int(job.box.drain.force_after_s), self._rdma(job), self._ingress)
            return objects_of(job.workload, box)
        except ValueError:  # a kind of a newer hub
            return []

    def _rdma(self, job: BoxJob) -> str:
        """Returns a device for RDMA that all of the nodes have, or ""."""
        if not job.workload.rdma:
            return ""
        nodes = [node for node in self._nodes() if node.metadata.name in job.box.nodes]
        had = [{key for key, amount in node.status.allocatable.items() if is_rdma(key) and amount != "0"} for node in nodes]
        return min(set.intersection(*had), default="") if had else ""

    def _where_it_runs(self, job: BoxJob) -> BoxJob:
        """A run stays in the namespace where it began, though its workspace has others meanwhile."""
        work = job.workload
        began = self._made.get((work.id, work.run), "")
        if not began:
            of_run = ((place[1], found) for place, found in self._found.items() if found.run == (work.gpr_id, work.run))
            own = (name for name, found in of_run if found.seen.metadata.label(JOB) == work.id and self._bound(name) == work.slice)
            began = next(own, "")
        return job._replace(workload=msgspec.structs.replace(work, namespace=began)) if began else job

    # -- one job -------------------------------------------------------------------------------------------------------

    def _advance(self, job: BoxJob) -> WorkloadSeen:
        work = job.workload
        if not work.namespace:
            return _seen(job, WorkloadPhase.REFUSED, NO_NAMESPACE)
        if self._bound(work.namespace) != work.slice:
            return _seen(job, WorkloadPhase.PENDING, f"Namespace {work.namespace} is not ready.")
        objects = self._objects(job)
        if not objects:
            return _seen(job, WorkloadPhase.REFUSED, f"This agent makes no {work.kind}. Upgrade it.")
        main = main_of(objects)
        has_main = main is not None and self._find(main) is not None
        # The main object owns the objects after it; they may be missing when the agent was interrupted.
        if (work.id, work.run) not in self._made and (not has_main or work.kind == WorkloadKind.NOTEBOOK):
            if unmade := self._make(job, objects):
                return unmade
        elif main is not None and not has_main:
            return _seen(job, WorkloadPhase.FAILED, f"Somebody deleted {main['kind']} {main['metadata']['name']} in the cluster.")
        self._made[work.id, work.run] = work.namespace
        return self._outcome(job, main) if main is not None else _seen(job, WorkloadPhase.RUNNING)

    def _find(self, each: Object) -> _Found | None:
        return self._found.get((_path(each["apiVersion"], _plural(each)), each["metadata"]["namespace"], each["metadata"]["name"]))

    def _make(self, job: BoxJob, objects: Sequence[Object]) -> WorkloadSeen | None:
        """Return why one of them is not there, or None."""
        owner: list[Object] = []
        for each in objects:
            if (found := self._find(each)) is not None:
                owner = owner or _owner(each, found.uid)
                continue
            path = _path(each["apiVersion"], _plural(each))
            key = (path, job.workload.namespace, str(each["metadata"]["name"]))
            is_part = not _is_listed(each)
            if not is_part:
                self._listed_paths.add(path)
            body = {**each, "metadata": {**each["metadata"], "ownerReferences": owner}} if is_part else each
            try:
                made = self._api.create(_object_path(path, job.workload.namespace), body, _Object, fieldManager=JOB_FIELD_MANAGER)
            except (Unavailable, Throttled) as error:
                return _seen(job, WorkloadPhase.PENDING, f"The cluster does not answer: {error}"[:TEXT_MAX])
            except ClusterError as error:
                is_there = isinstance(error, WriteConflict) and not isinstance(error, Missing)
                if is_there and is_part:
                    continue
                if is_there and key not in self._taken:
                    # Perhaps our own, whose answer was lost: the next look tells.
                    self._taken.add(key)
                    self._not_before_mono = float("-inf")
                    return _seen(job, WorkloadPhase.PENDING, "It is being made.")
                return _seen(job, WorkloadPhase.REFUSED, f"{each['kind']} {each['metadata']['name']}: {error.words or error}"[:TEXT_MAX])
            self._taken.discard(key)
            owner = owner or _owner(each, made.metadata.uid)
        return None

    # -- how it goes ---------------------------------------------------------------------------------------------------

    def _outcome(self, job: BoxJob, main: Object) -> WorkloadSeen:
        found = self._find(main)
        if found is None:  # made just now
            return _seen(job, WorkloadPhase.PENDING)
        ends = {each.type: each for each in found.seen.status.conditions or () if each.status == "True"}
        if DONE & ends.keys():
            return _seen(job, WorkloadPhase.SUCCEEDED)
        if FAILED in ends:
            return _seen(job, WorkloadPhase.FAILED, self._why_failed(job, main, ends[FAILED]))
        pods = list(self._pods_of(job, main))
        running = sum(pod.status.phase == "Running" for pod in pods)
        if running and running == len(pods):
            return _seen(job, WorkloadPhase.RUNNING, pods_running=running, url=self._url(job))
        waits = next(
            (text for pod in pods if pod.status.phase != "Running" and (text := self._why(pod) if _is_gated(pod) else waits_for(pod)[1])),
            "",
        )
        message = f"{running} of {len(pods)} pods run. {waits}".strip() if pods else "Its pods are being made."
        return _seen(job, WorkloadPhase.RUNNING if running else WorkloadPhase.PENDING, message, pods_running=running)

    def _url(self, job: BoxJob) -> str:
        return self._ingress.url(job.workload) if job.workload.kind == WorkloadKind.NOTEBOOK else ""

    def _pods_of(self, job: BoxJob, main: Object) -> Iterator[Pod]:
        # The watch leaves out pods that have finished.
        label, name = owner_label(main["kind"]), str(main["metadata"]["name"])
        for pod in self._pods():
            if pod.metadata.namespace == job.workload.namespace and pod.metadata.label(label) == name and not pod.is_leaving:
                yield pod

    def _why_failed(self, job: BoxJob, main: Object, ended: Condition) -> str:
        if (known := self._seen.get(job.workload.id)) is not None and known.phase is WorkloadPhase.FAILED and known.run == job.workload.run:
            return known.message
        name, namespace = main["metadata"]["name"], job.workload.namespace
        pods = self._logs.pods(namespace, f"{owner_label(main['kind'])}={name}")
        for pod in sorted(pods, key=lambda pod: pod.is_leaving):  # its operator ends others after the one that failed
            state = terminated(pod)
            if state is not None and state.exitCode:
                rank = pod.metadata.label(INDEX_OF_POD)
                who = f"Pod {rank}" if rank else f"Pod {pod.metadata.name}"
                cause = f" ({state.reason})" if state.reason not in ("", "Error") else ""
                return f"{who} ended with exit code {state.exitCode}{cause}."
        return f"{ended.reason}: {ended.message}"[:TEXT_MAX].strip(": ")

    # -- output --------------------------------------------------------------------------------------------------------

    def log(self, job: BoxJob, rank: int, since: str) -> PodLogPart | None:
        job = self._where_it_runs(job)
        main = main_of(self._objects(job))
        if main is None or self._bound(job.workload.namespace) != job.workload.slice:
            return PodLogPart("", since)
        selector = pod_selector(main["kind"], main["metadata"]["name"], rank)
        return self._logs.read(job.workload.namespace, selector, rank, since)


def _seen(job: BoxJob, phase: WorkloadPhase, message: str = "", *, pods_running: int = 0, url: str = "") -> WorkloadSeen:
    work = job.workload
    return WorkloadSeen(
        id=work.id, run=work.run, phase=phase, message=message, pods_running=pods_running, namespace=work.namespace, url=url
    )


def _is_gated(pod: Pod) -> bool:
    return bool(pod.spec.schedulingGates)


def _run_of(meta: Meta) -> Run | None:
    gpr_id, _, run = meta.label(JOB_BOX).rpartition(".")
    return (gpr_id, int(run)) if gpr_id and run.isdecimal() and len(run) < 10 else None


def _is_listed(each: Mapping[str, Any]) -> bool:
    return (each["apiVersion"], each["kind"]) not in PARTS


def _owner(each: Mapping[str, Any], uid: str) -> list[Object]:
    return [{"apiVersion": each["apiVersion"], "kind": each["kind"], "name": each["metadata"]["name"], "uid": uid}]


def _plural(each: Mapping[str, Any]) -> str:
    return (MANIFEST_KINDS | PARTS)[each["apiVersion"], each["kind"]]


def _path(version: str, plural: str) -> str:
    return f"/{'apis' if '/' in version else 'api'}/{version}/{plural}"


def _object_path(path: str, namespace: str, name: str = "") -> str:
    group, _, plural = path.rpartition("/")
    return "/".join(part for part in (f"{group}/namespaces/{namespace}/{plural}", name) if part)
