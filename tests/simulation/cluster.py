"""The simulated cluster with a judge beside it, who sees every write as it is done and knows the true time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from inventory.models import Cluster, Reservation, ReservationState
from protocol.assignments import LEASE_TTL_S, Assignment, Desired
from protocol.nodes.inventory import NodeView
from protocol.nodes.steps import ExitStep
from tests.simulation.faults import Faults, Kind
from tests.simulation.loop import Loop, TrueClock
from worker_agent.boxes.core import Core, end_of
from worker_agent.boxes.state import State
from worker_agent.cluster.base import (
    ClusterError,
    GpuPhase,
    GpuRecord,
    NodeChange,
    NodeState,
    Records,
    StepCall,
    StepProgress,
    StepStatus,
    WriteKind,
)
from worker_agent.cluster.fleet import SimulatedFleet
from worker_agent.cluster.simulated import PodPhase, SimulatedCluster
from worker_agent.cluster.store import MemoryStore

if TYPE_CHECKING:
    from tests.simulation.agents import SimAgent

EXIT_WITHIN_S = 2.0
RANK = {phase: rank for rank, phase in enumerate(GpuPhase)}
REASONS = {
    "no word from the hub": "an entry waited for the hub",
    "CLOCK_SKEW": "an entry waited for a right clock",
    "HUB_REWIND": "an entry waited for an administrator",
    "too old": "a stale epoch was refused",
    "still ": "an entry waited for the one before",
    "not complete in time": "an entry was late",
    "failed 2 times": "a check failed for good",
    "no longer": "a begun entry was not listed any more",
    "known from the node alone": "a record without its document was told of",
}
HELD = (GpuPhase.ISOLATED, GpuPhase.OPEN, GpuPhase.CLOSED)


class Violation(AssertionError):
    """A promise was broken."""


class WatchedCluster(SimulatedCluster):
    def __init__(self, *, fleet: SimulatedFleet, loop: Loop, faults: Faults, hub_is_restored: list[bool]) -> None:
        self._loop, self._faults = loop, faults
        self._hub_is_restored = hub_is_restored  # shared: after a restore the hub's rows no longer tell
        self.actor: SimAgent | None = None
        self.seen: set[str] = set()
        self.latest_exit_s = 0.0
        self._remade = 0
        self.generation_known = 0  # the highest that an agent of this cluster ever wrote down
        self.restored_at = float("inf")
        super().__init__(fleet=fleet, store=MemoryStore(), clock=TrueClock(loop))

    def save_state(self, body: bytes, version: str) -> str:
        new = super().save_state(body, version)
        self.generation_known = max(self.generation_known, msgspec.json.decode(body, type=State).generation)
        return new

    # -- writes --------------------------------------------------------------------------------------------------------

    def write(self, kind: WriteKind, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        return [self._judged(kind, change) for change in changes]

    def _judged(self, kind: WriteKind, change: NodeChange) -> NodeState | ClusterError:
        seen, records = change
        (answer,) = super().write(kind, [change])
        if isinstance(answer, NodeState):
            match kind:
                case WriteKind.ISOLATE:
                    self._judge_begin(records, "claimed")
                case WriteKind.OPEN:
                    self._judge_begin(records, "opened")
                    self._judge_durable(records)
                case WriteKind.CLOSE:
                    self._judge_close(seen, records)
        return answer

    def _write(self, seen: NodeState, records: Records) -> NodeState | ClusterError:
        before = self.world.nodes[seen.view.name].records
        new = super()._write(seen, records)
        if isinstance(new, ClusterError):
            return new
        for gpu, record in records.items():
            self._judge_order(gpu, before.get(gpu), record)
        self._judge_pods()
        name = self.actor.name if self.actor else "?"
        what = {(r.slice, r.epoch, r.phase.value, r.assignment_id[:8]) for r in records.values()}
        self._loop.note(f"{name} wrote {seen.view.name} {len(records)} GPUs {sorted(what)}")
        return new

    def lift_gates(self, boxes: Sequence[Sequence[Assignment]]) -> None:
        super().serve(boxes)
        self._judge_pods()

    def run(self, call: StepCall) -> StepProgress:
        result = super().run(call)
        is_check = call.step != ExitStep.DRAIN and result.status is StepStatus.OK
        if is_check and self._faults.strikes(Kind.STEP_FAILS, 0.3):
            return StepProgress(status=StepStatus.FAILED, log="injected")
        return result

    # -- judgements ----------------------------------------------------------------------------------------------------

    def _judge_order(self, gpu: str, old: GpuRecord | None, new: GpuRecord) -> None:
        """I1, I5, I8: epochs strictly rise from one holder to the next, and nobody is followed before he is gone."""
        if old is None or (old.assignment_id, old.epoch) == (new.assignment_id, new.epoch):
            if old and RANK[new.phase] < RANK[old.phase]:
                raise Violation(f"{gpu} went from {old.phase} back to {new.phase}")
            return
        if new.epoch <= old.epoch:
            raise Violation(f"{gpu}: epoch {new.epoch} after {old.epoch}")
        if old.phase is not GpuPhase.FREE:
            raise Violation(f"{gpu} was taken from {old.slice} while {old.phase}")

    def _judge_pods(self) -> None:
        """I1 on the ground: a pod of a slice runs only on GPUs whose record is that slice's, open or being cleared."""
        for name, pod in self.world.pods.items():
            if pod.phase is PodPhase.WAITING:
                continue
            for gpu in pod.gpus:
                record = self.world.nodes[pod.node].records[gpu]
                if record.slice != pod.slice or record.phase not in (GpuPhase.OPEN, GpuPhase.CLOSED):
                    raise Violation(f"pod {name} runs on {gpu}, which is {record.phase} for {record.slice}")

    def _judge_begin(self, records: Records, what: str) -> None:
        """I4, I5: with a live lease only, and only what the hub holds for this very assignment and epoch."""
        assert self.actor is not None
        silent_s = self._loop.now - self.actor.health.last_heard_sent_at
        if silent_s > LEASE_TTL_S * 1.002:
            raise Violation(f"{what} {silent_s:.1f} s after the hub's last word")
        record = next(iter(records.values()))
        row = Reservation.objects.filter(pk=record.assignment_id).values("state", "epoch", "starts_at").first()
        if self._hub_is_restored[0]:
            self._judge_rewind(what)
            return
        if row is None or row["state"] != ReservationState.HELD or row["epoch"] != record.epoch:
            raise Violation(f"{what} {record.assignment_id} epoch {record.epoch}, but the hub has {row}")
        early_s = row["starts_at"].timestamp() - self._loop.now
        if early_s > 0:
            raise Violation(f"{what} {early_s:.2f} s before the window")

    def _judge_rewind(self, what: str) -> None:
        """S2: an agent that has heard a restored hub begins nothing until the hub is past all that it said before."""
        assert self.actor is not None
        generation = Cluster.objects.values_list("generation", flat=True).get(uid=self.uid())
        if self.actor.health.last_heard_sent_at > self.restored_at and generation < self.generation_known:
            raise Violation(f"{what} though the hub went back from generation {self.generation_known} to {generation}")

    def _judge_durable(self, records: Records) -> None:
        """The start of the box, of all its nodes, was written down before any opened, or a crash would start it twice."""
        doc, record = self.load_state(), next(iter(records.values()))
        assert doc is not None
        state = msgspec.json.decode(doc.body, type=State)
        box = [a for a in state.assignments.values() if (a.gpr_id, a.run) == (record.gpr_id, record.run)]
        wanted = [a for a in box if not state.progress[a.id].absent and not state.progress[a.id].failure]
        started = [a for a in wanted if state.progress[a.id].active_s == record.active_s]
        if record.assignment_id not in {a.id for a in started}:
            raise Violation(f"opened {record.assignment_id} before its start was written down")
        gang_count = state.assignments[record.assignment_id].gang_count
        if len(started) != gang_count:
            raise Violation(f"opened {len(started)} of {gang_count} nodes of {record.gpr_id}")
        if Reservation.objects.filter(pk=record.assignment_id, replaces__isnull=False).exists():
            self.seen.add("a spare was opened into a running box")

    def _judge_close(self, before: NodeState, records: Records) -> None:
        """I4: by its end, no later than its clock's error and one period allow; and not before the end either."""
        assert self.actor is not None
        assert self.actor.core is not None
        core, record = self.actor.core, next(iter(records.values()))
        state = core._store.state
        assignment, progress = state.assignments[record.assignment_id], state.progress[record.assignment_id]
        end_s = end_of(assignment, progress)
        was = before.records.get(next(iter(records)))
        if was and was.phase is GpuPhase.OPEN and not progress.failure:
            self._judge_leave(record, core)
        if not was or was.phase is not GpuPhase.OPEN or progress.absent or progress.failure or end_s is None:
            return
        late_s, ahead_s = self._loop.now - end_s, core._time.latest() - self._loop.now
        self.seen.add("closed at its end")
        if not self._hub_hears(self.actor):
            self.seen.add("closed at its end without the hub")
        if -late_s > max(0.0, ahead_s) + 1e-6:
            raise Violation(f"closed {-late_s:.2f} s before its end, with a clock {ahead_s:+.2f} s off")
        if self.actor.health.since <= end_s:
            self.latest_exit_s = max(self.latest_exit_s, late_s)
            self._judge_lateness(late_s, ahead_s)

    def _judge_leave(self, record: GpuRecord, core: Core) -> None:
        """An open box is closed at its end or because the hub wants it, and for no other reason."""
        row = Reservation.objects.filter(pk=record.assignment_id).first()
        if row is None or self._hub_is_restored[0] or row.desired == Desired.ABSENT or record.active_s is None:
            return
        end_s = row.not_after_at.timestamp() if row.not_after_at else record.active_s + row.duration_s
        known_s = min(end_s, record.active_s + row.duration_s)  # it may not have heard of an extension
        if self._loop.now < known_s - max(0.0, core._time.latest() - self._loop.now) - 0.01:
            raise Violation(f"closed {record.assignment_id}, which the hub wants until {end_s}")

    def _judge_lateness(self, late_s: float, ahead_s: float) -> None:
        from tests.simulation.agents import PERIOD_S

        allowed_s = max(0.0, -ahead_s) + PERIOD_S + 0.01
        if late_s > allowed_s or (abs(ahead_s) <= EXIT_WITHIN_S - PERIOD_S and late_s > EXIT_WITHIN_S):
            raise Violation(f"closed {late_s:.2f} s after its end; {allowed_s:.2f} s are allowed")

    def _hub_hears(self, actor: SimAgent) -> bool:
        return self._loop.now - actor.health.last_heard_sent_at < 25.0

    def judge_pass(self, actor: SimAgent, core: Core) -> None:
        """After a pass without a fault nothing is open whose end the agent knows to have passed."""
        if core._actions._quiet_until_mono > actor.clock.mono():
            return
        latest_s = core._time.latest()
        self.seen |= {name for seen in core.observed for word, name in REASONS.items() if word in seen.failure}
        for assignment, progress in core._store.state.held():
            record = core._actions.own(assignment)
            if record is None or record.phase is not GpuPhase.OPEN:
                continue
            end_s = end_of(assignment, progress)
            if progress.absent or (end_s is not None and latest_s >= end_s):
                raise Violation(f"{assignment.id} is open after its end ({end_s}, absent {progress.absent})")

    # -- nodes that fail -----------------------------------------------------------------------------------------------

    def busy_nodes(self) -> list[str]:
        """Returns the nodes on which something is open."""
        nodes = sorted(self.world.nodes.items())
        return [name for name, node in nodes if any(record.phase is GpuPhase.OPEN for record in node.records.values())]

    def spoil(self, name: str, *, is_ready: bool) -> None:
        """It is not ready any more, or else all of its GPUs are sick."""
        view = self.world.nodes[name].view
        gpus = tuple(msgspec.structs.replace(gpu, healthy=not is_ready) for gpu in view.gpus)
        self._show(name, msgspec.structs.replace(view, ready=is_ready, broken=not is_ready, gpus=gpus))

    def repair(self, name: str) -> None:
        """Repairs it as it was; one that was gone is made anew under its name."""
        view = next(view for view in self._fleet.nodes() if view.name == name)
        if name in self.world.nodes:
            self._show(name, msgspec.structs.replace(view, uid=self.world.nodes[name].view.uid))
            return
        self._remade += 1
        self.world.nodes[name] = NodeState(
            view=msgspec.structs.replace(view, uid=f"{view.uid[:40]}-{self._remade}"), version="1", records={}
        )

    def lose(self, name: str) -> None:
        del self.world.nodes[name]
        self.world.pods = {key: pod for key, pod in self.world.pods.items() if pod.node != name}

    def _show(self, name: str, view: NodeView) -> None:
        self.world.nodes[name] = msgspec.structs.replace(self.world.nodes[name], view=view)

    def held_assignments(self) -> set[str]:
        return {record.assignment_id for node in self.world.nodes.values() for record in node.records.values() if record.phase in HELD}
