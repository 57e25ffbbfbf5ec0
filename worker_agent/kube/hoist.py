"""Lifts on their way: several at once, and answered while the passes go on, since each waits for the API server.

Not for several threads at once. Must not live here: which pod goes into which box (lifting.py).
"""

from __future__ import annotations

import time
from concurrent.futures import Executor, Future
from typing import Final

from worker_agent.cluster.base import ClusterError, Conflict, Note
from worker_agent.kube.client import Api
from worker_agent.kube.lifting import Lift, lift_ops
from worker_agent.kube.objects import Pod
from worker_agent.protocol import Assignment

LIFTS_AT_ONCE: Final = 128  # waiting for an answer or for their turn
AGAIN_S: Final = 2.0  # after one that failed


class Hoist:
    def __init__(self, api: Api, pool: Executor, note: Note) -> None:
        self._api, self._pool, self._note = api, pool, note
        self._going: dict[str, list[tuple[Pod, Future[Pod]]]] = {}  # by GPR: the pods as they were, and the calls
        self._failed: dict[str, float] = {}  # by pod UID: when

    @property
    def room_count(self) -> int:
        """How many more may be sent."""
        return LIFTS_AT_ONCE - sum(map(len, self._going.values()))

    def is_busy(self, gpr_id: str) -> bool:
        """With lifts on their way: how full its boxes are is known once these are answered."""
        return gpr_id in self._going

    def spoken_for(self) -> set[str]:
        """UIDs of pods that are on their way, or of which a lift failed a moment ago."""
        return {pod.metadata.uid for going in self._going.values() for pod, _ in going} | self._failed.keys()

    def send(self, lift: Lift, box: Assignment) -> None:
        call = self._pool.submit(self._api.patch, lift.pod.path, lift_ops(lift, box.gpr_id, box.run), Pod)
        self._going.setdefault(box.gpr_id, []).append((lift.pod, call))

    def take(self) -> list[Pod]:
        """As they are now: those of which the lift was answered since the last time."""
        now = time.monotonic()
        self._failed = {uid: mono for uid, mono in self._failed.items() if now - mono < AGAIN_S}
        all_going, self._going, answers = self._going, {}, []
        for gpr_id, going in all_going.items():
            for pod, call in going:
                if call.done():
                    answers.append(self._answer(pod, call))
                else:
                    self._going.setdefault(gpr_id, []).append((pod, call))
        return [pod for pod in answers if pod is not None]

    def _answer(self, pod: Pod, call: Future[Pod]) -> Pod | None:
        try:
            return call.result()
        except Conflict:
            return None  # gone or changed: decided again once it is seen
        except ClusterError as error:
            self._failed[pod.metadata.uid] = time.monotonic()
            self._note("lift_failed", {"pod": pod.label, "error": str(error)})
            return None

    def end(self, gpr_id: str) -> bool:
        """No more of them: those whose turn has not come are given up. Whether none is on its way."""
        begun = [each for each in self._going.pop(gpr_id, ()) if not each[1].cancel()]
        if begun:
            self._going[gpr_id] = begun
        return not begun
