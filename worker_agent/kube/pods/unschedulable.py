"""Finds lifted pods that the scheduler cannot place: after a while other pods no longer wait for them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from worker_agent.kube.api.objects import Pod

UNSCHEDULABLE_S: Final = 10.0  # the scheduler's longest pause between two tries


class UnschedulablePods:
    def __init__(self) -> None:
        # By pod UID. Measured here, because the time of the condition is older: the gate had set it before.
        self._since_mono: dict[str, float] = {}

    def among(self, pods: Iterable[Pod]) -> list[Pod]:
        now, found = time.monotonic(), []
        for pod in pods:
            if pod.spec.nodeName or not pod.is_unschedulable:
                self._since_mono.pop(pod.metadata.uid, None)
            elif now - self._since_mono.setdefault(pod.metadata.uid, now) >= UNSCHEDULABLE_S:
                found.append(pod)
        return found

    def keep(self, pods: Iterable[Pod]) -> None:
        uids = {pod.metadata.uid for pod in pods}
        self._since_mono = {uid: mono for uid, mono in self._since_mono.items() if uid in uids}
