"""Says in a sentence for people of its workspace what keeps a pod from running. It is pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from protocol.pods import TEXT_MAX_CHARS, Hold
from worker_agent.kube.api.objects import ContainerStatus, Pod
from worker_agent.kube.pods.hidden_words import hide
from worker_agent.kube.pods.waiting import UNPLACED, is_unplaced
from worker_agent.kube.pods.workloads import is_waiting

IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}
)
STARTING: Final = frozenset({"ContainerCreating", "PodInitializing"})
# The scheduler's message names labels and taints of nodes, and so the boxes of others: only these parts of it are told.
_INSUFFICIENT: Final = re.compile(r"Insufficient ([\w./-]+\w)")
_SCHEDULER_SAYS: Final = {
    "unbound immediate PersistentVolumeClaims": "a volume that it asks for is not there yet",
    "volume node affinity conflict": "its volume can only be used on other nodes",
    "persistentvolumeclaim": "a volume claim that it names is missing or being deleted",
    "pod topology spread constraints": "its topology spread constraints exclude the nodes",
    "pod affinity rules": "its rules of affinity to other pods exclude the nodes",
    "pod anti-affinity rules": "its rules of anti-affinity to other pods exclude the nodes",
    "free ports": "a host port that it asks for is taken",
}


def hold_of(pod: Pod, why: Callable[[Pod], str]) -> tuple[Hold, str]:
    """`why` says why a pod waits at the gate."""
    if is_waiting(pod):
        return Hold.GATE, why(pod)[:TEXT_MAX_CHARS]
    if is_unplaced(pod):
        return Hold.SCHEDULER, (_unplaced(pod) or UNPLACED)[:TEXT_MAX_CHARS]
    for status in (*pod.status.initContainerStatuses, *pod.status.containerStatuses):
        if found := _of_container(status):
            return found[0], hide(found[1])[:TEXT_MAX_CHARS]
    return Hold.NONE, ""


def _unplaced(pod: Pod) -> str:
    said = next((each.message for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "False"), "")
    reasons = [*_lacks(said), *(text for words, text in _SCHEDULER_SAYS.items() if words in said)]
    return f"The scheduler places it on no node of its box: {'; '.join(reasons)}." if reasons else ""


def _lacks(said: str) -> Iterator[str]:
    lacking = list(dict.fromkeys(_INSUFFICIENT.findall(said)))
    if lacking:
        yield f"too little {', '.join(lacking)} is left"


def _of_container(status: ContainerStatus) -> tuple[Hold, str] | None:
    waiting = status.state.waiting
    if waiting is None:
        return None
    message = f" {waiting.message}" if waiting.message else ""
    if waiting.reason in IMAGE_REASONS:
        return Hold.IMAGE, f"The image of container {status.name} cannot be pulled ({waiting.reason}).{message}"
    if waiting.reason in STARTING or not waiting.reason:
        return Hold.CONTAINER, f"Container {status.name} is being made."
    return Hold.CONTAINER, f"Container {status.name} does not start ({waiting.reason}).{message}"
