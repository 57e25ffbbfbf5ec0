"""Records what happens to GPRs as events on the namespaces of their workspaces and on their nodes.

Needs no memory across restarts: event names follow from the mark, so the API server rejects a second one. Must not live here: what the
agent does with a node (boxes/actions.py).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from protocol.tenancy.life_marks import LifeMark
from worker_agent.cluster.base import Throttled, Unavailable
from worker_agent.kube.api.client import Forbidden
from worker_agent.kube.api.events import EventRecorder, Kind
from worker_agent.kube.api.objects import Meta
from worker_agent.kube.nodes.observation import Observation
from worker_agent.kube.requests.messages import life_event

AT_ONCE: Final = 10  # calls in flight
DUE_MAX: Final = 2_000  # further events are dropped
REST_S: Final = 1.0  # after a failed call
# Attempts at a forbidden event. A namespace being deleted forbids all; an API server that has just started does so for a moment.
TRIES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Due:
    kind: Kind
    about: Meta
    mark: LifeMark
    tries: int = 1


class LifeEventRecorder:
    """It is not thread-safe."""

    def __init__(self, recorder: EventRecorder, observation: Observation) -> None:
        self._recorder, self._observation = recorder, observation
        self._life: Sequence[LifeMark] = ()
        self._known: frozenset[str] = frozenset()  # IDs of marks that are sent or due
        self._due: deque[Due] = deque(maxlen=DUE_MAX)
        self._not_before_mono = float("-inf")
        self._sent: list[tuple[Due, Future[None]]] = []

    def look(self, life: Sequence[LifeMark]) -> None:
        if life is not self._life:
            new = [mark for mark in life if mark.id not in self._known]
            self._life, self._known = life, frozenset(mark.id for mark in life)
            self._due.extend(due for mark in new for due in self._whom(mark))
        if self._sent:
            self._collect()
        while self._due and len(self._sent) < AT_ONCE and time.monotonic() >= self._not_before_mono:
            due = self._due.popleft()
            self._sent.append((due, self._send(due)))

    def _whom(self, mark: LifeMark) -> Iterator[Due]:
        for about in self._observation.about_namespaces(mark.slice):
            yield Due("Namespace", about, mark)
        for name in mark.nodes:
            if (node := self._observation.node(name)) is not None:
                yield Due("Node", node.metadata, mark)

    def _send(self, due: Due) -> Future[None]:
        mark = due.mark
        at = datetime.fromtimestamp(min(max(0.0, mark.at_s), time.time()), UTC)  # an event is never in the future
        return self._recorder.record_once(due.kind, due.about, life_event(mark), key=f"{mark.gpr_id}/{mark.id}", at=at)

    def _collect(self) -> None:
        # Lost events are sent again as long as the hub lists their marks.
        going = [(due, sent) for due, sent in self._sent if not sent.done()]
        over, self._sent = [each for each in self._sent if each not in going], going
        lost = [due for due, sent in over if due.mark.id in self._known and _is_lost(due, sent)]
        if lost:
            self._not_before_mono = time.monotonic() + REST_S
        self._due.extend(replace(due, tries=due.tries + 1) for due in lost)


def _is_lost(due: Due, sent: Future[None]) -> bool:
    match None if sent.cancelled() else sent.exception():
        case Unavailable() | Throttled():
            return True
        case Forbidden():
            return due.tries < TRIES_MAX
    return False  # it arrived, existed already, or can never be recorded
