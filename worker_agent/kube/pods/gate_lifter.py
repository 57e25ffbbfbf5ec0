"""Lifts scheduling gates with concurrent calls, while passes go on.

Must not live here: which pod goes into which box (lifting.py).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from protocol import cluster_names
from worker_agent.cluster.base import ClusterError, Note, Throttled, Unavailable, WriteConflict
from worker_agent.kube.api.client import TIMEOUT_S, Api, Missing, WebhookAway
from worker_agent.kube.api.objects import LONG_AGO, Pod, PodList
from worker_agent.kube.pods.lifting import Lift, lift_ops
from worker_agent.metrics import LIFT_S, LIFTS_REFUSED

LIFTS_AT_ONCE: Final = 128  # in flight or waiting in the pool
LIFTS_OF_BOX: Final = 32  # of these per box, so that a box whose lifts hang keeps no other waiting
AGAIN_S: Final = 2.0  # after a failed lift, doubled after each further one
AGAIN_MOST_S: Final = 300.0


Box = tuple[str, int]  # the GPR's ID, and the number of its run


@dataclass(slots=True)
class _Going:
    pod: Pod  # before the lift
    call: Future[Pod] | None  # the lift, or a read of its outcome; None until that read is due
    seen_mono: float
    is_look: bool = False
    look_mono: float = 0.0
    error: ClusterError | None = None  # of the lift


@dataclass(frozen=True, slots=True)
class _Refused:
    times: int
    until_mono: float
    at: datetime
    why: str  # in the words of the API server; "" if the pod's owner could not fix it


# Not thread-safe, except where a method says so.
class GateLifter:
    def __init__(self, api: Api, pool: Executor, note: Note) -> None:
        self._api, self._pool, self._note = api, pool, note
        self._going: dict[Box, list[_Going]] = {}
        self._refused: dict[str, _Refused] = {}  # by pod UID
        self._seen_mono: dict[str, float] = {}  # by pod UID: when it was first seen waiting

    @property
    def free_count(self) -> int:
        return max(0, LIFTS_AT_ONCE - sum(each.call is not None for going in self._going.values() for each in going))

    @property
    def is_any_busy(self) -> bool:
        return bool(self._going)

    def is_busy(self, box: Box) -> bool:
        # The room in a box is unknown until its lifts in flight are answered.
        return box in self._going

    def unavailable_uids(self) -> set[str]:
        """Returns UIDs of pods with a lift in flight, or refused and not yet due for a retry."""
        now = time.monotonic()
        refused = {uid for uid, each in self._refused.items() if now < each.until_mono}
        return {each.pod.metadata.uid for going in self._going.values() for each in going} | refused

    def in_turn(self, waiting: Sequence[Pod]) -> Sequence[Pod]:
        now = time.monotonic()
        for pod in waiting:
            self._seen_mono.setdefault(pod.metadata.uid, now)
        if not self._refused:
            return waiting
        # A refused pod goes behind all pods that waited when it was refused, so refused pods keep no other out.
        return sorted(waiting, key=self._in_line_since)

    def _in_line_since(self, pod: Pod) -> datetime:
        born, refused = pod.metadata.creationTimestamp or LONG_AGO, self._refused.get(pod.metadata.uid)
        return max(born, refused.at) if refused else born

    def why_refused(self, pod: Pod) -> str:
        """Returns the words of the API server; "" if not refused. It is thread-safe."""
        refused = self._refused.get(pod.metadata.uid)
        return refused.why if refused else ""

    def see(self, waiting: Collection[str]) -> None:
        now = time.monotonic()
        self._seen_mono = {uid: self._seen_mono.get(uid, now) for uid in waiting}
        self._refused = {uid: each for uid, each in self._refused.items() if uid in waiting}

    def send(self, lift: Lift, box: Box, *, ends_at: str) -> None:
        call = self._pool.submit(self._api.patch, lift.pod.path, lift_ops(lift, *box, ends_at=ends_at), Pod)
        seen_mono = self._seen_mono.get(lift.pod.metadata.uid, time.monotonic())
        self._going.setdefault(box, []).append(_Going(lift.pod, call, seen_mono))

    def take(self) -> list[Pod]:
        """Returns the current pods of lifts whose outcome became known."""
        known: list[Pod] = []
        for box, going in tuple(self._going.items()):
            left = [each for each in going if self._is_unsettled(each, known)]
            self._going[box] = left
            if not left:
                del self._going[box]
        return known

    def _is_unsettled(self, going: _Going, known: list[Pod]) -> bool:
        # False once the outcome is known; the pod as it is then is added to `known`.
        if going.call is None:
            if time.monotonic() >= going.look_mono:
                self._look(going)
            return True
        if not going.call.done():
            return True
        if (error := going.call.exception()) is not None:
            return self._is_unsettled_after(error, going)
        pod = going.call.result()
        if going.is_look and pod.metadata.resourceVersion == going.pod.metadata.resourceVersion:
            self._hold_back(pod, going.error or Unavailable("it was lost on its way"))
        else:
            self._refused.pop(pod.metadata.uid, None)
            if pod.metadata.label(cluster_names.POD_GPR):
                LIFT_S.observe(time.monotonic() - going.seen_mono)
        known.append(pod)
        return False

    def _is_unsettled_after(self, error: BaseException, going: _Going) -> bool:
        # False only if the pod is certainly in no box: an unanswered lift may still be applied, so the pod is read again first.
        if isinstance(error, Missing):
            return False
        if isinstance(error, ClusterError) and not going.is_look:
            going.error = error
        if isinstance(error, WriteConflict):
            self._look(going)  # the pod changed, or an unanswered lift let it in before
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
        # A list, because the agent may list pods but not get one.
        beside, _, name = pod.path.rpartition("/")
        found = self._api.get(beside, PodList, fieldSelector=f"metadata.name={name}").items
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
        for box in [each for each in self._going if each not in boxes]:
            self.end(box)

    def end(self, box: Box) -> bool:
        """Cancels the box's pending lifts; returns whether none is in flight."""
        begun = [each for each in self._going.pop(box, ()) if each.is_look or each.call is None or not each.call.cancel()]
        if begun:
            self._going[box] = begun
        return not begun
