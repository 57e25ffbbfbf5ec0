"""Runs checks as Jobs, one for each attempt.

An assignment has at most one at work, as far as the cluster tells. Attempts of a box do not wait for each other. A Job's name comes from
what it is for, so that creating it twice makes one, and an agent that restarts finds it and its result.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from protocol.cluster_names import CHECK_OF, CHECK_SERVICE, CHECK_STEP, GPU, INDEX_OF_POD, JOB_OF_POD, NAMESPACE, NODE_UID, TAINT
from worker_agent.cluster.base import ClusterError, WriteConflict
from worker_agent.kube.api import objects
from worker_agent.kube.api.client import TIMEOUT_S, Api, Forbidden, Missing
from worker_agent.kube.api.objects import BatchJob, Condition, Meta, Pod, TerminatedState
from worker_agent.kube.checks.gang_logs import GangLogs, PodOutput

JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
HOSTNAME: Final = "kubernetes.io/hostname"
VIEW_S: Final = 0.5  # how old a view of all Jobs may be
KEPT_S: Final = 600  # how long a Job that ended is kept
GRACE_S: Final = 5
# A Job is marked as failed only once its pods have ended, which never happens where the node is silent. So this is GRACE_S and some more.
FAILING_S: Final = 15.0
STUCK_S: Final = 120.0  # after so long a pod of an earlier attempt will not end, because its node is silent
LOG_BYTES: Final = 256 * 1024
LOG_TIMEOUT_S: Final = 0.5  # for logs of a gang: it is tried again, and exits wait meanwhile
TEXT_CHARS: Final = 600
# The pod exists, and its image or our manifest is wrong.
IMAGE_TROUBLE: Final = frozenset(
    {"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "ImageInspectError"}
)
NOT_FOUND: Final = 127  # exit code of a shell without the program, but also of the loader without a library
VOLUME: Final = "/volume"
NO_POD: Final = "no pod was made for it"
NO_RIGHT: Final = "cannot create resource"  # in a 403 by RBAC; those of policies, webhooks and quotas have other texts
GUEST_LIMITS: Final = {"cpu": "250m", "memory": "128Mi"}  # of a pod on a node that a workspace uses


class CheckJob(msgspec.Struct, frozen=True, kw_only=True):
    owner: str  # an assignment or an attempt of a box: it has one Job at work at a time
    epoch: int
    step: str
    attempt: int
    nodes: tuple[str, ...]  # each gets a pod
    image: str
    command: tuple[str, ...]
    deadline_s: int
    gpus: int = 0
    capabilities: tuple[str, ...] = ()  # of Linux
    volume: str | None = None  # storage class of a volume that lives as long as the pod; "" for the default class
    shared_memory_mib: int = 0  # size of /dev/shm
    is_guest: bool = False  # on nodes at work, where it needs no free capacity and may use little
    runtime_class: str = ""
    pull_secret: str = ""
    tools: tuple[str, ...] = ()  # programs that its shell runs

    @property
    def name(self) -> str:
        identity = "/".join((self.owner, str(self.epoch), self.step, str(self.attempt), *(self.nodes if self.is_gang else ())))
        return f"egs-check-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    @property
    def is_gang(self) -> bool:
        return len(self.nodes) > 1

    @property
    def hosts(self) -> str:
        """Returns the DNS names of the pods of a gang; {} is the index."""
        return f"{self.name}-{{}}.{CHECK_SERVICE}"


class CheckJobOutcome(msgspec.Struct, frozen=True, kw_only=True):
    output: str = ""
    why: str = ""  # why it failed, as a sentence
    blames_node: bool = True
    pod: Pod | None = None  # None where it was deleted
    gang: tuple[PodOutput, ...] = ()


class CheckJobs:
    def __init__(self, api: Api, *, mono: Callable[[], float] = time.monotonic) -> None:
        self._api, self._mono = api, mono
        self._jobs: dict[str, BatchJob] = {}
        self._pods: list[Pod] = []
        self._seen_mono = float("-inf")
        self._wrote_mono: dict[str, float] = {}  # by owner: earlier views do not show our last write
        self._begun: dict[str, str] = {}  # by owner: the Job that this process has seen or created
        self._stuck_since: dict[str, float] = {}
        self._waited_for: dict[str, str] = {}  # by Job: what its pod last waited for
        self._failing_since: dict[str, float] = {}  # by Job
        self._gang_logs = GangLogs(lambda pod: self._words(pod, terminated(pod), timeout_s=LOG_TIMEOUT_S), mono=mono)

    def poll(self, work: CheckJob) -> CheckJobOutcome | None:
        """Creates or follows the Job; returns None while it runs. Raises ClusterError."""
        self._look()
        if self._seen_mono <= self._wrote_mono.get(work.owner, float("-inf")):
            return None
        job = self._jobs.get(work.name)
        ended = self._follow(work, job) if job else self._begin(work)
        if ended is not None:
            self._begun.pop(work.owner, None)
            self._waited_for.pop(work.name, None)
            self._stuck_since.pop(work.owner, None)
        return ended

    # -- what there is -------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = self._mono()
        if now - self._seen_mono < VIEW_S:
            return
        jobs = self._api.get(JOBS, objects.BatchJobList, labelSelector=CHECK_OF).items
        self._pods = list(self._api.get(PODS, objects.PodList, labelSelector=CHECK_OF).items)
        self._jobs = {job.metadata.name: job for job in jobs}
        self._failing_since = {name: self._failing_since.get(name, now) for name, job in self._jobs.items() if job.failing is not None}
        self._gang_logs.forget_all_but(self._jobs)
        self._seen_mono = now

    def _pod_of(self, name: str) -> Pod | None:
        """Returns the newest: a Job has another pod only where the first was deleted."""
        pods = [pod for pod in self._pods if pod.metadata.label(JOB_OF_POD) == name]
        return max(pods, key=lambda pod: str(pod.metadata.creationTimestamp), default=None)

    # -- begin ---------------------------------------------------------------------------------------------------------

    def _begin(self, work: CheckJob) -> CheckJobOutcome | None:
        if self._begun.get(work.owner) == work.name:
            return CheckJobOutcome(why="its Job was deleted by somebody while it ran", blames_node=False)
        self._clear_others(work)
        if self._is_another_at_work(work):
            since = self._stuck_since.setdefault(work.owner, self._mono())
            return (
                CheckJobOutcome(why="the pod of an earlier attempt does not end: its node does not answer")
                if self._mono() - since > STUCK_S
                else None
            )
        self._wrote(work.owner)
        try:
            self._api.create(JOBS, manifest(work), BatchJob)
        except Missing:
            return CheckJobOutcome(why=f"there is no namespace {NAMESPACE}", blames_node=False)
        except WriteConflict:
            pass  # our own Job, whose answer was lost
        except Forbidden as error:
            if NO_RIGHT in str(error):
                raise  # perhaps an API server that has just started: it is tried again
            return CheckJobOutcome(why=f"the cluster refuses its Job: {error}", blames_node=False)
        self._begun[work.owner] = work.name
        return None

    def _clear_others(self, work: CheckJob) -> None:
        for job in self._jobs.values():
            if job.metadata.label(CHECK_OF) == work.owner and job.metadata.name != work.name and not job.metadata.deletionTimestamp:
                self._delete(job)

    def _is_another_at_work(self, work: CheckJob) -> bool:
        pods = (pod for pod in self._pods if pod.metadata.label(CHECK_OF) == work.owner)
        return any(not pod.is_over and pod.metadata.label(JOB_OF_POD) != work.name for pod in pods)

    def _delete(self, job: BatchJob) -> None:
        self._wrote(job.metadata.label(CHECK_OF))
        try:
            self._api.delete(f"{JOBS}/{job.metadata.name}", uid=job.metadata.uid)
        except WriteConflict:
            return  # deleted already

    def _wrote(self, owner: str) -> None:
        self._wrote_mono[owner] = self._mono()

    # -- follow --------------------------------------------------------------------------------------------------------

    def _follow(self, work: CheckJob, job: BatchJob) -> CheckJobOutcome | None:
        self._begun[work.owner] = work.name
        pod = self._pod_of(work.name)
        if (over := self._over(job)) is not None:
            return self._read_gang(work, over) if work.is_gang else self._read(work, over, pod)
        if job.metadata.deletionTimestamp:
            return CheckJobOutcome(why="its Job was deleted by somebody while it ran", blames_node=False)
        if work.is_gang:
            return None
        if pod is None:
            self._waited_for.setdefault(work.name, _why_podless(work))
            return None
        reason, text = waits_for(pod)
        self._waited_for[work.name] = text
        if reason not in IMAGE_TROUBLE:
            return None
        self._delete(job)
        return CheckJobOutcome(why=f"its pod cannot start with the image {work.image}: {text}", blames_node=False)

    def _over(self, job: BatchJob) -> Condition | None:
        if job.ended is not None or job.failing is None:
            return job.ended
        since = self._failing_since[job.metadata.name]
        return job.failing if self._mono() - since >= FAILING_S else None

    def _read(self, work: CheckJob, ended: Condition, pod: Pod | None) -> CheckJobOutcome:
        state = terminated(pod)
        if ended.type == "Complete":
            return CheckJobOutcome(output=self._last_words(pod, state), pod=pod)
        if ended.reason == "DeadlineExceeded":
            return self._late(work)
        if state is None:
            return CheckJobOutcome(why="its pod was taken away before it ended")
        words = self._last_words(pod, state)
        if is_image_at_fault(work, state.exitCode, words):
            return CheckJobOutcome(why=f"the image {work.image} lacks a program: {words[-TEXT_CHARS:]}", blames_node=False)
        if state.reason not in ("Error", ""):
            return CheckJobOutcome(why=f"its pod was ended: {state.reason}, exit code {state.exitCode}")
        return CheckJobOutcome(why=f"it broke off with exit code {state.exitCode}: {words[-TEXT_CHARS:]}".strip(": "))

    def _read_gang(self, work: CheckJob, ended: Condition) -> CheckJobOutcome | None:
        pods = {pod.metadata.label(INDEX_OF_POD): pod for pod in self._pods if pod.metadata.label(JOB_OF_POD) == work.name}
        outputs = self._gang_logs.read(work.name, {int(index): pod for index, pod in pods.items() if index.isdigit()})
        if outputs is None:
            return None
        why = f"it did not end within {work.deadline_s} s" if ended.reason == "DeadlineExceeded" else ""
        return CheckJobOutcome(why=why, gang=outputs)

    def _late(self, work: CheckJob) -> CheckJobOutcome:
        waited = self._waited_for.get(work.name, "")
        why = f"it did not end within {work.deadline_s} s" + (f"; it waited for this: {waited}" if waited else "")
        # A missing volume or a refused pod would be the same on other nodes.
        return CheckJobOutcome(why=why, blames_node="persistentvolumeclaim" not in waited.lower() and not waited.startswith(NO_POD))

    def _last_words(self, pod: Pod | None, state: TerminatedState | None) -> str:
        try:
            return self._words(pod, state)
        except ClusterError as error:
            return f"its log cannot be read: {error}"

    def _words(self, pod: Pod | None, state: TerminatedState | None, *, timeout_s: float = TIMEOUT_S) -> str:
        """Returns the termination message, or else the end of the log."""
        if state is not None and state.message:
            return state.message
        if pod is None:
            return ""
        return self._api.text(f"{PODS}/{pod.metadata.name}/log", tailLines=20, limitBytes=LOG_BYTES, timeout_s=timeout_s).strip()


def _why_podless(work: CheckJob) -> str:
    # The API server refuses the pod, which its node has nothing to do with.
    asked = f"; is there a RuntimeClass {work.runtime_class}?" if work.runtime_class else ""
    return f"{NO_POD}, see the events of Job {work.name} in {NAMESPACE}{asked}"


def is_image_at_fault(work: CheckJob, exit_code: int, words: str) -> bool:
    """Tell whether the image lacks a program. A missing program or library of the runtime is the node's fault."""
    if f'exec: "{work.command[0]}": executable file not found' in words:
        return True
    return exit_code == NOT_FOUND and any(_says_missing(tool, words) for tool in work.tools)


def _says_missing(tool: str, words: str) -> bool:
    """Finds it in a line of a shell or of env: `nccl: 7: tool: not found`, `env: 'tool': No such file or directory`."""
    return re.search(rf"(?<![\w./-]){re.escape(tool)}\W?: (command not found|not found|No such file or directory)", words) is not None


def terminated(pod: Pod | None) -> TerminatedState | None:
    states = [status.state.terminated for status in pod.status.containerStatuses] if pod else []
    return states[0] if states else None


def waits_for(pod: Pod) -> tuple[str, str]:
    """Says why the pod does not run yet: a reason of Kubernetes, and a sentence. Empty where it runs."""
    if pod.status.phase != "Pending":
        return "", ""
    for status in pod.status.containerStatuses:
        if waiting := status.state.waiting:
            return waiting.reason, f"{waiting.reason}: {waiting.message}".strip(": ")[:TEXT_CHARS]
    unplaced = next((each for each in pod.status.conditions if each.type == "PodScheduled" and each.status != "True"), None)
    return ("", f"{unplaced.reason}: {unplaced.message}"[:TEXT_CHARS]) if unplaced else ("", "")


def manifest(work: CheckJob) -> dict[str, Any]:
    labels = {CHECK_OF: work.owner, CHECK_STEP: work.step}
    meta = msgspec.to_builtins(Meta(name=work.name, namespace=NAMESPACE, labels=labels))
    spec = {
        "activeDeadlineSeconds": work.deadline_s,
        "ttlSecondsAfterFinished": KEPT_S,
        "template": {"metadata": {"labels": labels}, "spec": _pod(work)},
        **(_one_for_each(len(work.nodes)) if work.is_gang else {"backoffLimit": 0}),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def _one_for_each(count: int) -> dict[str, Any]:
    return {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimitPerIndex": 0,
        "maxFailedIndexes": count,  # a pod that fails does not end the others
    }


def _pod(work: CheckJob) -> dict[str, Any]:
    volumes = _volumes(work)
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "affinity": _only_on(work.nodes) | (_apart(work) if work.is_gang else {}),
        # It tolerates what keeps other pods off the node. It does not tolerate NoExecute, so that it leaves a silent node.
        "tolerations": [*({"key": key, "operator": "Exists"} for key in (TAINT, GPU)), {"operator": "Exists", "effect": "NoSchedule"}],
        "containers": [_container(work, [{"name": name, "mountPath": at} for name, (at, _) in volumes.items()])],
        "volumes": [{"name": name, **source} for name, (_, source) in volumes.items()],
        **({"subdomain": CHECK_SERVICE} if work.is_gang else {}),
        **({"runtimeClassName": work.runtime_class} if work.runtime_class else {}),
        **({"imagePullSecrets": [{"name": work.pull_secret}]} if work.pull_secret else {}),
    }


def _container(work: CheckJob, mounts: list[dict[str, str]]) -> dict[str, Any]:
    requests = {"cpu": "500m", "memory": f"{256 + work.shared_memory_mib}Mi"}
    limits = {GPU: str(work.gpus)} if work.gpus else {}
    if work.is_guest:
        # Explicit zeros: a limit without a request would be a request of the same amount.
        requests, limits = {"cpu": "0", "memory": "0"}, limits | GUEST_LIMITS
    return {
        "name": "check",
        "image": work.image,
        "command": list(work.command),
        # Kubernetes adds JOB_COMPLETION_INDEX.
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}] if work.is_gang else [],
        "resources": {"requests": requests, "limits": limits},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": list(work.capabilities)},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _only_on(nodes: Sequence[str]) -> dict[str, Any]:
    # The policy egs-agent-job requires the mark of managed nodes.
    marked = {"matchExpressions": [{"key": NODE_UID, "operator": "Exists"}]}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}], **marked} for node in nodes]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _apart(work: CheckJob) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {CHECK_OF: work.owner}}, "topologyKey": HOSTNAME}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _volumes(work: CheckJob) -> Mapping[str, tuple[str, dict[str, Any]]]:
    """Returns mount path and source by name."""
    volumes: dict[str, tuple[str, dict[str, Any]]] = {"tmp": ("/tmp", {"emptyDir": {}})}  # noqa: S108  # the pod's own
    if work.shared_memory_mib:
        volumes["shm"] = ("/dev/shm", {"emptyDir": {"medium": "Memory", "sizeLimit": f"{work.shared_memory_mib}Mi"}})  # noqa: S108
    if work.volume is not None:
        # It is created and deleted with the pod, also where its class waits for the first consumer.
        claim: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        claim |= {"storageClassName": work.volume} if work.volume else {}
        volumes["volume"] = (VOLUME, {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}})
    return volumes
