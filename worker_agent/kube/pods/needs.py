"""Computes resource needs of pods, and whether boxes can hold them; cached because pods may have many containers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from worker_agent.kube.api.objects import Pod
from worker_agent.kube.pods.lifting import Amounts, extra_devices, pod_needs, why_never


@dataclass(frozen=True, slots=True)
class PodAssessment:
    pod: Pod
    why_never: str  # a sentence; "" if the pod may enter a box
    needs: Amounts
    devices: tuple[str, ...]  # requested devices other than GPUs


class PodAssessments:
    """It is thread-safe: concurrent computations give equal results."""

    def __init__(self) -> None:
        self._known: dict[str, PodAssessment] = {}  # by pod UID

    def of(self, pod: Pod) -> PodAssessment:
        known = self._known.get(pod.metadata.uid)
        if known is None or known.pod is not pod:
            why, needs = why_never(pod), _readable_needs(pod)
            known = self._known[pod.metadata.uid] = PodAssessment(pod, why, needs, () if why else tuple(extra_devices(needs)))
        return known

    def needs(self, pod: Pod) -> Amounts:
        return self.of(pod).needs

    def keep(self, pods: Iterable[Pod]) -> None:
        uids = {pod.metadata.uid for pod in pods}
        self._known = {uid: known for uid, known in list(self._known.items()) if uid in uids}


def _readable_needs(pod: Pod) -> dict[str, Decimal]:
    try:
        return pod_needs(pod)
    except ValueError:
        return {}  # such a pod never enters a box
