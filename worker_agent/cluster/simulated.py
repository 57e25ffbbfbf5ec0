"""Simulates a cluster for the demo and for deterministic tests. It keeps the rules of a real one."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

import msgspec

from protocol.assignments import Assignment
from protocol.decoding import decode
from protocol.nodes.check_limits import expect, is_good, judge, measured_against, sentence, skipped, threshold_of
from protocol.nodes.checks import CheckPolicy, CheckResult
from protocol.nodes.drift import Drift
from protocol.nodes.inventory import NodeOrder
from protocol.nodes.steps import DrainStage, EntryStep, ExitStep, RepairStep, drain_stage
from protocol.tenancy.life_marks import LifeMark
from worker_agent.boxes.gangs import why_alone
from worker_agent.clock import Clock
from worker_agent.cluster.base import (
    BoxEnd,
    ClusterError,
    GpuPhase,
    NodeChange,
    NodeState,
    Records,
    StateDoc,
    StepCall,
    StepProgress,
    StepStatus,
    WriteConflict,
    WriteKind,
)
from worker_agent.cluster.fleet import NodeFailure, SimulatedFleet
from worker_agent.cluster.store import Store

WORLD, STATE = "cluster.json", "agent-state.json"


class PodPhase(StrEnum):
    WAITING = "WAITING"  # its scheduling gate is in place
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"


class SimulatedPod(msgspec.Struct, kw_only=True):
    slice: str
    node: str
    phase: PodPhase = PodPhase.WAITING
    assignment_id: str = ""
    gpus: tuple[str, ...] = ()
    stopping_since: float = 0.0


class SimulatedWorld(msgspec.Struct, kw_only=True):
    nodes: dict[str, NodeState]
    pods: dict[str, SimulatedPod] = {}
    failed: dict[str, int] = {}  # by "node/step": how often it has failed as the fleet file says
    asked: dict[str, float] = {}  # by the id of an open order: when it came
    troubled: dict[int, str] = {}  # by the index of the trouble in the fleet file: its node
    healed: set[int] = set()  # indexes of troubles that a repair has ended
    xids: dict[str, int] = {}  # by GPU: the last Xid that its driver has reported

    def pods_of(self, assignment: Assignment) -> list[SimulatedPod]:
        return [pod for pod in self.pods.values() if pod.assignment_id == assignment.id]


@dataclass(frozen=True, slots=True)
class AccessChange:
    at: float
    gpu: str
    slice: str | None  # which may use the GPU from now on; None: nobody
    epoch: int


class SimulatedCluster:
    def __init__(
        self, *, fleet: SimulatedFleet, store: Store, clock: Clock, on_change: Callable[[AccessChange], None] | None = None
    ) -> None:
        self._fleet, self._store, self._clock = fleet, store, clock
        self._on_change = on_change
        self._started: dict[tuple[str, int, str, int], float] = {}
        self._serials = count()
        self.history: list[AccessChange] = []
        self.world = self._load_world()

    def uid(self) -> str:
        return self._fleet.cluster_uid

    # -- documents -----------------------------------------------------------------------------------------------------

    def load_state(self) -> StateDoc | None:
        body = self._store.read(STATE)
        return decode(body, StateDoc) if body else None

    def save_state(self, body: bytes, version: str) -> str:
        doc = self.load_state()
        if version != (doc.version if doc else ""):
            raise WriteConflict("the state document was written in between")
        new = StateDoc(body=body, version=str(int(version or 0) + 1))
        self._store.write(STATE, msgspec.json.encode(new))
        return new.version

    def _load_world(self) -> SimulatedWorld:
        body = self._store.read(WORLD)
        old = decode(body, SimulatedWorld) if body else SimulatedWorld(nodes={})
        nodes = {}
        # The fleet file lists the nodes; ordered nodes and the records of nodes that stay are kept.
        for view in (*self._fleet.nodes(), *(node.view for node in old.nodes.values() if node.view.order)):
            known = old.nodes.get(view.name, NodeState(view=view, version="1", records={}))
            nodes[view.name] = msgspec.structs.replace(known, view=view)
        world = SimulatedWorld(nodes=nodes, pods=old.pods, failed=old.failed, asked=old.asked, troubled=old.troubled)
        world.healed, world.xids = old.healed, old.xids
        for number, name in world.troubled.items():
            if number in world.healed:
                continue
            self._apply_failures(world, self._fleet.troubles[number : number + 1], name)
        return world

    def _save_world(self) -> None:
        self._store.write(WORLD, msgspec.json.encode(self.world))

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def observe(self) -> dict[str, NodeState]:
        for number, trouble in enumerate(self._fleet.troubles):
            if number not in self.world.troubled and (name := self._due(trouble)):
                self.world.troubled[number] = name
                self._apply_failures(self.world, [trouble], name)
                self._save_world()
        return dict(self.world.nodes)

    def serial(self) -> int:
        return next(self._serials)

    def _due(self, trouble: NodeFailure) -> str:
        """Returns the node that fails now, or ""."""
        since = self._clock.wall() - trouble.open_s
        for name, node in sorted(self.world.nodes.items()):
            opened = [record.active_s for record in node.records.values() if record.phase is GpuPhase.OPEN]
            if self._fleet.group_of(name) == trouble.group and any(at is not None and at <= since for at in opened):
                return name
        return ""

    @staticmethod
    def _apply_failures(world: SimulatedWorld, troubles: Sequence[NodeFailure], name: str) -> None:
        for trouble in troubles:
            node = world.nodes.pop(name, None)
            view = trouble.view(node.view) if node else None
            if node is not None and view is not None:
                world.nodes[name] = msgspec.structs.replace(node, view=view)
                world.xids |= {view.gpus[0].uuid: trouble.xid} if trouble.what == "xid" else {}
        if name not in world.nodes:
            world.pods = {key: pod for key, pod in world.pods.items() if pod.node != name}

    def prepare_close(self, closing: Sequence[NodeChange]) -> None:
        pass

    def repair_drift(self, *, repairs: bool) -> Sequence[Drift] | None:
        return None

    def record_event(self, assignment: Assignment, what: str, message: str, *, is_bad: bool) -> None:
        pass

    def record_life_marks(self, life: Sequence[LifeMark]) -> None:
        pass

    def publish_ends(self, ends: Sequence[BoxEnd]) -> None:
        pass

    def write(self, kind: WriteKind, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        return [self._write(seen, records) for seen, records in changes]

    def _write(self, seen: NodeState, records: Records) -> NodeState | ClusterError:
        node = self.world.nodes.get(seen.view.name)
        if node is None or node.version != seen.version:
            return WriteConflict(f"node {seen.view.name} was written in between")
        merged = {**node.records, **records}
        self.world.nodes[seen.view.name] = new = NodeState(view=node.view, version=str(int(node.version) + 1), records=merged)
        self._add_pods(new, records)
        self._remember(node, new)
        self._save_world()
        return new

    def _remember(self, old: NodeState, new: NodeState) -> None:
        for gpu, record in new.records.items():
            before = old.records.get(gpu)
            was = before.slice if before and before.phase is GpuPhase.OPEN else None
            now = record.slice if record.phase is GpuPhase.OPEN else None
            if was != now or (now and before and before.epoch != record.epoch):
                change = AccessChange(at=self._clock.wall(), gpu=gpu, slice=now, epoch=record.epoch)
                self.history.append(change)
                if self._on_change:
                    self._on_change(change)

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _add_pods(self, node: NodeState, records: Records) -> None:
        # The pods of a job exist before its nodes are open.
        for slice_ in {record.slice for record in records.values() if record.phase is GpuPhase.ISOLATED and not record.is_repair}:
            for number in range(self._fleet.pods.per_node):
                pod = SimulatedPod(slice=slice_, node=node.view.name)
                self.world.pods.setdefault(f"{slice_}/{node.view.name}-{number}", pod)

    def lift_gates(self, boxes: Sequence[Sequence[Assignment]]) -> None:
        waiting: dict[tuple[str, str], list[SimulatedPod]] = {}
        for pod in self.world.pods.values():
            if pod.phase is PodPhase.WAITING:
                waiting.setdefault((pod.slice, pod.node), []).append(pod)
        lifted = [a for box in boxes for a in box if (pods := waiting.get((a.slice_key, a.node))) and self._lift(a, pods)]
        if lifted:
            self._save_world()

    def _lift(self, assignment: Assignment, pods: Sequence[SimulatedPod]) -> bool:
        node = self.world.nodes.get(assignment.node)
        # The bind guard: a pod runs only where the records are open for this very assignment now.
        records = [node.records.get(gpu) if node else None for gpu in assignment.gpus]
        is_open = all(r and r.phase is GpuPhase.OPEN and r.assignment_id == assignment.id for r in records)
        if not is_open or self.world.pods_of(assignment):
            return False
        for number, pod in enumerate(pods):
            pod.phase, pod.assignment_id = PodPhase.RUNNING, assignment.id
            pod.gpus = assignment.gpus[number :: len(pods)]
        return True

    def _drain(self, call: StepCall) -> StepProgress:
        stage = drain_stage(call.assignment.drain, call.since_closed_s)
        pods = self.world.pods_of(call.assignment)
        changed = [pod for pod in pods if self._stop(pod, stage)]
        if changed:
            self._save_world()
        left = len(self.world.pods_of(call.assignment))
        if left:
            return StepProgress(status=StepStatus.RUNNING)
        log = f"no pod of workspace {call.assignment.slice} is left {call.since_closed_s:.1f} s after the close ({stage})"
        return StepProgress(status=StepStatus.OK, log=log, evidence={"pods_left": 0, "stage": stage.value})

    def _stop(self, pod: SimulatedPod, stage: DrainStage) -> bool:
        if pod.phase is PodPhase.RUNNING and (stage is not DrainStage.EVICT or not self._fleet.pods.ignores_eviction):
            pod.phase, pod.stopping_since = PodPhase.STOPPING, self._clock.wall()
            return True
        stopped = pod.phase is PodPhase.STOPPING and self._clock.wall() - pod.stopping_since >= self._fleet.pods.stop_s
        if stopped or stage is DrainStage.FORCE:
            # Its controller makes it again at once, and it waits for the slice's next box.
            pod.phase, pod.assignment_id, pod.gpus = PodPhase.WAITING, "", ()
            return True
        return False

    # -- nodes that are ordered ----------------------------------------------------------------------------------------

    def order_nodes(self, orders: Sequence[NodeOrder]) -> None:
        now, there = self._clock.wall(), {node.view.order for node in self.world.nodes.values()}
        asked = {order.id: self.world.asked.get(order.id, now) for order in orders if order.id not in there}
        came = [order for order in orders if order.id in asked and self._join(order, asked[order.id])]
        if came or asked != self.world.asked:
            self.world.asked = {id_: at for id_, at in asked.items() if id_ not in {order.id for order in came}}
            self._save_world()

    def _join(self, order: NodeOrder, asked_at: float) -> bool:
        """Returns False if it is too early, or if the fleet has no node left."""
        growth = self._fleet.growth_for(order)
        if growth is None or self._clock.wall() - asked_at < growth.lead_time_s:
            return False
        views = (self._fleet.ordered_node(growth, number, order) for number in range(growth.count))
        view = next((view for view in views if view.name not in self.world.nodes), None)
        if view is not None:
            self.world.nodes[view.name] = NodeState(view=view, version="1", records={})
        return view is not None

    # -- steps ---------------------------------------------------------------------------------------------------------

    def run(self, call: StepCall) -> StepProgress:
        if call.step == ExitStep.DRAIN:
            return self._drain(call)
        key = (call.assignment.id, call.assignment.epoch, call.step, call.attempt)
        now = self._clock.mono()
        took_s = self._fleet.step_s.get(call.step, self._fleet.step_default_s)
        if now - self._started.setdefault(key, now) < took_s:
            return StepProgress(status=StepStatus.RUNNING)
        del self._started[key]
        if self._strikes(call.node.view.name, call.step):
            return StepProgress(status=StepStatus.FAILED, log=f"{call.step} failed: the fleet's script says so")
        return self._check(call)

    def _strikes(self, node: str, step: str) -> bool:
        times = next((f.times for f in self._fleet.failures if (f.node, f.step) == (node, step)), 0)
        key = f"{node}/{step}"
        if times != "always" and self.world.failed.get(key, 0) >= times:
            return False
        self.world.failed[key] = self.world.failed.get(key, 0) + 1
        self._save_world()
        return True

    def xids(self) -> dict[str, int]:
        """It is thread-safe."""
        return dict(self.world.xids)

    def _repair(self, call: StepCall) -> StepProgress:
        """A reboot ends all troubles, a reset those of GPUs, and a restart of the driver's pods none."""
        cured = {RepairStep.RESET_GPUS: ("gpu_sick", "xid"), RepairStep.REBOOT_NODE: ("gpu_sick", "xid", "not_ready")}
        name, node = call.node.view.name, self.world.nodes[call.node.view.name]
        of_node = {number for number, at in self.world.troubled.items() if at == name}
        ended = {number for number in of_node if self._fleet.troubles[number].what in cured.get(RepairStep(call.step), ())}
        if ended:
            view = next((view for view in self._fleet.nodes() if view.name == name), node.view)
            self.world.healed |= ended
            self.world.nodes[name] = msgspec.structs.replace(node, view=view)
            self.world.xids = {gpu: xid for gpu, xid in self.world.xids.items() if gpu not in {each.uuid for each in view.gpus}}
            self._apply_failures(self.world, [self._fleet.troubles[number] for number in sorted(of_node - self.world.healed)], name)
            self._save_world()
        return StepProgress(status=StepStatus.OK, log=f"{call.step} of node {name} is done")

    def _check(self, call: StepCall) -> StepProgress:
        if call.step in list(RepairStep):
            return self._repair(call)
        view, want = call.node.view, len(call.assignment.gpus)
        own = [gpu for gpu in view.gpus if gpu.uuid in call.assignment.gpus]
        sick = [gpu.index for gpu in own if not gpu.healthy or gpu.uuid in self.world.xids]
        busy = len(self.world.pods_of(call.assignment))
        is_ok = {
            EntryStep.NODE_READY: view.ready,
            EntryStep.GPU_HEALTH: not sick,
            ExitStep.GPU_IDLE: not busy,
            ExitStep.NODE_CLEAN: not busy,
            ExitStep.VOLUMES: not busy,
        }.get(EntryStep(call.step) if call.step in list(EntryStep) else ExitStep(call.step), True)
        results = _measured(call, sick, busy)
        log = "\n".join(line for line in (_said(call, want, sick, busy), *map(sentence, _of_node(results))) if line)
        status = StepStatus.OK if is_ok and is_good(results) else StepStatus.FAILED
        return StepProgress(status=status, log=log, evidence={"gpus": want}, results=results)


def _of_node(results: tuple[CheckResult, ...]) -> Iterator[CheckResult]:
    return (result for result in results if not result.gpu)


def _said(call: StepCall, want: int, sick: list[int], busy: int) -> str:
    view = call.node.view
    match call.step:
        case EntryStep.NODE_READY:
            return f"node {view.name} is {'' if view.ready else 'not '}ready (UID {view.uid})"
        case EntryStep.GPU_COUNT:
            return f"{want} of {want} GPUs answer, model {view.shape}"
        case EntryStep.GPU_HEALTH:
            return f"{want} GPUs measured; sick GPUs: {sick or 'none'}"
        case ExitStep.GPU_IDLE:
            return f"{busy} processes on {want} GPUs"
        case ExitStep.NODE_CLEAN:
            return f"no label, taint, mount or pod of workspace {call.assignment.slice} is left"
        case _:
            return ""


def _measured(call: StepCall, sick: list[int], busy: int) -> tuple[CheckResult, ...]:
    """Returns figures of a healthy node, the same at each run."""
    match call.step:
        case EntryStep.GPU_COUNT:
            return (expect("gpu_count", len(call.assignment.gpus), len(call.assignment.gpus), is_least=True),)
        case EntryStep.GPU_HEALTH:
            own = [gpu for gpu in call.node.view.gpus if gpu.uuid in call.assignment.gpus]
            return tuple(result for gpu in own for result in _health(call, gpu.uuid, is_sick=gpu.index in sick))
        case EntryStep.STORAGE:
            return _judged(call, volume_wait=2, volume_write=_near(call, 800), volume_read=_near(call, 1600))
        case EntryStep.NETWORK | ExitStep.EXIT_NETWORK:
            return _judged(call, dns_time=_near(call, 2), service_time=_near(call, 1), peer_time=_near(call, 1))
        case EntryStep.RDMA if not call.node.view.rdma:
            return (skipped("rdma_links", "the node has no RDMA"),)
        case EntryStep.RDMA:
            return _judged(call, rdma_links=8, rdma_rate=threshold_of("rdma_rate", call.node.view.shape, CheckPolicy()))
        case EntryStep.NCCL | ExitStep.EXIT_NCCL:
            good = threshold_of("nccl_bandwidth", call.node.view.shape, CheckPolicy()) or 20.0
            return _judged(call, nccl_bandwidth=_near(call, good * 1.02), nccl_latency=_near(call, 22), nccl_wrong=0)
        case EntryStep.GANG_NETWORK if len(call.gang) < 2:
            return (skipped("gang_latency", why_alone(call.assignment)),)
        case EntryStep.GANG_NETWORK:
            against = (measured_against(call.at_work),) if call.at_work else ()
            return (*_judged(call, gang_latency=_near(call, 0.2)), *against)
        case ExitStep.GPU_IDLE:
            return tuple(_judge(call, "gpu_processes", busy, gpu=gpu) for gpu in call.assignment.gpus)
        case ExitStep.VOLUMES:
            return (expect("volumes_attached", 0, 0),)
        case _:
            return ()


def _health(call: StepCall, gpu: str, *, is_sick: bool) -> Iterator[CheckResult]:
    yield _judge(call, "gpu_temperature", round(_near(call, 35, of=gpu)), gpu=gpu)
    for check in ("ecc_uncorrected", "rows_pending", "xid_errors"):
        yield _judge(call, check, 0, gpu=gpu)
    yield _judge(call, "rows_failed", int(is_sick), gpu=gpu)


def _judged(call: StepCall, **values: float | None) -> tuple[CheckResult, ...]:
    return tuple(_judge(call, check, value) for check, value in values.items())


def _judge(call: StepCall, check: str, value: float | None, *, gpu: str = "") -> CheckResult:
    return judge(check, value, shape=call.node.view.shape, policy=call.assignment.checks, gpu=gpu)


def _near(call: StepCall, value: float, *, of: str = "") -> float:
    """Adds up to a fifth."""
    luck = zlib.crc32(f"{call.node.view.name}/{call.step}/{of}".encode()) % 1000 / 1000
    return round(value * (1 + luck / 5), 2)
