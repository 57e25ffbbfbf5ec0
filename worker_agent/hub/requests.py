"""GPRs that are objects of the cluster: what the hub is told of them, and what it says.

Lives here: the driver's interface, and the desk between the thread that talks to the hub and the one that reads the objects.
Must not live here: any call. The process guards the desk with its lock.
"""

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
    """`at_mono`: when the answer came, by our own clock. `is_gone`: it was told that the object is gone."""

    answer: ClusterRequestAnswer
    at_mono: float
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Heard:
    """What the hub has said. `workspaces`, `states`: None while it has not, or what it said is not done yet.

    `answers`: those that came since the last look. `asked_mono`: before this the list of `states` was not asked for. `autos`: by id of a
    workspace, by what a request is made for its pods that wait.
    """

    workspaces: Sequence[Workspace] | None = None
    answers: Sequence[Answered] = ()
    states: Mapping[str, ClusterRequestState] | None = None
    asked_mono: float = float("-inf")
    autos: Mapping[str, AutoTemplate] = field(default_factory=dict)


class Requests(Protocol):
    def watch(self, on_change: Callable[[], None]) -> None:
        """Begin to. `on_change`: called by any thread where there may be something to look at."""

    def look(self, heard: Heard) -> Sequence[ClusterRequest]:
        """One pass: write into the objects what the hub said, and return all that it is to be told now. Raises nothing."""

    def waiting(self) -> tuple[PodsWaiting, ...] | None:
        """Of the same cluster, the pods that wait, whole; None: they were looked at a moment ago. Raises nothing."""

    def jobs_failed(self) -> tuple[JobFailed, ...]:
        """Jobs whose pods were in boxes, and that were found to have failed since this was last asked. Raises nothing."""


class SimulatedRequests:
    """A simulated cluster has no objects that people could make."""

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
    """Nothing of it is written down: an agent that starts again asks for the list, and claims what the objects do not say was answered."""

    clock: Clock
    claims: HeardList[ClusterRequestState] = field(default_factory=lambda: HeardList(CLUSTER_REQUESTS))
    templates: HeardList[AutoTemplate] = field(default_factory=lambda: HeardList(TEMPLATES))
    _to_tell: tuple[ClusterRequest, ...] = ()
    _answers: dict[str, Answered] = field(default_factory=dict)
    _asked_mono: float = float("-inf")

    # -- the thread of the objects -------------------------------------------------------------------------------------

    def collect(self, workspaces: Sequence[Workspace] | None) -> Heard:
        """Answers are handed over: what is lost of them is claimed once more."""
        answers, self._answers = tuple(self._answers.values()), {}
        states = None if self.claims.told is None else {state.id: state for state in self.claims.told}
        return Heard(workspaces, answers, states, self._asked_mono, {each.id: each for each in self.templates.items})

    def put(self, claims: Sequence[ClusterRequest]) -> None:
        """All that is to be told now, but for what was answered in the meantime."""
        self._to_tell = tuple(claim for claim in claims if not self._is_answered(claim))

    def _is_answered(self, claim: ClusterRequest) -> bool:
        known = self._answers.get(claim.uid)
        return known is not None and known.is_gone == claim.is_gone and (claim.is_gone or known.answer.generation == claim.generation)

    # -- the thread of the hub -----------------------------------------------------------------------------------------

    @property
    def has_answers(self) -> bool:
        return bool(self._answers)

    def batch(self) -> tuple[ClusterRequest, ...]:
        return self._to_tell[:CLUSTER_REQUESTS_AT_ONCE]

    def take_answers(self, told: Sequence[ClusterRequest], answers: Sequence[ClusterRequestAnswer]) -> bool:
        """False: it answers none of what was told, which is told again."""
        claims = {claim.uid: claim for claim in told}
        before = len(self._to_tell)
        for answer in answers:
            claim = claims.get(answer.uid)
            if claim is not None and (claim.is_gone or claim.generation == answer.generation):
                self._answers[answer.uid] = Answered(answer, self.clock.mono(), claim.is_gone)
        self.put(self._to_tell)
        return len(self._to_tell) < before

    def take(self, asked: SyncRequest, reply: SyncReply, *, asked_mono: float) -> None:
        """An answer to a sync that counts."""
        self.claims.hear(asked, reply)
        self.templates.hear(asked, reply)
        if self.claims.told is not None:
            self._asked_mono = max(self._asked_mono, asked_mono)
