"""Exits close, drain, check and release nodes. An exit never needs the hub's permission."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocol.agents.events import Outcome
from protocol.assignments import ENTRY_ATTEMPTS, Assignment, Phase
from protocol.nodes.steps import EXIT_CHECKS, ExitStep, Milestone
from worker_agent.boxes.actions import Actions, Write
from worker_agent.boxes.records import fence_records, is_given_on, new_records
from worker_agent.boxes.state import Member, Progress
from worker_agent.clock import Clock, HubTime
from worker_agent.cluster.base import GpuPhase, StepStatus, WriteKind

NODE_GONE_S = 60.0  # a node that has been missing for this long holds nothing of a slice any more
EXITS_WITHIN_S = 0.4  # limit of one pass; the rest continues in the next pass, so that an end in the meantime is not delayed


class Exits:
    def __init__(self, *, actions: Actions, clock: Clock, time: HubTime) -> None:
        self._actions, self._clock, self._time = actions, clock, time
        self._gone_since_mono: dict[str, float] = {}
        self._turn, self._turns = 0, dict[str, int]()  # by assignment id: its last turn

    def advance(self, members: Sequence[Member]) -> None:
        there = list(self._actions.each("exit", members, self._there))
        self._actions.write(WriteKind.CLOSE, list(self._actions.each("exit", there, self._close_if_open)))
        releases = list(self._actions.each("exit", self._while_there_is_time(there), self._release))
        self._actions.write(WriteKind.RELEASE, releases, within_s=EXITS_WITHIN_S)

    def _while_there_is_time(self, members: Sequence[Member]) -> Iterator[Member]:
        """Yield at least one. Boxes take turns, and so do the nodes of a box, so that slow steps do not block others."""
        until_mono = self._clock.mono() + EXITS_WITHIN_S
        last: dict[tuple[str, int], int] = {}
        for assignment, _ in members:
            box = assignment.gpr_id, assignment.run
            last[box] = max(last.get(box, 0), self._turns.get(assignment.id, 0))
        for assignment, progress in sorted(members, key=lambda each: (last[each[0].gpr_id, each[0].run], self._turns.get(each[0].id, 0))):
            self._turn += 1
            self._turns[assignment.id] = self._turn
            yield assignment, progress
            if self._clock.mono() >= until_mono:
                return

    def to_close(self, members: Sequence[Member]) -> list[Write]:
        return [self._close(*each) for each in members if self._actions.own(each[0]) is not None and self._is_open(*each)]

    def prune(self, held: set[str]) -> None:
        self._gone_since_mono = {known: mono for known, mono in self._gone_since_mono.items() if known in held}
        self._turns = {known: turn for known, turn in self._turns.items() if known in held}

    def _there(self, assignment: Assignment, progress: Progress) -> Member | None:
        is_here = self._is_there(assignment, progress) and not self._is_given_on(assignment, progress)
        return (assignment, progress) if is_here else None

    def _is_there(self, assignment: Assignment, progress: Progress) -> bool:
        node = self._actions.nodes.get(assignment.node)
        if node is None or node.view.uid != assignment.node_uid:
            self._without_node(assignment, progress)
            return False
        self._gone_since_mono.pop(assignment.id, None)
        return True

    def _without_node(self, assignment: Assignment, progress: Progress) -> None:
        since = self._gone_since_mono.setdefault(assignment.id, self._clock.mono())
        never_isolated = Milestone.ISOLATE not in progress.reported
        if never_isolated or self._clock.mono() - since >= NODE_GONE_S:
            log = f"node {assignment.node} is not in the cluster any more: nothing of the workspace can be on it"
            self._finish(assignment, progress, log)

    def _fence(self, assignment: Assignment, progress: Progress) -> Write | None:
        # It isolated nothing, so it is over; but its epoch goes on record, or a delayed PRESENT could begin.
        if records := fence_records(self._actions.nodes[assignment.node], assignment):
            return Write(assignment, progress, records)
        self._finish(assignment, progress, "nothing was isolated, and later epochs are on record already")
        return None

    def _finish(self, assignment: Assignment, progress: Progress, log: str) -> None:
        progress.advance(Phase.RELEASED)
        if progress.first(Milestone.RELEASE):
            self._actions.report(assignment, Milestone.RELEASE, Outcome.OK, log)

    def _is_open(self, assignment: Assignment, progress: Progress) -> bool:
        """True also for removed records: pods may still run there and must be drained."""
        record = self._actions.own(assignment)
        return Milestone.ISOLATE in progress.reported if record is None else record.phase in (GpuPhase.ISOLATED, GpuPhase.OPEN)

    def _is_given_on(self, assignment: Assignment, progress: Progress) -> bool:
        if not self._is_open(assignment, progress) or not is_given_on(self._actions.nodes.get(assignment.node), assignment):
            return False
        self._finish(assignment, progress, "later epochs are on record: its GPUs went on to others")
        return True

    def _close_if_open(self, assignment: Assignment, progress: Progress) -> Write | None:
        return self._close(assignment, progress) if self._is_open(assignment, progress) else None

    def _close(self, assignment: Assignment, progress: Progress) -> Write:
        active_s = progress.active_s if progress.phase in (Phase.ACTIVE, Phase.EXITING) else None
        return Write(assignment, progress, new_records(assignment, GpuPhase.CLOSED, active_s=active_s, closed_s=self._time.now()))

    def _release(self, assignment: Assignment, progress: Progress) -> Write | None:
        record = self._actions.own(assignment)
        if record is None:
            return self._fence(assignment, progress) if Milestone.ISOLATE not in progress.reported else None
        if record.phase is not GpuPhase.CLOSED or not self._is_clear(assignment, progress):
            return None
        records = new_records(assignment, GpuPhase.FREE, active_s=record.active_s, closed_s=record.closed_s)
        return Write(assignment, progress, records)

    def _is_clear(self, assignment: Assignment, progress: Progress) -> bool:
        for step in exit_steps(assignment):
            if step in progress.exit_done:
                continue
            if step not in list(ExitStep):
                # An exit must end, so unknown steps of a newer hub are reported and only the known ones run.
                self._actions.report_unsupported(assignment, progress, step, "exit step")
            elif self._is_done(assignment, progress, step):
                progress.exit_done.append(step)
            else:
                return False
        return True

    def _is_done(self, assignment: Assignment, progress: Progress, step: str) -> bool:
        status = self._actions.step(assignment, progress, step)
        if status is StepStatus.FAILED and step in EXIT_CHECKS:  # all other steps repeat until they succeed
            return progress.attempts[step] >= ENTRY_ATTEMPTS
        return status is StepStatus.OK


def exit_steps(assignment: Assignment) -> tuple[str, ...]:
    steps = assignment.exit_steps
    # Always drain: otherwise the next slice would meet pods of the last one.
    return steps if ExitStep.DRAIN in steps else (ExitStep.DRAIN, *steps)
