"""Pods of a simulated cluster: they hold the GPUs of their box, wait while it is checked, and are others in each run."""

from __future__ import annotations

import msgspec

from protocol.pods import PodSeen
from protocol.tenancy.workspaces import Binding, Workspace
from tests.builders import node_view
from worker_agent.cluster.base import GpuPhase, GpuRecord, NodeState
from worker_agent.telemetry.simulated import SimulatedTelemetry, WorkKind
from worker_agent.telemetry.simulated_pods import SimulatedPods

SPACES = (Workspace(id="red", name="red", bindings=(Binding(namespace="red-ns"),)),)
VIEWS = [node_view(f"n{number}", gpus=4) for number in range(2)]


def pods(kind: WorkKind, *, phase: GpuPhase = GpuPhase.OPEN, run: int = 1, spaces: tuple[Workspace, ...] = SPACES) -> list[PodSeen]:
    record = GpuRecord(epoch=1, assignment_id="a", gpr_id="gpr-1", slice="red", phase=phase, run=run, active_s=100.0)
    nodes = {view.name: NodeState(view=view, version="1", records=dict.fromkeys((gpu.uuid for gpu in view.gpus), record)) for view in VIEWS}
    made = SimulatedPods(SimulatedTelemetry(seed="s", works={"red": kind})).look(nodes, spaces)
    return msgspec.json.decode(msgspec.json.encode(list(made)), type=list[PodSeen])


def test_a_gang_has_a_pod_on_each_node_and_a_service_one_for_each_gpu() -> None:
    gang, service = pods(WorkKind.TRAINING), pods(WorkKind.INFERENCE)

    assert [(pod.node, pod.rank, pod.gpu_count) for pod in gang] == [("n0", 0, 4), ("n1", 1, 4)]
    assert [pod.gpus for pod in gang] == [tuple(gpu.uuid for gpu in view.gpus) for view in VIEWS]
    assert len({pod.owners[-1].uid for pod in gang}) == 1
    assert (len(service), {pod.owners[-1].kind for pod in service}) == (8, {"InferenceService"})


def test_pods_wait_while_their_box_is_checked_and_end_with_it() -> None:
    assert {(pod.hold, pod.node) for pod in pods(WorkKind.TRAINING, phase=GpuPhase.ISOLATED)} == {("gate", None)}
    assert {pod.phase for pod in pods(WorkKind.TRAINING, phase=GpuPhase.CLOSED)} == {"Terminating"}
    assert pods(WorkKind.TRAINING, phase=GpuPhase.FREE) == []


def test_each_run_has_other_pods_of_the_same_names_and_without_a_namespace_there_are_none() -> None:
    first, second = pods(WorkKind.FINE_TUNING), pods(WorkKind.FINE_TUNING, run=2)

    assert [pod.name for pod in first] == [pod.name for pod in second]
    assert not {pod.uid for pod in first} & {pod.uid for pod in second}
    assert pods(WorkKind.FINE_TUNING, spaces=()) == []
