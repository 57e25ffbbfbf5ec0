"""Entries isolate nodes, run their checks, and open the whole box."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocol.assignments import ENTRY_ATTEMPTS, Assignment, Desired, Phase
from protocol.nodes.steps import GANG_STEPS, EntryStep, RepairStep, step_name
from worker_agent.boxes.actions import Actions, Write
from worker_agent.boxes.gangs import NO_GANG, Gangs
from worker_agent.boxes.records import is_lost, isolation_refusal, new_records
from worker_agent.boxes.state import Member, Progress
from worker_agent.clock import Clock, HubTime
from worker_agent.cluster.base import GpuPhase, StepStatus, WriteKind
from worker_agent.hub.link import Link

Box = list[Member]

# Time limits within one pass. The rest continues in the next pass, so that an end in the meantime is not delayed.
ISOLATES_WITHIN_S = CHECKS_WITHIN_S = OPENS_WITHIN_S = 0.4


class Entries:
    def __init__(self, *, actions: Actions, link: Link, clock: Clock, time: HubTime) -> None:
        self._actions, self._link, self._clock, self._time = actions, link, clock, time
        self._checked_last = ""  # id of the assignment after which the next pass continues

    def block(self, assignment: Assignment, progress: Progress) -> str:
        """Return why it may not begin or open now, or ""."""
        if assignment.desired != Desired.PRESENT:
            return f"UNSUPPORTED: this version does not know desired={assignment.desired}"
        if not progress.listed:
            return "the hub's last set does not list it any more"
        if why := self._link.entry_block():
            return why
        return "its window has not begun" if self._time.earliest() < assignment.not_before_s else ""

    def waits_for(self, assignment: Assignment, progress: Progress) -> str:
        if progress.is_leaving or progress.phase not in (Phase.PENDING, Phase.ENTERED):
            return ""
        why = self.block(assignment, progress)
        if why or progress.phase is not Phase.PENDING:
            return why
        return isolation_refusal(self._actions.nodes.get(assignment.node), assignment)

    def advance(self, members: Sequence[Member]) -> None:
        writes = list(self._actions.each("entry", (each for each in members if self._actions.own(each[0]) is None), self._isolate))
        self._actions.write(WriteKind.ISOLATE, writes, within_s=ISOLATES_WITHIN_S)
        until_mono = self._clock.mono() + CHECKS_WITHIN_S
        gangs = Gangs(members, is_broken=self._is_broken)
        for assignment, progress in sorted(members, key=lambda each: each[0].id <= self._checked_last):
            if self._clock.mono() >= until_mono:
                return
            self._checked_last = assignment.id
            record = self._actions.own(assignment)
            if record is not None and record.phase is GpuPhase.ISOLATED and progress.phase is Phase.ENTERING:
                with self._actions.guard("entry", (assignment, progress)):
                    self._check(assignment, progress, gangs)

    def _isolate(self, assignment: Assignment, progress: Progress) -> Write | None:
        node = self._actions.nodes.get(assignment.node)
        if progress.phase is not Phase.PENDING and is_lost(node, assignment):
            progress.fail(f"node {assignment.node} went on to a higher epoch")
        elif self.block(assignment, progress):
            return None
        elif unknown := [step for step in assignment.entry_steps if step not in _known_steps(assignment)]:
            self._refuse(assignment, progress, unknown)
        elif not isolation_refusal(node, assignment):
            return Write(assignment, progress, new_records(assignment, GpuPhase.ISOLATED))
        return None

    def _refuse(self, assignment: Assignment, progress: Progress, unknown: list[str]) -> None:
        for step in unknown:
            self._actions.report_unsupported(assignment, progress, step, "entry step")
        progress.fail(f"UNSUPPORTED: this agent does not know the entry step {', '.join(unknown)}")

    def _check(self, assignment: Assignment, progress: Progress, gangs: Gangs) -> None:
        for step in assignment.entry_steps:
            if step in progress.entry_done:
                continue
            gang = gangs.at(step, assignment, progress) if step in GANG_STEPS else NO_GANG
            if gang is None:
                return
            status = self._actions.step(assignment, progress, step, gang=gang)
            if status is StepStatus.FAILED and progress.attempts[step] >= ENTRY_ATTEMPTS:
                progress.fail(f"check {step_name(step)} failed {ENTRY_ATTEMPTS} times on node {assignment.node}")
            if status is not StepStatus.OK:
                return
            progress.entry_done.append(step)
            progress.repaired_s = self._time.now() if step in list(RepairStep) else progress.repaired_s
        progress.advance(Phase.ENTERED)

    def _is_broken(self, node: str) -> bool:
        state = self._actions.nodes.get(node)
        return state is None or state.view.broken

    # -- the box -------------------------------------------------------------------------------------------------------

    def mark_active(self, box: Box) -> None:
        """Start the window when all nodes are ready. It is saved before anything opens, so it starts only once."""
        if any(progress.phase not in (Phase.ENTERED, Phase.ACTIVE) for _, progress in box) or not self._is_whole(box):
            return
        if all(progress.active_s is not None for _, progress in box):
            return
        if any(self.block(assignment, progress) or not self._actions.own(assignment) for assignment, progress in box):
            return
        known = [progress.active_s for _, progress in box if progress.active_s is not None]
        active_s = min(known) if known else self._time.now()
        for _, progress in box:
            progress.active_s = active_s

    @staticmethod
    def _is_whole(box: Box) -> bool:
        return len(box) == box[0][0].gang_count and not box[0][0].is_repair

    def open(self, boxes: Sequence[Box]) -> None:
        opens: list[Write] = []
        for box in boxes:
            with self._actions.guard("open", box[0]):
                opens += self._opens(box)
        self._actions.write(WriteKind.OPEN, opens, within_s=OPENS_WITHIN_S)

    def _opens(self, box: Box) -> Iterator[Write]:
        for assignment, progress in box:
            record = self._actions.own(assignment)
            if record is None or record.phase is not GpuPhase.ISOLATED or progress.active_s is None:
                continue
            if not self.block(assignment, progress):
                yield Write(assignment, progress, new_records(assignment, GpuPhase.OPEN, active_s=progress.active_s))

    def serve(self, boxes: Sequence[Box]) -> None:
        opened = ([a for a, _ in box if (record := self._actions.own(a)) and record.phase is GpuPhase.OPEN] for box in boxes)
        self._actions.lift_gates([box for box in opened if box])


def _known_steps(assignment: Assignment) -> list[str]:
    return [*RepairStep, *EntryStep] if assignment.is_repair else [*EntryStep]
