"""A repair is an entry that never opens: its steps repair and check the node, and nobody gets in."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.agents.events import Outcome
from protocol.assignments import Assignment, Phase
from protocol.nodes.steps import RepairStep
from tests.agent.stage import Stage, absent, small_fleet
from worker_agent.cluster.base import GpuPhase
from worker_agent.cluster.fleet import NodeFailure, StepFailure
from worker_agent.telemetry.simulated import SimulatedTelemetry

STEPS = (RepairStep.RESET_GPUS, "node_ready", "gpu_count", "gpu_health")


def repair(stage: Stage, *, steps: tuple[str, ...] = STEPS, **changes: Any) -> Assignment:
    own: dict[str, Any] = {"id": "r0", "gpr_id": "r0", "gpr_name": "", "slice": "", "slice_id": "r0", "namespaces": ()}
    return stage.assignment(**{**own, "entry_steps": steps, "is_repair": True, **changes})


def xids(stage: Stage) -> set[float | None]:
    telemetry = SimulatedTelemetry(seed="x", xids=stage.cluster.xids)
    return {reading.values[12] for reading in telemetry.read(stage.cluster.observe(), stage.hub_clock.wall)}


def test_a_repair_acts_then_checks_and_never_opens() -> None:
    stage = Stage()
    stage.tell(repair(stage))
    stage.run(10)

    assert stage.phase("r0") is Phase.ENTERED
    assert stage.gpu_phases() == {GpuPhase.ISOLATED}
    assert stage.running_pods() == 0
    assert stage.cluster.world.pods == {}
    assert [event.step for event in stage.take_events()] == ["claim", *STEPS]

    stage.tell(absent(repair(stage)))
    stage.run(3)
    assert stage.phase("r0") is Phase.RELEASED


def test_a_repair_goes_on_after_a_restart_of_the_agent_and_acts_once() -> None:
    stage = Stage()
    stage.tell(repair(stage))
    stage.run(2)
    stage.start()
    stage.tell(repair(stage))
    stage.run(10)

    assert stage.phase("r0") is Phase.ENTERED
    assert [event.step for event in stage.take_events()].count(RepairStep.RESET_GPUS) == 1


def test_a_repair_whose_check_fails_leaves_the_node_by_itself() -> None:
    stage = Stage(small_fleet(failures=(StepFailure(node="test-h-01", step="gpu_health", times="always"),)))
    stage.tell(repair(stage))
    stage.run(60, until=lambda: stage.phase("r0") is Phase.RELEASED)

    assert stage.phase("r0") is Phase.RELEASED
    failed = [event.attempt for event in stage.take_events() if event.outcome is Outcome.FAILED]
    assert failed == [1, 2]


def test_a_box_may_not_ask_for_an_action_that_repairs() -> None:
    stage = Stage()
    stage.tell(stage.assignment(entry_steps=(RepairStep.REBOOT_NODE, "node_ready")))
    stage.run(2)

    assert stage.seen("a0").failure.startswith("UNSUPPORTED")


def test_the_simulated_cluster_plays_a_fault_that_a_reset_ends_and_a_restart_does_not() -> None:
    fault = NodeFailure(group="h", what="xid", xid=119, open_s=1)
    stage = Stage(msgspec.structs.replace(small_fleet(), troubles=(fault,)))
    box = stage.assignment()
    stage.tell(box)
    stage.run(6)
    assert xids(stage) == {0, 119}
    stage.tell(absent(box))
    stage.run(6)

    steps = (RepairStep.RESTART_DRIVER, "gpu_health")
    stage.tell(repair(stage, steps=steps, epoch=2))
    stage.run(90, until=lambda: stage.phase("r0") is Phase.RELEASED)
    assert xids(stage) == {0, 119}
    stage.tell(repair(stage, id="r1", gpr_id="r1", slice_id="r1", epoch=3))
    stage.run(10)
    assert (stage.phase("r1"), xids(stage)) == (Phase.ENTERED, {0})
