"""An agent as a small state machine, driven step by step: what a real one does in minutes, a test decides rule by rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from protocol.assignments import Assignment, Desired, Observed, Phase
from tests.inventory.agent import Agent, seen_of

NEXT = {
    Phase.PENDING: Phase.ENTERING,
    Phase.ENTERING: Phase.ENTERED,
    Phase.ENTERED: Phase.ACTIVE,
    Phase.ACTIVE: Phase.ACTIVE,
    Phase.FAILED: Phase.EXITING,
    Phase.EXITING: Phase.RELEASED,
    Phase.RELEASED: Phase.RELEASED,
}


@dataclass(slots=True)
class Known:
    assignment: Assignment
    phase: Phase = Phase.PENDING
    active_s: float | None = None
    exit_began_s: float | None = None


@dataclass(slots=True)
class ModelAgent:
    agent: Agent
    known: dict[str, Known] = field(default_factory=dict)
    said: list[Observed] = field(default_factory=list)

    def sync(self, now: datetime) -> None:
        """Say where it is with everything, and take in what is wanted."""
        words = [self._word(known) for known in self.known.values()]
        self.said = (self.said + words)[-200:]
        reply = self.agent.sync(*words, at=now)
        listed = {assignment.id: assignment for assignment in reply.assignments or ()}
        for id_, assignment in listed.items():
            self.known.setdefault(id_, Known(assignment)).assignment = assignment
        # What is over and listed no more is forgotten; what is missing without being over stays known.
        for id_ in [id_ for id_, known in self.known.items() if id_ not in listed and known.phase == Phase.RELEASED]:
            del self.known[id_]

    def go_on(self, number: int, now: datetime) -> None:
        """Does one step of one assignment."""
        if self.known:
            self._step(list(self.known.values())[number % len(self.known)], now)

    def go_on_with_all(self, now: datetime) -> None:
        for known in list(self.known.values()):
            self._step(known, now)

    def fail(self, number: int) -> None:
        """An entry check fails."""
        entering = [known for known in self.known.values() if known.phase in {Phase.PENDING, Phase.ENTERING, Phase.ENTERED}]
        if entering:
            entering[number % len(entering)].phase = Phase.FAILED

    def leave(self, number: int, now: datetime) -> None:
        """It gives a box up by itself, at any time."""
        if self.known:
            self._exit(list(self.known.values())[number % len(self.known)], now)

    def _step(self, known: Known, now: datetime) -> None:
        assignment = known.assignment
        is_over = assignment.not_after_s is not None and now.timestamp() >= assignment.not_after_s
        is_over = is_over or (
            known.active_s is not None and now.timestamp() >= known.active_s + assignment.duration_s and not assignment.not_after_s
        )
        if known.phase not in {Phase.EXITING, Phase.RELEASED} and (assignment.desired == Desired.ABSENT or is_over):
            self._exit(known, now)
            return
        to = NEXT[known.phase]
        if to == Phase.ACTIVE and known.phase == Phase.ENTERED:
            self._open(assignment, now)
        elif to == Phase.EXITING:
            self._exit(known, now)
        else:
            known.phase = to

    def _open(self, assignment: Assignment, now: datetime) -> None:
        """Opens the box when all its nodes are ready. A node that enters an open box takes over its time."""
        gang = [
            known
            for known in self.known.values()
            if (known.assignment.gpr_id, known.assignment.run) == (assignment.gpr_id, assignment.run)
            and known.assignment.desired == Desired.PRESENT
            and known.phase not in {Phase.FAILED, Phase.EXITING, Phase.RELEASED}
        ]
        if len(gang) == assignment.gang_count and all(known.phase in {Phase.ENTERED, Phase.ACTIVE} for known in gang):
            active_s = min((known.active_s for known in gang if known.active_s is not None), default=now.timestamp())
            for known in gang:
                known.phase, known.active_s = Phase.ACTIVE, active_s

    def _exit(self, known: Known, now: datetime) -> None:
        if known.phase not in {Phase.EXITING, Phase.RELEASED}:
            known.phase, known.exit_began_s = Phase.EXITING, now.timestamp()

    def _word(self, known: Known) -> Observed:
        failure = "The fan is loud." if known.phase == Phase.FAILED else ""
        return seen_of(known.assignment, known.phase, active_s=known.active_s, exit_began_s=known.exit_began_s, failure=failure)
