"""What keeps a pod that waits from boxes, worked out once for each version of it: people may give a pod thousands of containers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from worker_agent.kube.lifting import devices_of, needs_of, why_never
from worker_agent.kube.objects import Pod


@dataclass(frozen=True, slots=True)
class Judgement:
    """`why_never`: as a sentence, "" where it may be let in. `devices`: others than GPUs that it asks for."""

    pod: Pod
    why_never: str
    devices: tuple[str, ...]


class Judgements:
    """For several threads: what one works out while another does is the same."""

    def __init__(self) -> None:
        self._known: dict[str, Judgement] = {}  # by UID

    def of(self, pod: Pod) -> Judgement:
        known = self._known.get(pod.metadata.uid)
        if known is None or known.pod is not pod:
            why = why_never(pod)
            known = self._known[pod.metadata.uid] = Judgement(pod, why, () if why else tuple(devices_of(needs_of(pod))))
        return known

    def keep(self, pods: Iterable[Pod]) -> None:
        """Of others nothing is remembered."""
        uids = {pod.metadata.uid for pod in pods}
        self._known = {uid: known for uid, known in list(self._known.items()) if uid in uids}
