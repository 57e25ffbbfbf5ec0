"""Exchanges cluster requests: what the hub learns of them, and what it answers. Must not live here: any call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from protocol.agents.listings import CLUSTER_REQUESTS, TEMPLATES, ReceivedList
from protocol.agents.sync import SyncReply, SyncRequest
from protocol.tenancy.cluster_requests import (
    CLUSTER_REQUESTS_AT_ONCE,
    AutoTemplate,
    ClusterRequest,
    ClusterRequestAnswer,
    ClusterRequestState,
)
from protocol.tenancy.waiting_pods import JobFailed, PodsWaiting
from protocol.tenancy.workspaces import Workspace
from worker_agent.clock import Clock


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    answer: ClusterRequestAnswer
    at_mono: float  # when the answer came, by our own clock
    is_gone: bool = False  # it answers the report that the object is gone


@dataclass(frozen=True, slots=True)
class HubNews:
    """Holds the hub's latest answers and lists about requests."""

    workspaces: Sequence[Workspace] | None = None  # None: not received yet, or their namespaces are not done yet
    answers: Sequence[AnsweredRequest] = ()  # since the last look
    states: Mapping[str, ClusterRequestState] | None = None  # None: not received yet
    asked_mono: float = float("-inf")  # when the request was sent that `states` answers
    autos: Mapping[str, AutoTemplate] = field(default_factory=dict)  # by workspace id: templates for its waiting pods


class Requests(Protocol):
    def watch(self, on_change: Callable[[], None]) -> None:
        """Any thread may call `on_change`."""

    def look(self, news: HubNews) -> Sequence[ClusterRequest]:
        """Write the hub's answers into the objects, and return all that the hub must be told. Raises nothing."""

    def waiting(self) -> tuple[PodsWaiting, ...] | None:
        """Return all waiting pods, or None if they were looked at a moment ago. Raises nothing."""

    def jobs_failed(self) -> tuple[JobFailed, ...]:
        """Return Jobs with pods in boxes that failed since the last call. Raises nothing."""


class SimulatedRequests:
    def watch(self, on_change: Callable[[], None]) -> None:
        return None

    def look(self, news: HubNews) -> Sequence[ClusterRequest]:
        return ()

    def waiting(self) -> tuple[PodsWaiting, ...] | None:
        return None

    def jobs_failed(self) -> tuple[JobFailed, ...]:
        return ()


@dataclass(slots=True)
class RequestExchange:
    """The state is in memory only. The process guards it with its lock."""

    clock: Clock
    states: ReceivedList[ClusterRequestState] = field(default_factory=lambda: ReceivedList(CLUSTER_REQUESTS))
    templates: ReceivedList[AutoTemplate] = field(default_factory=lambda: ReceivedList(TEMPLATES))
    _unsent: tuple[ClusterRequest, ...] = ()
    _answers: dict[str, AnsweredRequest] = field(default_factory=dict)
    _asked_mono: float = float("-inf")

    # -- for the thread of the objects----------------------------------------------------------------------------------

    def collect(self, workspaces: Sequence[Workspace] | None) -> HubNews:
        # Handed over once; a request whose answer is lost is sent again.
        answers, self._answers = tuple(self._answers.values()), {}
        states = None if self.states.told is None else {state.id: state for state in self.states.told}
        return HubNews(workspaces, answers, states, self._asked_mono, {each.id: each for each in self.templates.items})

    def put(self, requests: Sequence[ClusterRequest]) -> None:
        self._unsent = tuple(request for request in requests if not self._is_answered(request))

    def _is_answered(self, request: ClusterRequest) -> bool:
        known = self._answers.get(request.uid)
        return known is not None and known.is_gone == request.is_gone and (request.is_gone or known.answer.generation == request.generation)

    # -- for the threads of the hub--------------------------------------------------------------------------------------

    @property
    def has_answers(self) -> bool:
        return bool(self._answers)

    def batch(self) -> tuple[ClusterRequest, ...]:
        return self._unsent[:CLUSTER_REQUESTS_AT_ONCE]

    def take_answers(self, told: Sequence[ClusterRequest], answers: Sequence[ClusterRequestAnswer]) -> bool:
        """Return False if nothing that was sent is answered."""
        requests = {request.uid: request for request in told}
        before = len(self._unsent)
        for answer in answers:
            request = requests.get(answer.uid)
            if request is not None and (request.is_gone or request.generation == answer.generation):
                self._answers[answer.uid] = AnsweredRequest(answer, self.clock.mono(), request.is_gone)
        self.put(self._unsent)
        return len(self._unsent) < before

    def take(self, asked: SyncRequest, reply: SyncReply, *, asked_mono: float) -> None:
        self.states.hear(asked, reply)
        self.templates.hear(asked, reply)
        if self.states.told is not None:
            self._asked_mono = max(self._asked_mono, asked_mono)
