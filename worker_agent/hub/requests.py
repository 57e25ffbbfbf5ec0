"""Cluster requests: what the hub learns of them, and what it answers. Must not live here: any call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from protocol.cluster_requests import CLUSTER_REQUESTS_AT_ONCE, AutoTemplate, ClusterRequest, ClusterRequestAnswer, ClusterRequestState
from protocol.listings import CLUSTER_REQUESTS, TEMPLATES, HeardList
from protocol.sync import SyncReply, SyncRequest
from protocol.waiting_pods import JobFailed, PodsWaiting
from protocol.workspaces import Workspace
from worker_agent.clock import Clock


@dataclass(frozen=True, slots=True)
class Answered:
    answer: ClusterRequestAnswer
    at_mono: float  # when the answer came, by our own clock
    is_gone: bool = False  # it answers the report that the object is gone


@dataclass(frozen=True, slots=True)
class Heard:
    """What the hub has said, for the thread that handles the objects."""

    workspaces: Sequence[Workspace] | None = None  # None: not received yet, or their namespaces are not done yet
    answers: Sequence[Answered] = ()  # since the last look
    states: Mapping[str, ClusterRequestState] | None = None  # None: not received yet
    asked_mono: float = float("-inf")  # when the request was sent that `states` answers
    autos: Mapping[str, AutoTemplate] = field(default_factory=dict)  # by workspace id: templates for its waiting pods


class Requests(Protocol):
    def watch(self, on_change: Callable[[], None]) -> None:
        """Any thread may call `on_change`."""

    def look(self, heard: Heard) -> Sequence[ClusterRequest]:
        """Write the hub's answers into the objects, and return all that the hub must be told. Raises nothing."""

    def waiting(self) -> tuple[PodsWaiting, ...] | None:
        """Return all waiting pods, or None if they were looked at a moment ago. Raises nothing."""

    def jobs_failed(self) -> tuple[JobFailed, ...]:
        """Return Jobs with pods in boxes that failed since the last call. Raises nothing."""


class SimulatedRequests:
    def watch(self, on_change: Callable[[], None]) -> None:
        return None

    def look(self, heard: Heard) -> Sequence[ClusterRequest]:
        return ()

    def waiting(self) -> tuple[PodsWaiting, ...] | None:
        return None

    def jobs_failed(self) -> tuple[JobFailed, ...]:
        return ()


@dataclass(slots=True)
class Desk:
    """In memory only. The process guards it with its lock."""

    clock: Clock
    claims: HeardList[ClusterRequestState] = field(default_factory=lambda: HeardList(CLUSTER_REQUESTS))
    templates: HeardList[AutoTemplate] = field(default_factory=lambda: HeardList(TEMPLATES))
    _to_tell: tuple[ClusterRequest, ...] = ()
    _answers: dict[str, Answered] = field(default_factory=dict)
    _asked_mono: float = float("-inf")

    # -- for the thread of the objects----------------------------------------------------------------------------------

    def collect(self, workspaces: Sequence[Workspace] | None) -> Heard:
        # Handed over once; a request whose answer is lost is sent again.
        answers, self._answers = tuple(self._answers.values()), {}
        states = None if self.claims.told is None else {state.id: state for state in self.claims.told}
        return Heard(workspaces, answers, states, self._asked_mono, {each.id: each for each in self.templates.items})

    def put(self, claims: Sequence[ClusterRequest]) -> None:
        self._to_tell = tuple(claim for claim in claims if not self._is_answered(claim))

    def _is_answered(self, claim: ClusterRequest) -> bool:
        known = self._answers.get(claim.uid)
        return known is not None and known.is_gone == claim.is_gone and (claim.is_gone or known.answer.generation == claim.generation)

    # -- for the threads of the hub--------------------------------------------------------------------------------------

    @property
    def has_answers(self) -> bool:
        return bool(self._answers)

    def batch(self) -> tuple[ClusterRequest, ...]:
        return self._to_tell[:CLUSTER_REQUESTS_AT_ONCE]

    def take_answers(self, told: Sequence[ClusterRequest], answers: Sequence[ClusterRequestAnswer]) -> bool:
        """Return False if it answers nothing that was sent."""
        claims = {claim.uid: claim for claim in told}
        before = len(self._to_tell)
        for answer in answers:
            claim = claims.get(answer.uid)
            if claim is not None and (claim.is_gone or claim.generation == answer.generation):
                self._answers[answer.uid] = Answered(answer, self.clock.mono(), claim.is_gone)
        self.put(self._to_tell)
        return len(self._to_tell) < before

    def take(self, asked: SyncRequest, reply: SyncReply, *, asked_mono: float) -> None:
        self.claims.hear(asked, reply)
        self.templates.hear(asked, reply)
        if self.claims.told is not None:
            self._asked_mono = max(self._asked_mono, asked_mono)
