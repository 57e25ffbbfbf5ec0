"""Acts on the cluster in one pass, and reports the results. Must not live here: which assignment enters or leaves, and when."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from protocol.agents.events import Outcome, StepEvent
from protocol.assignments import Assignment, Phase
from protocol.nodes.checks import RESULTS_MAX
from protocol.nodes.drift import Drift
from protocol.nodes.inventory import NodeOrder
from protocol.nodes.steps import ExitStep, Milestone
from protocol.tenancy.life_marks import LifeMark
from worker_agent.boxes.gangs import NO_GANG, Gang
from worker_agent.boxes.records import HeldByNode, HeldGpus, own_record
from worker_agent.boxes.state import Member, Progress, StateStore
from worker_agent.clock import Clock, HubTime
from worker_agent.cluster.base import (
    BoxEnd,
    ClusterDriver,
    ClusterError,
    GpuPhase,
    GpuRecord,
    NodeChange,
    NodeState,
    Note,
    Records,
    StepCall,
    StepProgress,
    StepStatus,
    Throttled,
    Unavailable,
    WriteKind,
)
from worker_agent.metrics import DRAIN_S

Result = TypeVar("Result")

LOG_MAX = 4000
RETRY_MIN_S, RETRY_MAX_S = 0.5, 30.0
NODES_AT_ONCE = 8  # written together before the time limit is checked again
THROTTLE_MAX_S = 1.0  # an exit waits no longer than this for a throttling API server

_MILESTONES = {
    GpuPhase.ISOLATED: (Milestone.ISOLATE, Phase.ENTERING),
    GpuPhase.OPEN: (Milestone.OPEN, Phase.ACTIVE),
    GpuPhase.CLOSED: (Milestone.CLOSE, Phase.EXITING),
    GpuPhase.FREE: (Milestone.RELEASE, Phase.RELEASED),
}


@dataclass(frozen=True, slots=True)
class Write:
    assignment: Assignment
    progress: Progress
    records: Records


class Actions:
    def __init__(self, *, cluster: ClusterDriver, clock: Clock, time: HubTime, store: StateStore, rng: random.Random, note: Note) -> None:
        self._cluster, self._clock, self._time, self._store = cluster, clock, time, store
        self._rng, self._note = rng, note
        self.nodes: dict[str, NodeState] = {}
        self._own: dict[str, tuple[NodeState | None, Assignment, GpuRecord | None]] = {}  # by assignment id
        self._held = HeldByNode()
        self._quiet_until_mono = float("-inf")
        self._failures: dict[str, int] = {}  # by node: failed writes in a row
        self._started_s: dict[tuple[str, str], float] = {}
        self._retry_mono: dict[tuple[str, str], float] = {}
        self._broken: set[str] = set()  # ids of assignments that failed unexpectedly in this pass

    # -- unexpected errors ---------------------------------------------------------------------------------------------

    @contextmanager
    def guard(self, stage: str, member: Member | None = None) -> Iterator[None]:
        """Log an unexpected error, so that it affects only this member; the first one of a stage is also reported as a failed step.

        Nothing new begins for the member in this pass, see `is_broken`.
        """
        try:
            yield
        except Exception as error:
            self._broke(stage, error, member[0].id if member else "")
            if member:
                self._broken.add(member[0].id)
            if member and member[1].first(f"broke:{stage}"):
                self._report(member[0], stage, Outcome.FAILED, StepProgress(status=StepStatus.FAILED, log=_fault(error), blames_node=False))

    def each(self, stage: str, members: Iterable[Member], act: Callable[[Assignment, Progress], Result | None]) -> Iterator[Result]:
        """Yield the results of `act`, without None and without errors."""
        for member in members:
            found = None
            with self.guard(stage, member):
                found = act(*member)
            if found is not None:
                yield found

    def is_broken(self, member: Member) -> bool:
        return member[0].id in self._broken

    def _broke(self, stage: str, error: Exception, assignment_id: str) -> None:
        trace = "".join(traceback.format_exception(error))
        self._note("broke", {"stage": stage, "assignment": assignment_id, "error": repr(error), "trace": trace})

    # -- observe -------------------------------------------------------------------------------------------------------

    def observe(self) -> bool:
        self._broken = set()
        try:
            self.nodes = self._cluster.observe()
        except ClusterError as error:
            self._note("cluster_unreadable", {"error": str(error)})
            return False
        return True

    def prune(self, held: set[str]) -> None:
        self._own = {known: found for known, found in self._own.items() if known in held}
        self._failures = {node: count for node, count in self._failures.items() if node in self.nodes}
        self._started_s = {key: at for key, at in self._started_s.items() if key[0] in held}
        self._retry_mono = {key: at for key, at in self._retry_mono.items() if key[0] in held}

    def own(self, assignment: Assignment) -> GpuRecord | None:
        """Return the assignment's own record, cached until node or assignment is another object."""
        node = self.nodes.get(assignment.node)
        known = self._own.get(assignment.id)
        if known is None or known[0] is not node or known[1] is not assignment:
            known = self._own[assignment.id] = (node, assignment, own_record(node, assignment))
        return known[2]

    def orphans(self) -> Iterator[HeldGpus]:
        """Yield held GPUs of assignments that the agent's document does not know, because it was lost or is an old copy."""
        known = self._store.state.assignments
        return (each for each in self._held.on(self.nodes) if each[1].assignment_id not in known)

    def reflect(self, assignment: Assignment, progress: Progress) -> None:
        """Take over progress from the node's record, which is authoritative."""
        record = self.own(assignment)
        if record is None:
            return
        if record.active_s is not None and progress.active_s is None:
            progress.active_s = record.active_s
        if record.closed_s is not None and progress.exit_began_s is None:
            progress.exit_began_s = record.closed_s
        if record.phase is GpuPhase.CLOSED and not progress.is_leaving:
            progress.ending = True  # closed before a crash: it cannot open again
        milestone, phase = _MILESTONES[record.phase]
        if not (progress.failure and phase is Phase.EXITING):
            progress.advance(phase)
        if progress.first(milestone):
            self._report_milestone(assignment, milestone, record)

    # -- act -----------------------------------------------------------------------------------------------------------

    def write(self, kind: WriteKind, writes: Iterable[Write], *, within_s: float = float("inf")) -> None:
        """Make one conditional write for each node. The first group is always written; none begins after `within_s`.

        The next pass sees what failed or did not begin.
        """
        until_mono = self._clock.mono() + within_s
        # Nodes whose last write failed come last, with one box at a time (`_in_turn`), so that neither a node nor a box that always fails
        # blocks others.
        by_node = sorted(_by_node(writes).items(), key=lambda each: each[0] in self._failures)
        for begin in range(0, len(by_node), NODES_AT_ONCE):
            if self._clock.mono() < self._quiet_until_mono or (begin and self._clock.mono() >= until_mono):
                return
            some = [(node, self._in_turn(node, together)) for node, together in by_node[begin : begin + NODES_AT_ONCE]]
            answers = self._written(kind, [self._change(node, together) for node, together in some])
            for (node, together), answer in zip(some, answers, strict=True):
                self._take(kind, node, together, answer)

    def _written(self, kind: WriteKind, changes: list[NodeChange]) -> list[NodeState | ClusterError]:
        try:
            return self._cluster.write(kind, changes)
        except Exception as error:
            self._broke(kind, error, "")
            if len(changes) == 1:
                return [Unavailable(_fault(error))]
        return [answer for change in changes for answer in self._written(kind, [change])]  # one by one, so that only the bad one fails

    def _in_turn(self, node: str, together: list[Write]) -> list[Write]:
        failed = self._failures.get(node, 0)
        return [together[failed % len(together)]] if failed else together

    def _change(self, node: str, together: Sequence[Write]) -> NodeChange:
        seen = self.nodes[node]
        # GPUs with a later epoch on record are left out.
        new = ((gpu, record) for write in together for gpu, record in write.records.items())
        return seen, {gpu: record for gpu, record in new if gpu not in seen.records or seen.records[gpu].epoch <= record.epoch}

    def _take(self, kind: WriteKind, node: str, together: Sequence[Write], answer: NodeState | ClusterError) -> None:
        if isinstance(answer, Throttled):
            self._quiet_until_mono = self._clock.mono() + min(answer.retry_after_s, THROTTLE_MAX_S)
        if isinstance(answer, ClusterError):
            self._failures[node] = self._failures.get(node, 0) + 1
            for write in together:
                self._note("write_failed", {"write": kind, "assignment": write.assignment.id, "error": str(answer)})
            return
        self._failures.pop(node, None)
        self.nodes[node] = answer
        for write in together:
            with self.guard("reflect", (write.assignment, write.progress)):
                self.reflect(write.assignment, write.progress)

    def prepare_close(self, closing: Iterable[Write]) -> None:
        changes = [self._change(node, together) for node, together in _by_node(closing).items()]
        if not changes:
            return
        try:
            self._cluster.prepare_close(changes)
        except ClusterError as error:
            self._note("fence_failed", {"nodes": len(changes), "error": str(error)})

    def repair_drift(self, *, repairs: bool) -> Sequence[Drift] | None:
        try:
            return self._cluster.repair_drift(repairs=repairs)
        except ClusterError as error:
            self._note("tend_failed", {"error": str(error)})
            return None

    def lift_gates(self, boxes: list[list[Assignment]]) -> None:
        try:
            self._cluster.lift_gates(boxes)
        except ClusterError as error:
            self._note("serve_failed", {"error": str(error)})

    def order_nodes(self, orders: list[NodeOrder]) -> None:
        try:
            self._cluster.order_nodes(orders)
        except ClusterError as error:
            self._note("provide_failed", {"orders": len(orders), "error": str(error)})

    def record_life_marks(self, life: Sequence[LifeMark]) -> None:
        self._cluster.record_life_marks(life)

    def publish_ends(self, ends: Sequence[BoxEnd]) -> None:
        self._cluster.publish_ends(ends)

    def step(self, assignment: Assignment, progress: Progress, step: str, *, gang: Gang = NO_GANG) -> StepStatus:
        """Start or poll one attempt. Returns FAILED once, then RUNNING until the next attempt is due."""
        key = (assignment.id, step)
        if self._clock.mono() < self._retry_mono.get(key, float("-inf")):
            return StepStatus.RUNNING
        started_s = self._started_s.setdefault(key, self._time.now())
        attempt = progress.attempts.get(step, 0) + 1
        progress.asked = gang.at_work  # kept until this attempt is over, see Gangs.at
        result = self._poll(assignment, progress, step, attempt, gang)
        if result.status is StepStatus.RUNNING:
            return StepStatus.RUNNING
        progress.attempts, progress.asked = {**progress.attempts, step: attempt}, ()
        del self._started_s[key]
        self._retry_mono[key] = self._clock.mono() + self._retry_pause_s(attempt)
        outcome = Outcome.OK if result.status is StepStatus.OK else Outcome.FAILED
        if step == ExitStep.DRAIN and outcome is Outcome.OK and progress.exit_began_s is not None:
            DRAIN_S.observe(max(0.0, self._time.now() - progress.exit_began_s))
        self._report(assignment, step, outcome, result, attempt=attempt, started_s=started_s)
        return result.status

    def _poll(self, assignment: Assignment, progress: Progress, step: str, attempt: int, gang: Gang) -> StepProgress:
        closed_s = progress.exit_began_s
        call = StepCall(
            step=step,
            attempt=attempt,
            assignment=assignment,
            node=self.nodes[assignment.node],
            since_closed_s=max(0.0, self._time.now() - closed_s) if closed_s is not None else 0.0,
            since_repair_s=max(0.0, self._time.now() - progress.repaired_s) if progress.repaired_s is not None else float("inf"),
            gang=gang.nodes,
            at_work=gang.at_work,
        )
        try:
            return self._cluster.run(call)
        except ClusterError as error:
            self._note("step_unanswered", {"step": step, "assignment": assignment.id, "error": str(error)})
            return StepProgress(status=StepStatus.RUNNING)
        except Exception as error:
            self._broke(step, error, assignment.id)
            return StepProgress(status=StepStatus.FAILED, log=_fault(error), blames_node=False)

    def _retry_pause_s(self, attempt: int) -> float:
        most_s = min(RETRY_MAX_S, RETRY_MIN_S * 2.0 ** min(attempt, 10))
        return self._rng.uniform(RETRY_MIN_S, most_s)

    # -- report --------------------------------------------------------------------------------------------------------

    def report(self, assignment: Assignment, step: str, outcome: Outcome, log: str) -> None:
        self._report(assignment, step, outcome, StepProgress(status=StepStatus.OK, log=log))

    def _report(
        self, assignment: Assignment, step: str, outcome: Outcome, result: StepProgress, *, attempt: int = 1, started_s: float | None = None
    ) -> None:
        now_s = self._time.now()
        event = StepEvent(
            seq=0,  # the outbox numbers it
            assignment_id=assignment.id,
            epoch=assignment.epoch,
            step=step,
            attempt=attempt,
            outcome=outcome,
            started_s=now_s if started_s is None else min(started_s, now_s),
            ended_s=now_s,
            log=result.log[:LOG_MAX],
            evidence=result.evidence,
            results=result.results[:RESULTS_MAX],
            blames_node=result.blames_node,
        )
        self._store.state.events.append(event)
        said = "step" if outcome is Outcome.OK else "step_failed"
        self._note(said, {"assignment": assignment.id, "step": step, "outcome": outcome, "attempt": attempt})
        if step in list(Milestone) or outcome is not Outcome.OK:
            self._cluster.record_event(assignment, step, event.log, is_bad=outcome is not Outcome.OK)

    def report_unsupported(self, assignment: Assignment, progress: Progress, word: str, what: str) -> None:
        if progress.first(f"unsupported:{word}"):
            self.report(assignment, word, Outcome.UNSUPPORTED, f"this agent does not know the {what} {word}")

    def _report_milestone(self, assignment: Assignment, milestone: Milestone, record: GpuRecord) -> None:
        what = f"{len(assignment.gpus)} GPUs of node {assignment.node}"
        whom = "a repair" if assignment.is_repair else f"workspace {assignment.slice}"
        log = {
            Milestone.ISOLATE: f"{what} isolated for {whom}; epoch {record.epoch} is on record",
            Milestone.OPEN: f"{what} open to the workloads of {whom}",
            Milestone.CLOSE: f"{what} closed to {whom}; nothing new of it can start there",
            Milestone.RELEASE: f"{what} free; epoch {record.epoch} stays on record, an older assignment has no effect",
        }[milestone]
        self._report(assignment, milestone, Outcome.OK, StepProgress(status=StepStatus.OK, log=log, evidence={"epoch": record.epoch}))


def _fault(error: Exception) -> str:
    return f"a fault of the agent, see its log: {type(error).__name__}: {error}"


def _by_node(writes: Iterable[Write]) -> dict[str, list[Write]]:
    """When two writes change the same GPU, the second waits for the next pass."""
    found: dict[str, list[Write]] = {}
    taken: set[str] = set()
    for write in writes:
        if taken.isdisjoint(write.records):
            found.setdefault(write.assignment.node, []).append(write)
            taken.update(write.records)
    return found
