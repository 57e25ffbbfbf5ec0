"""Entry: nothing begins without the hub's leave, and a box opens as a whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from protocol.agents.events import Outcome
from protocol.assignments import Phase
from tests.agent.faulty import Fault
from tests.agent.stage import T0, FakeClock, Stage, absent, small_fleet
from worker_agent.cluster.base import (
    ClusterError,
    GpuPhase,
    GpuRecord,
    NodeChange,
    NodeState,
    StepCall,
    StepProgress,
    StepStatus,
    Unavailable,
    WriteKind,
)
from worker_agent.cluster.fleet import StepFailure


def put_record(stage: Stage, epoch: int, phase: GpuPhase, assignment_id: str = "other") -> None:
    """Write a record on the first GPU of the first node behind the agent's back."""
    node = stage.cluster.world.nodes[stage.views[0].name]
    gpu = stage.views[0].gpus[0].uuid
    record = GpuRecord(epoch=epoch, assignment_id=assignment_id, gpr_id="g", slice="blue", phase=phase)
    stage.cluster.write(WriteKind.RELEASE, [(node, {gpu: record})])


def test_a_box_goes_through_claim_checks_and_opening_and_tells_each_step_once() -> None:
    stage = Stage()
    stage.tell(stage.assignment())
    stage.run(3)

    assert stage.phase() is Phase.ACTIVE
    assert stage.open_to() == {"red"}
    assert stage.running_pods() == 1
    steps = [(event.step, event.attempt, event.outcome) for event in stage.take_events()]
    assert steps == [(step, 1, Outcome.OK) for step in ("claim", "node_ready", "gpu_count", "open")]
    assert stage.take_events() == []


def test_a_gang_opens_only_when_every_node_is_ready_and_then_all_at_one_time() -> None:
    stage = Stage(small_fleet(failures=(StepFailure(node="test-h-02", step="gpu_count", times=1),)))
    stage.tell(*stage.gang())
    stage.run(1.25)
    assert stage.phase("a0") is Phase.ENTERED
    assert stage.open_to(0) == stage.open_to(1) == set()

    stage.run(3)
    seen = [stage.seen("a0"), stage.seen("a1")]
    assert [each.phase for each in seen] == [Phase.ACTIVE, Phase.ACTIVE]
    assert seen[0].active_s == seen[1].active_s
    assert {change.at for change in stage.cluster.history} == {seen[0].active_s}


def test_a_gang_whose_set_is_short_of_a_member_waits() -> None:
    stage = Stage()
    stage.tell(stage.gang()[0])
    stage.run(5)
    assert stage.phase() is Phase.ENTERED


def test_nothing_is_claimed_before_the_window_begins() -> None:
    stage = Stage()
    stage.tell(stage.assignment(not_before_s=T0 + 5))
    stage.run(5)
    assert stage.phase() is Phase.PENDING
    assert stage.gpu_phases() == set()
    stage.run(3)
    assert stage.phase() is Phase.ACTIVE


def test_a_clock_that_runs_ahead_does_not_open_the_window_early() -> None:
    stage = Stage()
    stage.clock.wall_s += 3.0
    stage.tell(stage.assignment(not_before_s=T0 + 5))
    stage.run(4.75)
    assert stage.gpu_phases() == set()


@pytest.mark.parametrize("hand", ["wall_s", "mono_s"])
def test_one_clock_that_leaps_since_the_hub_was_heard_does_not_open_the_window_early(hand: str) -> None:
    stage = Stage()
    stage.tell(stage.assignment(not_before_s=T0 + 5))
    setattr(stage.clock, hand, getattr(stage.clock, hand) + 4.0)
    stage.run(4.75)
    assert stage.gpu_phases() == set()


def test_without_a_live_lease_nothing_is_claimed() -> None:
    stage = Stage()
    stage.tell(stage.assignment(not_before_s=T0 + 50))
    stage.run(60)
    assert stage.phase() is Phase.PENDING
    assert stage.gpu_phases() == set()
    stage.tell(stage.assignment(not_before_s=T0 + 50))
    stage.run(3)
    assert stage.phase() is Phase.ACTIVE


def test_without_a_live_lease_a_box_that_is_ready_is_not_opened() -> None:
    stage = Stage()
    stage.fleet.step_s["gpu_count"] = 50.0
    stage.tell(stage.assignment())
    stage.run(60)
    assert stage.phase() is Phase.ENTERED
    assert stage.open_to() == set()
    seen = stage.seen()
    assert "no word from the hub" in seen.failure


def test_a_process_that_slept_has_no_lease_even_if_its_answer_just_came() -> None:
    stage = Stage()
    sent = stage.core.sync_request(20.0)
    reply = stage.reply(stage.assignment())
    stage.advance(100)
    stage.core.on_reply(sent, reply)
    stage.run(3)
    assert "no word from the hub" in stage.core.link.entry_block()
    assert stage.gpu_phases() == set()


def test_a_restarted_agent_begins_nothing_until_it_hears_the_hub() -> None:
    stage = Stage()
    stage.tell(stage.assignment(not_before_s=T0 + 1))
    stage.run(0.5)
    stage.start()
    stage.run(10)
    assert stage.gpu_phases() == set()


@pytest.mark.parametrize("skew_s", [-8.0, 8.0])
def test_a_clock_more_than_five_seconds_off_refuses_entries(skew_s: float) -> None:
    stage = Stage()
    stage.clock.wall_s += skew_s
    stage.tell(stage.assignment())
    stage.run(5)
    seen = stage.seen()
    assert seen.phase is Phase.PENDING
    assert seen.failure.startswith("CLOCK_SKEW")


@pytest.mark.parametrize("phase", [GpuPhase.FREE, GpuPhase.ISOLATED])
@pytest.mark.parametrize("epoch", [5, 6])
def test_a_gpu_with_the_same_or_a_higher_epoch_on_record_is_not_claimed(epoch: int, phase: GpuPhase) -> None:
    stage = Stage()
    put_record(stage, epoch, phase)
    stage.tell(stage.assignment(epoch=5))
    stage.run(3)
    assert stage.phase() is Phase.PENDING
    seen = stage.seen()
    assert "too old" in seen.failure


def test_a_gpu_that_another_assignment_still_holds_is_not_claimed_even_with_a_higher_epoch() -> None:
    stage = Stage()
    put_record(stage, 4, GpuPhase.CLOSED, assignment_id="a1")
    stage.tell(stage.assignment(epoch=5))
    stage.run(0.5)
    seen = stage.seen()
    assert "still CLOSED" in seen.failure


def test_a_node_written_between_the_look_and_the_claim_is_looked_at_again() -> None:
    stage = Stage()
    stage.tell(stage.assignment(epoch=5))
    stage.core.reconcile()  # the view is taken, the isolation is done at once
    other = Stage()

    def write_in_between(call: str) -> None:
        if call == "isolate" and not other.cluster.world.nodes[other.views[0].name].records:
            put_record(other, 7, GpuPhase.FREE)

    other.choose = write_in_between
    other.tell(other.assignment(epoch=5))
    other.run(3)
    assert "write_failed" in other.notes
    assert other.gpu_phases() == {GpuPhase.FREE}


def test_another_machine_under_the_same_name_is_not_claimed() -> None:
    stage = Stage()
    stage.tell(stage.assignment(node_uid="somebody-else"))
    stage.run(3)
    seen = stage.seen()
    assert seen.phase is Phase.PENDING
    assert "made anew" in seen.failure


def test_a_check_that_fails_once_is_tried_again() -> None:
    stage = Stage(small_fleet(failures=(StepFailure(node="test-h-01", step="node_ready", times=1),)))
    stage.tell(stage.assignment())
    stage.run(6)
    assert stage.phase() is Phase.ACTIVE
    outcomes = [(e.attempt, e.outcome) for e in stage.take_events() if e.step == "node_ready"]
    assert outcomes == [(1, Outcome.FAILED), (2, Outcome.OK)]


def test_a_check_that_keeps_failing_fails_this_node_and_the_others_wait_for_the_hub() -> None:
    stage = Stage(small_fleet(failures=(StepFailure(node="test-h-01", step="node_ready", times="always"),)))
    stage.tell(*stage.gang())
    stage.run(6)
    failed, other = stage.seen("a0"), stage.seen("a1")
    assert failed.phase is Phase.RELEASED
    assert "check Node ready failed" in failed.failure
    assert other.phase is Phase.ENTERED
    stage.tell(*map(absent, stage.gang()))
    stage.run(3)
    assert stage.phase("a1") is Phase.RELEASED


def test_an_entry_that_is_not_complete_in_time_fails_and_is_cleaned_up() -> None:
    stage = Stage()
    stage.fleet.step_s["gpu_count"] = 1e9
    stage.tell(stage.assignment(enter_by_s=T0 + 10))
    stage.run(9.75)
    assert stage.phase() is Phase.ENTERING
    stage.run(3)
    assert stage.phase() is Phase.RELEASED
    assert stage.gpu_phases() == {GpuPhase.FREE}


def test_an_entry_step_of_a_newer_hub_is_reported_and_fails_the_entry() -> None:
    stage = Stage()
    stage.tell(stage.assignment(entry_steps=("node_ready", "quantum_check")))
    stage.run(3)
    seen = stage.seen()
    assert seen.phase is Phase.RELEASED
    assert "quantum_check" in seen.failure
    assert next((e.step, e.outcome) for e in stage.take_events()) == ("quantum_check", Outcome.UNSUPPORTED)
    assert stage.cluster.history == []


def test_a_wish_of_a_newer_hub_is_reported_and_nothing_else_is_done() -> None:
    stage = Stage()
    stage.tell(stage.assignment(desired="HIBERNATE"))
    stage.run(3)
    assert stage.phase() is Phase.PENDING
    assert [(e.step, e.outcome) for e in stage.take_events()] == [("HIBERNATE", Outcome.UNSUPPORTED)]


def test_the_start_of_the_window_is_written_down_before_anything_opens() -> None:
    stage = Stage()
    durable_at_open: list[bool] = []

    def look(call: str) -> Fault | None:
        if call == "open":
            doc = stage.cluster.load_state()
            durable_at_open.append(doc is not None and b'"active_s"' in doc.body)
        return None

    stage.choose = look
    stage.tell(*stage.gang())
    stage.run(3)
    assert durable_at_open == [True, True]


def test_nothing_is_claimed_that_could_not_be_remembered() -> None:
    stage = Stage()
    stage.choose = lambda call: Fault.ERROR if call == "save_state" else None
    stage.tell(stage.assignment())
    stage.run(3)
    assert stage.gpu_phases() == set()
    assert "state_not_saved" in stage.notes


def test_a_box_is_opened_though_checks_of_another_take_long() -> None:
    stage = Stage()
    ready, slow = (stage.assignment(number, gpr_id=f"gpr-{number}", enter_by_s=T0 + 3600) for number in (0, 1))
    inner = stage.cluster.run

    def run(call: StepCall) -> StepProgress:
        if call.assignment.id != slow.id:
            return inner(call)
        stage.advance(1.1)
        return StepProgress(status=StepStatus.RUNNING)

    stage.cluster.run = run  # type: ignore[method-assign]
    stage.tell(ready, slow)
    stage.run(3)

    assert stage.open_to(0) == {"red"}
    assert stage.phase(slow.id) is Phase.ENTERING


def test_a_node_whose_writes_hang_keeps_no_other_box_from_entering() -> None:
    stage = Stage()
    stuck, box = stage.assignment(0, gpr_id="gpr-0"), stage.assignment(1, gpr_id="gpr-1", enter_by_s=T0 + 3600, duration_s=7200.0)
    inner = stage.cluster.write

    def write(kind: WriteKind, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        if changes[0][0].view.name == stuck.node:
            stage.advance(6.0)
            return [Unavailable("time-out") for _ in changes]
        return inner(kind, changes)

    stage.cluster.write = write  # type: ignore[method-assign]
    for _ in range(4):
        stage.tell(absent(stuck), box)
        stage.run(1)

    assert stage.phase(box.id) is Phase.ACTIVE


def test_a_box_that_the_cluster_never_takes_keeps_those_that_share_its_node_no_longer_than_a_few_passes() -> None:
    stage = Stage()
    gpus = [gpu.uuid for gpu in stage.views[0].gpus]
    boxes = [stage.assignment(id=f"a{number}", gpr_id=f"gpr-{number}", gpus=(gpu,)) for number, gpu in enumerate(gpus)]
    inner = stage.cluster.write

    def write(kind: WriteKind, changes: Sequence[NodeChange]) -> list[NodeState | ClusterError]:
        ((_, records),) = changes
        return [ClusterError("422")] if gpus[0] in records else inner(kind, changes)

    stage.cluster.write = write  # type: ignore[method-assign]
    stage.tell(*boxes)
    stage.run(6)

    assert [stage.phase(box.id) for box in boxes] == [Phase.PENDING, *[Phase.ACTIVE] * (len(boxes) - 1)]


def test_a_pod_that_comes_late_is_let_in_while_the_box_is_open() -> None:
    stage = Stage()
    stage.tell(stage.assignment())
    stage.run(3)
    for pod in stage.cluster.world.pods.values():
        pod.phase, pod.assignment_id, pod.gpus = type(pod.phase).WAITING, "", ()
    stage.run(0.5)
    assert stage.running_pods() == 1


def test_records_wiped_off_a_node_are_written_again() -> None:
    stage = Stage()
    stage.tell(stage.assignment())
    stage.run(3)
    stage.cluster.world.nodes[stage.views[0].name].records.clear()
    stage.tell(stage.assignment())
    stage.run(1)
    assert stage.open_to() == {"red"}


def test_the_fake_clock_moves_both_of_its_times_together() -> None:
    clock = FakeClock()
    clock.advance(2.5)
    assert (clock.wall(), clock.mono()) == (T0 + 2.5, 502.5)
