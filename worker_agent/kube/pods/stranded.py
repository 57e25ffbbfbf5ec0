"""Pods that were let in and that the scheduler cannot place: after a while nobody waits for them any more.

By a clock of our own: the time of the condition is that of the gate, which stood in it before.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from worker_agent.kube.api.objects import Pod

STRANDED_S: Final = 10.0  # as long as the scheduler waits at most until it tries one again


class Stranded:
    def __init__(self) -> None:
        self._since_mono: dict[str, float] = {}  # by UID

    def among(self, pods: Iterable[Pod]) -> list[Pod]:
        """Those of which it has said so for long."""
        now, found = time.monotonic(), []
        for pod in pods:
            if pod.spec.nodeName or not pod.is_unschedulable:
                self._since_mono.pop(pod.metadata.uid, None)
            elif now - self._since_mono.setdefault(pod.metadata.uid, now) >= STRANDED_S:
                found.append(pod)
        return found

    def keep(self, pods: Iterable[Pod]) -> None:
        uids = {pod.metadata.uid for pod in pods}
        self._since_mono = {uid: mono for uid, mono in self._since_mono.items() if uid in uids}
