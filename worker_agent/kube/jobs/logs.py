"""Reads the output of pods, each line once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.cluster_names import INDEX_OF_POD
from protocol.tenancy.workloads import LOG_CHUNK_MAX_CHARS
from worker_agent.cluster.base import ClusterError
from worker_agent.hub.workloads import PodLogPart
from worker_agent.kube.api import objects
from worker_agent.kube.api.client import Api, Missing
from worker_agent.kube.api.objects import LONG_AGO, RANK_LABELS, ROLE_LABELS, Pod

FIRST_LINES: Final = 2000  # of what was printed before somebody reads
READ_BYTES: Final = 512 * 1024  # of lines with their times; more in one second is left out
PODS_MAX: Final = 500
FIRST: Final = frozenset({"master", "launcher"})  # the role of the pod before the others, where a training job has one


class PodLogs:
    def __init__(self, api: Api) -> None:
        self._api = api

    def pods(self, namespace: str, selector: str) -> list[Pod]:
        """Returns the newest first, and [] if they cannot be read."""
        try:
            found = self._api.get(f"/api/v1/namespaces/{namespace}/pods", objects.PodList, labelSelector=selector, limit=PODS_MAX).items
        except ClusterError:
            return []
        return sorted(found, key=lambda pod: pod.metadata.creationTimestamp or LONG_AGO, reverse=True)

    def read(self, namespace: str, selector: str, rank: int, since: str) -> PodLogPart | None:
        pod = pod_of_rank(self.pods(namespace, selector), rank)
        if pod is None or pod.status.phase == "Pending":
            return PodLogPart("", since)
        only = {"sinceTime": f"{since[:19]}Z"} if since else {"tailLines": FIRST_LINES}
        try:
            text = self._api.text(f"{pod.path}/log", timestamps=True, limitBytes=READ_BYTES, **only)
        except Missing:
            return PodLogPart("", since)
        except ClusterError:
            return None
        return part_of(text, since)


def pod_of_rank(pods: Sequence[Pod], rank: int) -> Pod | None:
    """Takes as `pods` those of one job, the newest first. Pods without a number have ranks in that order."""
    has_first = any(_role(pod) in FIRST for pod in pods)
    numbered = [(pod, each) for pod in pods if (each := _rank_of(pod, has_first)) is not None]
    if numbered:
        return next((pod for pod, each in numbered if each == rank), None)
    return pods[rank] if rank < len(pods) else None


def _role(pod: Pod) -> str:
    return next((role for key in ROLE_LABELS if (role := pod.metadata.label(key))), "")


def _rank_of(pod: Pod, has_first: bool) -> int | None:
    if _role(pod) in FIRST:
        return 0
    number = next((found for key in RANK_LABELS if (found := pod.metadata.label(key))), "")
    is_behind = has_first and not pod.metadata.label(INDEX_OF_POD)
    return int(number) + is_behind if number.isdecimal() and len(number) < 10 else None


def part_of(text: str, since: str) -> PodLogPart:
    """Returns the lines after that time, without their times. The last line may be cut off: it comes whole the next time."""
    lines = [line.partition(" ") for line in text.splitlines(keepends=True) if line.endswith("\n")]
    kept: list[str] = []
    until, size = since, 0
    for at, _, words in lines:
        if not _is_later(at, since):
            continue
        size += len(words)
        if kept and size > LOG_CHUNK_MAX_CHARS:
            break
        kept.append(words if len(words) <= LOG_CHUNK_MAX_CHARS else f"{words[: LOG_CHUNK_MAX_CHARS - 1]}\n")
        until = at[:40]
    return PodLogPart("".join(kept), until)


def _is_later(at: str, since: str) -> bool:
    # Both are RFC 3339 in UTC; the fraction has no trailing zeros.
    return len(at) >= 20 and (at[:19], at[19:].rstrip("Z").ljust(10, "0")) > (since[:19], since[19:].rstrip("Z").ljust(10, "0"))
