"""Lifts on their way: several at once, and answered while the passes go on, since each waits for the API server.

A lift that was not answered may have been applied, now or until the server gives up: its box takes no other pod before the pod was read
again. Not for several threads at once. Must not live here: which pod goes into which box (lifting.py).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Final

from worker_agent.cluster.base import ClusterError, Conflict, Note, Unavailable
from worker_agent.kube.client import TIMEOUT_S, Api, Missing
from worker_agent.kube.lifting import Lift, lift_ops
from worker_agent.kube.objects import Pod, Pods

LIFTS_AT_ONCE: Final = 128  # waiting for an answer or for their turn
LIFTS_OF_BOX: Final = 32  # of these, so that one whose pods do not go leaves room for others
AGAIN_S: Final = 2.0  # after one that failed


Box = tuple[str, int]  # of a GPR the id, and the number of its run


@dataclass(slots=True)
class _Going:
    """`pod`: as it was before. `call`: the lift, or a look at what came of it; None until it is time to look."""

    pod: Pod
    call: Future[Pod] | None
    is_look: bool = False
    look_mono: float = 0.0


class Hoist:
    def __init__(self, api: Api, pool: Executor, note: Note) -> None:
        self._api, self._pool, self._note = api, pool, note
        self._going: dict[Box, list[_Going]] = {}
        self._failed: dict[str, float] = {}  # by pod UID: when

    @property
    def room_count(self) -> int:
        """How many more may be sent."""
        return max(0, LIFTS_AT_ONCE - sum(each.call is not None for going in self._going.values() for each in going))

    @property
    def is_any_busy(self) -> bool:
        return bool(self._going)

    def is_busy(self, box: Box) -> bool:
        """With lifts on their way: how full it is is known once these are answered."""
        return box in self._going

    def spoken_for(self) -> set[str]:
        """UIDs of pods that are on their way, or of which a lift failed a moment ago."""
        return {each.pod.metadata.uid for going in self._going.values() for each in going} | self._failed.keys()

    def send(self, lift: Lift, box: Box, *, ends_at: str) -> None:
        call = self._pool.submit(self._api.patch, lift.pod.path, lift_ops(lift, *box, ends_at=ends_at), Pod)
        self._going.setdefault(box, []).append(_Going(lift.pod, call))

    def take(self) -> list[Pod]:
        """As they are now: those of which is known what came of it, since the last time."""
        now = time.monotonic()
        self._failed = {uid: mono for uid, mono in self._failed.items() if now - mono < AGAIN_S}
        known: list[Pod] = []
        for box, going in tuple(self._going.items()):
            left = [each for each in going if self._goes_on(each, known)]
            self._going[box] = left
            if not left:
                del self._going[box]
        return known

    def _goes_on(self, going: _Going, known: list[Pod]) -> bool:
        """Not once it is known what came of it. The pod as it is then is added to `known`."""
        if going.call is None:
            if time.monotonic() >= going.look_mono:
                self._look(going)
            return True
        if not going.call.done():
            return True
        if (error := going.call.exception()) is not None:
            return self._goes_on_after(error, going)
        pod = going.call.result()
        if going.is_look and pod.metadata.resourceVersion == going.pod.metadata.resourceVersion:
            self._hold_back(pod, "it was refused, or lost on its way")
        known.append(pod)
        return False

    def _goes_on_after(self, error: BaseException, going: _Going) -> bool:
        """Unless the pod is certainly in no box."""
        if isinstance(error, Missing):
            return False
        if isinstance(error, Conflict):
            self._look(going)  # changed; or let in before, by a lift that was not answered
            return True
        if isinstance(error, ClusterError) and not isinstance(error, Unavailable) and not going.is_look:
            self._hold_back(going.pod, str(error))
            return False
        self._note("lift_unanswered", {"pod": going.pod.label, "error": str(error)})
        going.call, going.look_mono = None, time.monotonic() + (AGAIN_S if going.is_look else TIMEOUT_S)
        return True

    def _look(self, going: _Going) -> None:
        going.call, going.is_look = self._pool.submit(self._seen, going.pod), True

    def _seen(self, pod: Pod) -> Pod:
        """As it is now. Listed, for which the agent has the right."""
        beside, _, name = pod.path.rpartition("/")
        found = self._api.get(beside, Pods, fieldSelector=f"metadata.name={name}").items
        if not found:
            raise Missing(f"there is no pod {pod.label}")
        return found[0]

    def _hold_back(self, pod: Pod, why: str) -> None:
        self._failed[pod.metadata.uid] = time.monotonic()
        self._note("lift_failed", {"pod": pod.label, "error": why})

    def keep(self, boxes: Collection[Box]) -> None:
        """No more of all others."""
        for box in [each for each in self._going if each not in boxes]:
            self.end(box)

    def end(self, box: Box) -> bool:
        """No more of them: those whose turn has not come are given up. Whether none is on its way."""
        begun = [each for each in self._going.pop(box, ()) if each.is_look or each.call is None or not each.call.cancel()]
        if begun:
            self._going[box] = begun
        return not begun
