"""Which GPU pods of workspaces wait, and why, for the pages of EGS; and which Jobs will fail for it.

The deadline of a Job runs while its pods wait. Jobs are read one by one, since a deadline is no business of the mirrors: some at each look,
and each again after a while, for it may be changed. Must not live here: any write.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import quote

import msgspec

from worker_agent.cluster.base import ClusterError, Note
from worker_agent.kube import names
from worker_agent.kube.client import Api, Missing
from worker_agent.kube.objects import Meta, Owner, Pod
from worker_agent.kube.workloads import is_waiting
from worker_agent.protocol import (
    JOBS_WAITING_MAX,
    MOMENT_MAX_S,
    NAMESPACES_WAITING_MAX,
    PODS_NAMED_MAX,
    REASONS_WAITING_MAX,
    JobWaiting,
    PodsWaiting,
    ReasonWaiting,
)

EVERY_S: Final = 5.0
EVERY_NAMESPACE_S: Final = 0.1  # more for each of which there is something to tell: a long list changes all the time
JOBS_AT_ONCE: Final = 20  # read in one look
JOB_AGAIN_S: Final = 60.0
TROUBLE_S: Final = 30.0  # after a read that the API server did not answer
TEXT_MAX: Final = 200


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    class Spec(msgspec.Struct, frozen=True, kw_only=True):
        activeDeadlineSeconds: int | None = None

    class Status(msgspec.Struct, frozen=True, kw_only=True):
        startTime: datetime | None = None  # none while it is suspended: then the deadline does not run

    metadata: Meta
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def fails_s(self) -> float | None:
        if self.spec.activeDeadlineSeconds is None or self.status.startTime is None:
            return None
        return min(self.status.startTime.timestamp() + self.spec.activeDeadlineSeconds, MOMENT_MAX_S)


@dataclass(slots=True)
class Waits:
    """One thread. `bound`, `pods`: as in requests.py. `why`: why a pod waits at our gate, as a sentence."""

    api: Api
    bound: Callable[[str], str]
    pods: Callable[[], Iterable[Pod]]
    why: Callable[[Pod], str]
    note: Note
    _not_before_mono: float = float("-inf")
    _jobs_not_before_mono: float = float("-inf")
    _fails: dict[str, tuple[float, float | None]] = field(default_factory=dict)  # by uid of a Job: when it was read, and when it fails

    def look(self) -> tuple[PodsWaiting, ...] | None:
        """All namespaces of workspaces in which pods wait; None: it was looked at a moment ago."""
        now_mono = time.monotonic()
        if now_mono < self._not_before_mono:
            return None
        self._not_before_mono = now_mono + EVERY_S
        waiting: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods():
            if (is_waiting(pod) or is_unplaced(pod)) and self.bound(pod.metadata.namespace):
                waiting[pod.metadata.namespace].append(pod)
        self._read_jobs(waiting, now_mono)
        told = [self._told(namespace, pods) for namespace, pods in waiting.items()]
        told.sort(key=lambda each: (-each.count, each.namespace))
        self._not_before_mono += len(told) * EVERY_NAMESPACE_S
        return tuple(sorted(told[:NAMESPACES_WAITING_MAX], key=lambda each: each.namespace))

    def _told(self, namespace: str, pods: Sequence[Pod]) -> PodsWaiting:
        by_reason: dict[str, list[str]] = defaultdict(list)
        by_job: dict[tuple[str, float], int] = defaultdict(int)
        for pod in pods:
            by_reason[self._reason(pod)[:TEXT_MAX]].append(pod.metadata.name)
            owner = job_of(pod)
            if owner is not None and (fails_s := self._fails.get(owner.uid, (0.0, None))[1]) is not None:
                by_job[owner.name, fails_s] += 1
        reasons = sorted(by_reason.items(), key=lambda each: (-len(each[1]), each[0]))[:REASONS_WAITING_MAX]
        jobs = sorted(by_job.items(), key=lambda each: (each[0][1], each[0][0]))[:JOBS_WAITING_MAX]
        return PodsWaiting(
            namespace=namespace,
            count=len(pods),
            reasons=tuple(ReasonWaiting(text=text, count=len(of), names=tuple(sorted(of)[:PODS_NAMED_MAX])) for text, of in reasons),
            jobs=tuple(JobWaiting(name=name, count=count, fails_s=fails_s) for (name, fails_s), count in jobs),
        )

    def _reason(self, pod: Pod) -> str:
        if is_waiting(pod):
            return self.why(pod)
        said = next((each.message for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "False"), "")
        return f"It was let in, and the scheduler has not placed it yet. {said}".strip()

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def _read_jobs(self, waiting: Mapping[str, Sequence[Pod]], now_mono: float) -> None:
        """Those that were read longest ago first."""
        jobs = {owner.uid: (owner, namespace) for namespace, pods in waiting.items() for pod in pods if (owner := job_of(pod))}
        self._fails = {uid: known for uid, known in self._fails.items() if uid in jobs}
        if now_mono < self._jobs_not_before_mono:
            return
        for uid in self._due(jobs, now_mono)[:JOBS_AT_ONCE]:
            try:
                self._fails[uid] = (now_mono, self._read(*jobs[uid]))
            except ClusterError as error:
                self._jobs_not_before_mono = now_mono + TROUBLE_S
                self.note("job_unread", {"why": str(error)})
                return

    def _due(self, uids: Iterable[str], now_mono: float) -> list[str]:
        read = sorted((self._fails[uid][0] if uid in self._fails else float("-inf"), uid) for uid in uids)
        return [uid for read_mono, uid in read if now_mono - read_mono >= JOB_AGAIN_S]

    def _read(self, owner: Owner, namespace: str) -> float | None:
        try:
            # People may write any name of an owner.
            job = self.api.get(f"/apis/batch/v1/namespaces/{namespace}/jobs/{quote(owner.name, safe='')}", _Job)
        except Missing:
            return None
        return job.fails_s if job.metadata.uid == owner.uid else None


def job_of(pod: Pod) -> Owner | None:
    owner = pod.metadata.controller
    return owner if owner is not None and (owner.apiVersion, owner.kind) == ("batch/v1", "Job") else None


def is_unplaced(pod: Pod) -> bool:
    """Let into a box, and on no node yet."""
    return bool(pod.metadata.label(names.POD_GPR)) and not pod.spec.nodeName and not pod.is_leaving and not pod.is_over
