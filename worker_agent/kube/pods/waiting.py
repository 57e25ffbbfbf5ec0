"""Reports to the hub which GPU pods wait and why, which Jobs will exceed their deadlines, and which failed with their box.

Must not live here: any write.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec

from protocol import cluster_names
from protocol.scalars import MOMENT_MAX_S
from protocol.tenancy.waiting_pods import (
    JOBS_WAITING_MAX,
    NAMESPACES_WAITING_MAX,
    PODS_NAMED_MAX,
    REASONS_WAITING_MAX,
    JobFailed,
    JobWaiting,
    PodsWaiting,
    ReasonWaiting,
)
from worker_agent.cluster.base import ClusterError, Note
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.api.objects import Condition, Meta, Owner, Pod
from worker_agent.kube.pods.workloads import is_waiting

EVERY_S: Final = 5.0
EVERY_NAMESPACE_S: Final = 0.1  # added for each namespace in the report, since a long report changes all the time
JOBS_AT_ONCE: Final = 20  # read in one look
JOB_AGAIN_S: Final = 60.0
TROUBLE_S: Final = 30.0  # after a failed read
TEXT_MAX: Final = 200
FAILED: Final = "Failed"
OVER: Final = frozenset({FAILED, "Complete"})
UNPLACED: Final = "It was let in, and the scheduler has not placed it yet. The pod's events in the cluster tell why."

Key = tuple[str, str]  # namespace and UID of a Job; pods may name any UID, even one of another workspace


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    class Spec(msgspec.Struct, frozen=True, kw_only=True):
        activeDeadlineSeconds: int | None = None

    class Status(msgspec.Struct, frozen=True, kw_only=True):
        startTime: datetime | None = None  # None while suspended; then the deadline does not run
        conditions: tuple[Condition, ...] | None = None

    metadata: Meta
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def ends(self) -> frozenset[str]:
        return OVER & {each.type for each in self.status.conditions or () if each.status == "True"}

    @property
    def fails_s(self) -> float | None:
        if self.spec.activeDeadlineSeconds is None or self.status.startTime is None:
            return None
        return min(max(self.status.startTime.timestamp() + self.spec.activeDeadlineSeconds, 0.0), MOMENT_MAX_S)


@dataclass(frozen=True, slots=True)
class _KnownJob:
    read_mono: float
    name: str = ""  # from the Job itself
    fails_s: float | None = None  # None: it has no running deadline
    is_over: bool = False  # also if the Job is gone
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class _Ran:
    """Describes a Job that had pods in the box of this GPR."""

    gpr_id: str
    name: str  # from the Job's pods


@dataclass(slots=True)
class WaitingPodsReporter:
    """One thread uses it. `why` says why a pod waits at the gate."""

    api: Api
    bound: Callable[[str], str]  # returns the workspace of a namespace, or ""
    pods: Callable[[], Iterable[Pod]]
    why: Callable[[Pod], str]
    note: Note
    _not_before_mono: float = float("-inf")
    _jobs_not_before_mono: float = float("-inf")
    _jobs: dict[Key, _KnownJob] = field(default_factory=dict)
    _ran: dict[Key, _Ran] = field(default_factory=dict)
    _failed: list[JobFailed] = field(default_factory=list)

    def look(self) -> tuple[PodsWaiting, ...] | None:
        """Returns None if the last look was a moment ago."""
        now_mono = time.monotonic()
        if now_mono < self._not_before_mono:
            return None
        self._not_before_mono = now_mono + EVERY_S
        waiting: dict[str, list[Pod]] = defaultdict(list)
        there: set[Key] = set()  # Jobs that have pods
        for pod in self.pods():
            waits, gpr_id = is_waiting(pod) or is_unplaced(pod), pod.metadata.label(cluster_names.POD_GPR)
            if not (waits or (gpr_id and pod.holds)) or not self.bound(pod.metadata.namespace):
                continue
            if waits:
                waiting[pod.metadata.namespace].append(pod)
            if owner := job_of(pod):
                key = pod.metadata.namespace, owner.uid
                there.add(key)
                if gpr_id:
                    self._ran[key] = _Ran(gpr_id, owner.name)
        self._ran = {key: ran for key, ran in self._ran.items() if self.bound(key[0])}
        left = {key: ran for key, ran in self._ran.items() if key not in there}
        self._read_jobs(waiting, left, now_mono)
        self._note_over(left)
        told = [self._told(namespace, pods) for namespace, pods in waiting.items()]
        told.sort(key=lambda each: (-each.count, each.namespace))
        self._not_before_mono += len(told) * EVERY_NAMESPACE_S
        return tuple(sorted(told[:NAMESPACES_WAITING_MAX], key=lambda each: each.namespace))

    def take_failed(self) -> tuple[JobFailed, ...]:
        """Returns failures found since the last call."""
        failed, self._failed = tuple(self._failed), []
        return failed

    def _told(self, namespace: str, pods: Sequence[Pod]) -> PodsWaiting:
        by_reason: dict[str, list[str]] = defaultdict(list)
        by_job: dict[tuple[str, float], int] = defaultdict(int)
        for pod in pods:
            by_reason[self._reason(pod)[:TEXT_MAX]].append(pod.metadata.name)
            owner = job_of(pod)
            job = self._jobs.get((namespace, owner.uid)) if owner is not None else None
            if job is not None and job.fails_s is not None:
                by_job[job.name, job.fails_s] += 1
        reasons = sorted(by_reason.items(), key=lambda each: (-len(each[1]), each[0]))[:REASONS_WAITING_MAX]
        jobs = sorted(by_job.items(), key=lambda each: (each[0][1], each[0][0]))[:JOBS_WAITING_MAX]
        return PodsWaiting(
            namespace=namespace,
            count=len(pods),
            reasons=tuple(ReasonWaiting(text=text, count=len(of), names=tuple(sorted(of)[:PODS_NAMED_MAX])) for text, of in reasons),
            jobs=tuple(JobWaiting(name=name, count=count, fails_s=fails_s) for (name, fails_s), count in jobs),
        )

    def _reason(self, pod: Pod) -> str:
        # The scheduler's own message is not used: it names labels and taints of nodes, and so the boxes of others.
        return self.why(pod) if is_waiting(pod) else UNPLACED

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _note_over(self, left: Mapping[Key, _Ran]) -> None:
        for (namespace, uid), ran in left.items():
            known = self._jobs.get((namespace, uid))
            if known is not None and known.is_over:
                del self._ran[namespace, uid]
                if known.has_failed:
                    self._failed.append(JobFailed(gpr_id=ran.gpr_id, namespace=namespace, name=known.name))

    def _read_jobs(self, waiting: Mapping[str, Sequence[Pod]], left: Mapping[Key, _Ran], now_mono: float) -> None:
        """`left`: Jobs that had pods in a box and have none now."""
        # Jobs are read a few at a time, the least recently read first, and again later: a deadline may change.
        jobs = {(namespace, owner.uid): owner.name for namespace, pods in waiting.items() for pod in pods if (owner := job_of(pod))}
        jobs |= {key: ran.name for key, ran in left.items()}
        self._jobs = {key: known for key, known in self._jobs.items() if key in jobs}
        if now_mono < self._jobs_not_before_mono:
            return
        for key in self._due(jobs, now_mono)[:JOBS_AT_ONCE]:
            try:
                self._jobs[key] = self._read(key, jobs[key], now_mono)
            except ClusterError as error:
                # Counts as read now, so that it delays no other.
                self._jobs[key] = replace(self._jobs.get(key, _KnownJob(now_mono)), read_mono=now_mono)
                self._jobs_not_before_mono = now_mono + TROUBLE_S
                self.note("job_unread", {"why": str(error)})
                return

    def _due(self, keys: Iterable[Key], now_mono: float) -> list[Key]:
        read = sorted((self._jobs[key].read_mono if key in self._jobs else float("-inf"), key) for key in keys)
        return [key for read_mono, key in read if now_mono - read_mono >= JOB_AGAIN_S]

    def _read(self, key: Key, name: str, now_mono: float) -> _KnownJob:
        namespace, uid = key
        try:
            job = self.api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}", _Job)
        except Missing:
            return _KnownJob(now_mono, is_over=True)
        if job.metadata.uid != uid:
            return _KnownJob(now_mono, is_over=True)
        return _KnownJob(now_mono, job.metadata.name, job.fails_s, is_over=bool(job.ends), has_failed=FAILED in job.ends)


def job_of(pod: Pod) -> Owner | None:
    owner = pod.metadata.controller
    is_job = owner is not None and (owner.apiVersion, owner.kind) == ("batch/v1", "Job") and cluster_names.is_object_name(owner.name)
    return owner if is_job else None


def is_unplaced(pod: Pod) -> bool:
    return bool(pod.metadata.label(cluster_names.POD_GPR)) and not pod.spec.nodeName and not pod.is_leaving and not pod.is_over
