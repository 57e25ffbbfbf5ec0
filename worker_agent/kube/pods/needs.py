"""What a pod needs, and what keeps it from boxes, worked out once for each version of it: people may give a pod many containers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from worker_agent.kube.api.objects import Pod
from worker_agent.kube.pods.lifting import Amounts, devices_of, needs_of, why_never


@dataclass(frozen=True, slots=True)
class Judgement:
    """`why_never`: as a sentence, "" where it may be let in. `devices`: others than GPUs that it asks for."""

    pod: Pod
    why_never: str
    needs: Amounts
    devices: tuple[str, ...]


class Judgements:
    """For several threads: what one works out while another does is the same."""

    def __init__(self) -> None:
        self._known: dict[str, Judgement] = {}  # by UID

    def of(self, pod: Pod) -> Judgement:
        known = self._known.get(pod.metadata.uid)
        if known is None or known.pod is not pod:
            why, needs = why_never(pod), _readable_needs(pod)
            known = self._known[pod.metadata.uid] = Judgement(pod, why, needs, () if why else tuple(devices_of(needs)))
        return known

    def needs(self, pod: Pod) -> Amounts:
        return self.of(pod).needs

    def keep(self, pods: Iterable[Pod]) -> None:
        """Of others nothing is remembered."""
        uids = {pod.metadata.uid for pod in pods}
        self._known = {uid: known for uid, known in list(self._known.items()) if uid in uids}


def _readable_needs(pod: Pod) -> dict[str, Decimal]:
    try:
        return needs_of(pod)
    except ValueError:
        return {}  # it is never let in
