"""A stage for tests of the core: a small simulated cluster, a clock that stands still, and a hub that says what it is told to."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from protocol.agents.events import InventoryEvent, StepEvent
from protocol.agents.listings import set_digest
from protocol.agents.sync import SyncReply
from protocol.assignments import Assignment, Desired, Observed, Phase
from protocol.nodes.inventory import NodeOrder, NodeView
from tests.agent.faulty import Fault, FaultyCluster
from worker_agent.boxes.core import Core
from worker_agent.cluster.base import GpuPhase
from worker_agent.cluster.fleet import NodeGroup, SimulatedFleet, StepFailure, TenantPods
from worker_agent.cluster.simulated import SimulatedCluster
from worker_agent.cluster.store import MemoryStore

T0 = 1_800_000_000.0
HUB_ID = "hub-1"
ENTRY = ("node_ready", "gpu_count")
EXIT = ("drain", "gpu_idle")


class FakeClock:
    def __init__(self, wall: float = T0, mono: float = 500.0) -> None:
        self.wall_s, self.mono_s = wall, mono

    def wall(self) -> float:
        return self.wall_s

    def mono(self) -> float:
        return self.mono_s

    def advance(self, seconds: float) -> None:
        self.wall_s += seconds
        self.mono_s += seconds


def small_fleet(*, count: int = 2, failures: tuple[StepFailure, ...] = (), pods: TenantPods | None = None) -> SimulatedFleet:
    group = NodeGroup(name="h", count=count, node_type="hgx", gpu_model="H100", memory_gib=80, gpus=4)
    return SimulatedFleet(name="test", groups=(group,), failures=failures, pods=pods or TenantPods(stop_s=0.5))


class Stage:
    """The agent's clock is `clock`; the hub's is `hub_clock`, which moves with it."""

    core: Core

    def __init__(
        self, fleet: SimulatedFleet | None = None, *, choose: Callable[[str], Fault | None] | None = None, starts: bool = True
    ) -> None:
        self.fleet = fleet or small_fleet()
        self.views: tuple[NodeView, ...] = self.fleet.nodes()
        self.inventory: tuple[NodeView, ...] = ()  # as the hub has it
        self.clock, self.hub_clock = FakeClock(), FakeClock()
        self.cluster = SimulatedCluster(fleet=self.fleet, store=MemoryStore(), clock=self.hub_clock)
        self.choose = choose or (lambda _: None)
        self.notes: list[str] = []
        self.generation = 0
        self.session_epoch = 1
        self.events: dict[int, StepEvent] = {}
        self.orders: tuple[NodeOrder, ...] = ()  # what the hub wants to come
        if starts:
            self.start()

    def start(self) -> None:
        """Start the agent, or start it again: all that it had in memory is gone."""
        driver = FaultyCluster(self.cluster, self._choose)
        self.core = Core(cluster=driver, clock=self.clock, rng=random.Random(7), note=lambda event, _: self.notes.append(event))

    def _choose(self, call: str) -> Fault | None:
        """A test may change its mind in the middle."""
        return self.choose(call)

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.hub_clock.advance(seconds)

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Passes, four a second; without a word from the hub."""
        for _ in range(round(seconds * 4)):
            if until():
                return
            self.core.reconcile()
            self.advance(0.25)

    # -- the hub -------------------------------------------------------------------------------------------------------

    def tell(self, *assignments: Assignment, generation: int | None = None, hub_id: str = HUB_ID) -> None:
        """One sync: this is the whole set now."""
        self.generation = self.generation + 1 if generation is None else generation
        sent = self.core.sync_request(0.0)
        self.core.on_reply(sent, self.reply(*assignments, hub_id=hub_id))

    def reply(self, *assignments: Assignment, hub_id: str = HUB_ID) -> SyncReply:
        now = self.hub_clock.wall()
        return SyncReply(
            hub_id=hub_id,
            session_epoch=self.session_epoch,
            received_s=now,
            sent_s=now,
            lease_ttl_s=45.0,
            generation=self.generation,
            count=len(assignments),
            digest=set_digest(assignments),
            assignments=assignments,
            orders=self.orders,
        )

    def take_events(self) -> list[StepEvent]:
        """Store what the agent reports, as the hub would. Returns the new step events."""
        events = self.core.pending_events()
        if events:
            self.inventory = next((event.nodes for event in reversed(events) if isinstance(event, InventoryEvent)), self.inventory)
            self.core.acknowledge(session_epoch=self.session_epoch, stored_seq=events[-1].seq)
        return [event for event in events if isinstance(event, StepEvent)]

    # -- what is there -------------------------------------------------------------------------------------------------

    def assignment(self, node: int = 0, **changes: object) -> Assignment:
        view = self.views[node]
        default = Assignment(
            id=f"a{node}",
            gpr_id="gpr-1",
            gpr_name="train",
            slice="red",
            namespaces=("red-ns",),
            node=view.name,
            node_uid=view.uid,
            gpus=tuple(gpu.uuid for gpu in view.gpus),
            epoch=1,
            desired=Desired.PRESENT,
            gang_count=1,
            not_before_s=T0,
            enter_by_s=T0 + 600,
            duration_s=60.0,
            not_after_s=None,
            entry_steps=ENTRY,
            exit_steps=EXIT,
        )
        return msgspec.structs.replace(default, **changes)

    def gang(self, **changes: object) -> list[Assignment]:
        return [self.assignment(node, gang_count=2, **changes) for node in (0, 1)]

    def observed(self, assignment_id: str = "a0") -> Observed | None:
        return next((seen for seen in self.core.observed if seen.assignment_id == assignment_id), None)

    def seen(self, assignment_id: str = "a0") -> Observed:
        seen = self.observed(assignment_id)
        assert seen is not None
        return seen

    def phase(self, assignment_id: str = "a0") -> Phase | None:
        seen = self.observed(assignment_id)
        return seen.phase if seen else None

    def gpu_phases(self, node: int = 0) -> set[GpuPhase]:
        return {record.phase for record in self.cluster.world.nodes[self.views[node].name].records.values()}

    def open_to(self, node: int = 0) -> set[str]:
        records = self.cluster.world.nodes[self.views[node].name].records.values()
        return {record.slice for record in records if record.phase is GpuPhase.OPEN}

    def running_pods(self) -> int:
        return sum(bool(pod.assignment_id) for pod in self.cluster.world.pods.values())


def absent(assignment: Assignment) -> Assignment:
    return msgspec.structs.replace(assignment, desired=Desired.ABSENT)
