"""Tells pods when their box ends: annotations follow the end and an idle box's release, and an event is recorded once the end is near.

Needs no memory across restarts: the API server rejects a second event of the same name. Must not live here: when a box ends (core.py).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from protocol.cluster_names import ENDS_AT, IDLE_RELEASE_AT
from worker_agent.cluster.base import BoxEnd, WriteConflict
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.events import EventRecorder
from worker_agent.kube.api.objects import Pod
from worker_agent.kube.nodes.observation import Observation, PodIndex
from worker_agent.kube.pods.gate_lifter import Box
from worker_agent.kube.pods.lifting import annotate_ops, unannotate_ops
from worker_agent.kube.pods.runs import is_in_run
from worker_agent.kube.requests.messages import EventText
from worker_agent.kube.requests.status import rfc3339

AT_ONCE: Final = 100  # calls in flight
AGAIN_S: Final = 10.0  # after a failed call, or a change of the annotation by others

NEAR: Final = "EndsSoon"
UNTRIED_MONO: Final = float("-inf")


class Key(NamedTuple):
    gpr_id: str
    what: str  # the annotation's key, or the event's reason
    pod_uid: str
    at: str  # "": the annotation goes


Wanted = tuple[Key, Pod, BoxEnd]


class EndNotices:
    """It is not thread-safe."""

    def __init__(self, api: Api, *, pool: Executor, recorder: EventRecorder, observation: Observation) -> None:
        self._api, self._pool, self._recorder, self._observation = api, pool, recorder, observation
        self._ends: dict[Box, BoxEnd] = {}
        self._going: dict[Key, Future[Pod] | Future[None]] = {}
        self._not_before_mono: dict[Key, float] = {}
        self._settled: tuple[dict[Box, BoxEnd], PodIndex] | None = None  # the ends and pods for which everything is told

    def ends_at(self, box: Box) -> str:
        # The text of the annotation; "" if no such box is known to be open.
        end = self._ends.get(box)
        return rfc3339(end.ends_s) if end is not None else ""

    def look(self, ends: Sequence[BoxEnd]) -> None:
        self._ends = {(end.gpr_id, end.run): end for end in ends}
        self._collect()
        if self._settled is not None and self._settled[0] == self._ends and self._settled[1] is self._observation.pods:
            return
        wanted = list(self._wanted())
        keys = {key for key, _, _ in wanted}
        self._not_before_mono = {key: mono for key, mono in self._not_before_mono.items() if key in keys}
        for key, pod, end in islice(self._in_turn(self._due(wanted)), max(0, AT_ONCE - len(self._going))):
            self._going[key] = self._send(key, pod, end)
        is_told = all(self._not_before_mono.get(key) == float("inf") for key in keys)
        self._settled = (self._ends, self._observation.pods) if is_told and not self._going else None

    def _wanted(self) -> Iterator[Wanted]:
        # A pod is told the end of its own run: a GPR may leave one run and be in its next one at the same time.
        for end in self._ends.values():
            ends_at = rfc3339(end.ends_s)
            marks = {ENDS_AT: ends_at}
            if end.idle_release_s is not None:
                marks[IDLE_RELEASE_AT] = rfc3339(end.idle_release_s) if end.idle_release_s else ""
            for pod in self._observation.pods.lifted.get(end.gpr_id, ()):
                if not pod.holds or pod.is_leaving or not is_in_run(end, pod):
                    continue
                for name, at in marks.items():
                    if pod.metadata.annotation(name) != at:
                        yield Key(end.gpr_id, name, pod.metadata.uid, at), pod, end
                if end.is_near:
                    yield Key(end.gpr_id, NEAR, pod.metadata.uid, ends_at), pod, end

    def _due(self, wanted: Iterable[Wanted]) -> Sequence[Wanted]:
        # Notices that were never tried come first.
        now_mono = time.monotonic()
        due = [each for each in wanted if each[0] not in self._going and now_mono >= self._not_before_mono.get(each[0], UNTRIED_MONO)]
        return sorted(due, key=lambda each: self._not_before_mono.get(each[0], UNTRIED_MONO))

    def _in_turn(self, due: Iterable[Wanted]) -> Iterator[Wanted]:
        """Prefers GPRs with the fewest calls in flight, then the soonest end."""
        lines: dict[str, deque[Wanted]] = defaultdict(deque)
        for each in due:
            lines[each[0].gpr_id].append(each)
        going = Counter(key.gpr_id for key in self._going)
        turns = [(going[gpr_id], line[0][0].at, gpr_id) for gpr_id, line in lines.items()]
        heapify(turns)
        while turns:
            count, at, gpr_id = heappop(turns)
            yield lines[gpr_id].popleft()
            if lines[gpr_id]:
                heappush(turns, (count + 1, at, gpr_id))

    def _send(self, key: Key, pod: Pod, end: BoxEnd) -> Future[Pod] | Future[None]:
        if key.what != NEAR:
            change = annotate_ops(pod.metadata, key.what, key.at) if key.at else unannotate_ops(key.what)
            ops = [{"op": "test", "path": "/metadata/uid", "value": key.pod_uid}, *change]
            return self._pool.submit(self._api.patch, pod.path, ops, Pod)
        # The event's name follows from pod and end.
        message = f"GPR {end.gpr_name} ends at {key.at}: then this pod is ended, and its GPUs are given back. Save its work."
        text = EventText(NEAR, message, is_bad=True)
        return self._recorder.record_once("Pod", pod.metadata, text, key=f"{NEAR}/{end.gpr_id}/{key.at}", at=datetime.now(UTC))

    def _collect(self) -> None:
        for key, call in [each for each in self._going.items() if each[1].done()]:
            del self._going[key]
            error = None if call.cancelled() else call.exception()
            is_told = key.what == NEAR and (error is None or isinstance(error, WriteConflict))
            self._not_before_mono[key] = float("inf") if is_told else time.monotonic() + AGAIN_S
            if error is None and isinstance(pod := call.result(), Pod):
                self._observation.learn_pod(pod)
