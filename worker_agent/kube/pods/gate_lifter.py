"""Lifts on their way: several at once, and answered while the passes go on, since each waits for the API server.

A lift that was not answered may have been applied, now or until the server gives up: its box takes no other pod before the pod was read
again. A pod that the API server refuses, as a webhook may, lines up anew behind all that wait then, and is tried less and less often: so
any number of such pods keep no other out. Not for several threads at once. Must not live here: which pod goes into which box (lifting.py).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from protocol import cluster_names
from worker_agent.cluster.base import ClusterError, Conflict, Note, Throttled, Unavailable
from worker_agent.kube.api.client import TIMEOUT_S, Api, Missing, WebhookAway
from worker_agent.kube.api.objects import LONG_AGO, Pod, Pods
from worker_agent.kube.pods.lifting import Lift, lift_ops
from worker_agent.metrics import LIFT_S, LIFTS_REFUSED

LIFTS_AT_ONCE: Final = 128  # waiting for an answer or for their turn
LIFTS_OF_BOX: Final = 32  # of these, so that one whose pods do not go leaves room for others
AGAIN_S: Final = 2.0  # after one that failed, and twice as long after each more
AGAIN_MOST_S: Final = 300.0


Box = tuple[str, int]  # of a GPR the id, and the number of its run


@dataclass(slots=True)
class _Going:
    """`pod`: as it was before. `call`: the lift, or a look at what came of it; None until it is time to look. `error`: of the lift."""

    pod: Pod
    call: Future[Pod] | None
    seen_mono: float
    is_look: bool = False
    look_mono: float = 0.0
    error: ClusterError | None = None


@dataclass(frozen=True, slots=True)
class _Refused:
    """`why`: in the cluster's words, "" where nothing is known that the pod's owner could mend."""

    times: int
    until_mono: float
    at: datetime
    why: str


class Hoist:
    def __init__(self, api: Api, pool: Executor, note: Note) -> None:
        self._api, self._pool, self._note = api, pool, note
        self._going: dict[Box, list[_Going]] = {}
        self._refused: dict[str, _Refused] = {}  # by pod UID
        self._seen_mono: dict[str, float] = {}  # by pod UID: since when it is known to wait

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
        """UIDs of pods that are on their way, or were refused and are not tried again yet."""
        now = time.monotonic()
        refused = {uid for uid, each in self._refused.items() if now < each.until_mono}
        return {each.pod.metadata.uid for going in self._going.values() for each in going} | refused

    def in_turn(self, waiting: Sequence[Pod]) -> Sequence[Pod]:
        """`waiting`, the oldest first, with those that were refused behind all that were there by then."""
        now = time.monotonic()
        for pod in waiting:
            self._seen_mono.setdefault(pod.metadata.uid, now)
        if not self._refused:
            return waiting
        return sorted(waiting, key=self._in_line_since)

    def _in_line_since(self, pod: Pod) -> datetime:
        born, refused = pod.metadata.creationTimestamp or LONG_AGO, self._refused.get(pod.metadata.uid)
        return max(born, refused.at) if refused else born

    def why_refused(self, pod: Pod) -> str:
        """In the cluster's words; "" of one that was not. As any thread may ask."""
        refused = self._refused.get(pod.metadata.uid)
        return refused.why if refused else ""

    def see(self, waiting: Collection[str]) -> None:
        """UIDs of all pods that wait: nothing is kept of others."""
        now = time.monotonic()
        self._seen_mono = {uid: self._seen_mono.get(uid, now) for uid in waiting}
        self._refused = {uid: each for uid, each in self._refused.items() if uid in waiting}

    def send(self, lift: Lift, box: Box, *, ends_at: str) -> None:
        call = self._pool.submit(self._api.patch, lift.pod.path, lift_ops(lift, *box, ends_at=ends_at), Pod)
        seen_mono = self._seen_mono.get(lift.pod.metadata.uid, time.monotonic())
        self._going.setdefault(box, []).append(_Going(lift.pod, call, seen_mono))

    def take(self) -> list[Pod]:
        """As they are now: those of which is known what came of it, since the last time."""
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
            self._hold_back(pod, going.error or Unavailable("it was lost on its way"))
        else:
            self._refused.pop(pod.metadata.uid, None)
            if pod.metadata.label(cluster_names.POD_GPR):
                LIFT_S.observe(time.monotonic() - going.seen_mono)
        known.append(pod)
        return False

    def _goes_on_after(self, error: BaseException, going: _Going) -> bool:
        """Unless the pod is certainly in no box."""
        if isinstance(error, Missing):
            return False
        if isinstance(error, ClusterError) and not going.is_look:
            going.error = error
        if isinstance(error, Conflict):
            self._look(going)  # changed; or let in before, by a lift that was not answered
            return True
        if isinstance(error, ClusterError) and not going.is_look and (isinstance(error, WebhookAway) or not isinstance(error, Unavailable)):
            self._hold_back(going.pod, error)
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

    def _hold_back(self, pod: Pod, error: ClusterError) -> None:
        LIFTS_REFUSED.inc()
        before = self._refused.get(pod.metadata.uid)
        times = before.times + 1 if before else 1
        wait_s = min(AGAIN_S * 2 ** min(times - 1, 30), AGAIN_MOST_S)
        why = error.words if isinstance(error, WebhookAway) or not isinstance(error, Throttled | Unavailable) else ""
        self._refused[pod.metadata.uid] = _Refused(times, time.monotonic() + wait_s, datetime.now(UTC), why)
        self._note("lift_failed", {"pod": pod.label, "error": str(error), "times": times, "again_s": wait_s})

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
