"""Exit: at the end, hub or no hub; closed first, drained, checked, and only then released."""

from __future__ import annotations

import msgspec
import pytest

from protocol.agents.events import Outcome
from protocol.assignments import Assignment, Drain, Phase
from protocol.nodes.steps import DrainStage, drain_stage
from tests.agent.faulty import Fault
from tests.agent.stage import T0, Stage, absent, small_fleet
from worker_agent.boxes.records import new_records
from worker_agent.cluster.base import GpuPhase, StepCall, StepProgress, Unavailable
from worker_agent.cluster.fleet import StepFailure, TenantPods


def active(stage: Stage, *assignments: Assignment) -> float:
    """Bring them to ACTIVE; when that was."""
    stage.tell(*(assignments or (stage.assignment(),)))
    stage.run(10, until=lambda: all(seen.phase is Phase.ACTIVE for seen in stage.core.observed))
    seen = stage.core.observed[0]
    assert seen.active_s is not None
    return seen.active_s


def run_until_closed(stage: Stage, limit_s: float) -> float:
    stage.run(limit_s, until=lambda: stage.open_to() == set())
    return stage.cluster.history[-1].at


def test_the_window_ends_at_the_second_though_the_hub_is_away() -> None:
    stage = Stage()
    active_s = active(stage)
    assert run_until_closed(stage, 120) - (active_s + 60.0) == pytest.approx(0.0, abs=0.25)
    stage.run(5)
    assert stage.phase() is Phase.RELEASED
    assert stage.gpu_phases() == {GpuPhase.FREE}
    assert stage.running_pods() == 0


def test_the_window_ends_at_the_second_though_the_agent_restarted_and_the_hub_is_away() -> None:
    stage = Stage()
    active_s = active(stage)
    stage.run(30)
    stage.start()
    assert run_until_closed(stage, 120) - (active_s + 60.0) == pytest.approx(0.0, abs=0.25)


def test_the_exit_of_a_box_whose_end_passed_while_the_agent_was_down_begins_at_once() -> None:
    stage = Stage()
    active(stage)
    stage.advance(1000)
    stage.start()
    stage.run(0.25)
    assert stage.open_to() == set()


def test_the_hubs_word_on_the_end_counts_more_than_our_own() -> None:
    stage = Stage()
    active_s = active(stage)
    stage.tell(stage.assignment(not_after_s=active_s + 10))
    assert run_until_closed(stage, 100) == pytest.approx(active_s + 10, abs=0.25)


def test_an_extension_before_the_end_moves_it() -> None:
    stage = Stage()
    active_s = active(stage)
    stage.tell(stage.assignment(not_after_s=active_s + 90))
    assert run_until_closed(stage, 200) == pytest.approx(active_s + 90, abs=0.25)


def test_an_extension_after_the_exit_began_changes_nothing() -> None:
    stage = Stage()
    active_s = active(stage)
    run_until_closed(stage, 100)
    stage.tell(stage.assignment(not_after_s=active_s + 900))
    stage.run(5)
    assert stage.phase() is Phase.RELEASED


@pytest.mark.parametrize("restart", [False, True])
def test_an_extension_does_not_split_a_box_of_which_one_node_is_closed_already(restart: bool) -> None:
    stage = Stage()
    active_s = active(stage, *stage.gang())
    calls: list[str] = []

    def second_close_fails(call: str) -> Fault | None:
        calls.append(call)
        # The write-ahead of the decision fails too, so that only the closed node shows it.
        return Fault.CONFLICT if (call == "close" and calls.count("close") > 1) or call == "save_state" else None

    stage.run(100, until=lambda: stage.clock.wall() >= active_s + 60)
    stage.choose = second_close_fails
    stage.core.reconcile()
    assert (stage.open_to(0), stage.open_to(1)) == (set(), {"red"})
    stage.choose = lambda _: None
    if restart:
        stage.start()
    stage.tell(*stage.gang(not_after_s=active_s + 900))
    stage.run(5)
    assert stage.phase("a0") is stage.phase("a1") is Phase.RELEASED


@pytest.mark.parametrize("hand", ["wall_s", "mono_s"])
def test_one_clock_that_stands_still_does_not_delay_the_end(hand: str) -> None:
    stage = Stage()
    active_s = active(stage)
    still = getattr(stage.clock, hand)
    for _ in range(4 * 70):
        stage.core.reconcile()
        stage.advance(0.25)
        setattr(stage.clock, hand, still)
    assert stage.cluster.history[-1].at == pytest.approx(active_s + 60, abs=0.25)


def test_closing_comes_before_draining() -> None:
    stage = Stage()
    active(stage)
    calls: list[str] = []
    stage.choose = calls.append
    stage.tell(absent(stage.assignment()))
    stage.run(5)
    writes = [call for call in calls if call in ("close", "run", "release")]
    assert writes[0] == "close"
    assert writes[-1] == "release"
    assert set(writes[1:-1]) == {"run"}


def test_no_step_runs_while_the_close_does_not_succeed() -> None:
    stage = Stage()
    active(stage)
    calls: list[str] = []

    def refuse(call: str) -> Fault | None:
        calls.append(call)
        return Fault.CONFLICT if call == "close" else None

    stage.choose = refuse
    stage.tell(absent(stage.assignment()))
    stage.run(2)
    assert "run" not in calls
    assert "release" not in calls
    assert stage.phase() is Phase.ACTIVE


def test_pods_that_ignore_eviction_are_deleted_after_the_grace() -> None:
    stage = Stage(small_fleet(pods=TenantPods(stop_s=0.25, ignores_eviction=True)))
    one = stage.assignment(drain=Drain(grace_s=5.0, force_after_s=20.0))
    active(stage, one)
    stage.tell(absent(one))
    stage.run(4.5)
    assert stage.running_pods() == 1
    stage.run(2)
    assert stage.running_pods() == 0


def test_pods_that_never_stop_are_deleted_by_force() -> None:
    stage = Stage(small_fleet(pods=TenantPods(stop_s=1e9)))
    one = stage.assignment(drain=Drain(grace_s=2.0, force_after_s=5.0))
    active(stage, one)
    stage.tell(absent(one))
    stage.run(7)
    assert stage.phase() is Phase.RELEASED


def test_the_force_deadline_counts_from_the_close_also_over_a_restart() -> None:
    stage = Stage(small_fleet(pods=TenantPods(stop_s=1e9)))
    one = stage.assignment(drain=Drain(grace_s=2.0, force_after_s=5.0))
    active(stage, one)
    stage.tell(absent(one))
    stage.run(4)
    stage.start()
    stage.run(2)
    assert stage.running_pods() == 0


def test_draining_cannot_be_left_out() -> None:
    stage = Stage()
    one = stage.assignment(exit_steps=())
    active(stage, one)
    stage.tell(absent(one))
    stage.run(5)
    assert stage.phase() is Phase.RELEASED
    assert "drain" in [event.step for event in stage.take_events()]


def test_an_exit_check_that_fails_is_repeated_until_it_passes() -> None:
    stage = Stage(small_fleet(failures=(StepFailure(node="test-h-01", step="gpu_idle", times=3),)))
    active(stage)
    stage.tell(absent(stage.assignment()))
    stage.run(1.5)
    assert stage.phase() is Phase.EXITING
    stage.run(60)
    assert stage.phase() is Phase.RELEASED
    outcomes = [(e.attempt, e.outcome) for e in stage.take_events() if e.step == "gpu_idle"]
    assert outcomes == [(1, Outcome.FAILED), (2, Outcome.FAILED), (3, Outcome.FAILED), (4, Outcome.OK)]


def test_exit_steps_that_take_long_delay_another_box_s_end_by_one_of_them_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(small_fleet(count=9))
    gang = [stage.assignment(node, gang_count=8, exit_steps=("drain", "volumes")) for node in range(8)]
    other = stage.assignment(8, id="z", gpr_id="gpr-2", slice="blue", duration_s=90.0)
    active_s = active(stage, *gang, other)
    real = stage.cluster.run

    def slow(call: StepCall) -> StepProgress:
        if call.step == "volumes":
            stage.advance(2.0)
            raise Unavailable("GET persistentvolumeclaims: ReadTimeout")
        return real(call)

    monkeypatch.setattr(stage.cluster, "run", slow)
    stage.run(120, until=lambda: not stage.open_to(8))
    assert 0 <= stage.clock.wall() - (active_s + 90.0) < 5

    closed_s = stage.clock.wall()
    stage.run(60, until=lambda: stage.phase("z") is Phase.RELEASED)
    assert stage.phase("z") is Phase.RELEASED
    assert stage.clock.wall() - closed_s < 30  # drained and checked in turn with the others


def test_nodes_of_boxes_that_leave_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(small_fleet(count=4))
    gang = [stage.assignment(node, gang_count=3) for node in range(3)]
    other = stage.assignment(3, id="z", gpr_id="gpr-2", slice="blue")
    active(stage, *gang, other)
    asked: list[str] = []

    def slow(call: StepCall) -> StepProgress:
        asked.append(call.assignment.id)
        stage.advance(2.0)
        raise Unavailable("no answer")

    monkeypatch.setattr(stage.cluster, "run", slow)
    stage.tell(*map(absent, (*gang, other)))
    stage.run(2)

    assert asked[:6] == ["a0", "z", "a1", "z", "a2", "z"]


def test_an_exit_step_of_a_newer_hub_is_reported_once_and_the_known_ones_are_done() -> None:
    stage = Stage()
    one = stage.assignment(exit_steps=("scrub_memory", "drain", "gpu_idle"))
    active(stage, one)
    stage.tell(absent(one))
    stage.run(5)
    assert stage.phase() is Phase.RELEASED
    steps = [(event.step, event.outcome) for event in stage.take_events()]
    assert steps.count(("scrub_memory", Outcome.UNSUPPORTED)) == 1
    assert ("gpu_idle", Outcome.OK) in steps


def test_an_assignment_that_was_never_claimed_is_released_at_once_and_can_never_claim_later() -> None:
    stage = Stage()
    one = stage.assignment(not_before_s=T0 + 30, epoch=5)
    stage.tell(one)
    stage.tell(absent(one))
    stage.run(0.25)
    assert stage.phase() is Phase.RELEASED
    assert {record.epoch for record in stage.cluster.world.nodes[one.node].records.values()} == {5}

    stage.tell()
    assert stage.observed() is None
    stage.cluster.save_state(b"{}", stage.cluster.load_state().version)  # type: ignore[union-attr]
    stage.start()  # another agent, that knows nothing but the nodes
    stage.tell(msgspec.structs.replace(one, not_before_s=T0))
    stage.run(5)
    assert stage.open_to() == set()


def test_released_stays_observed_until_a_whole_set_no_longer_lists_it() -> None:
    stage = Stage()
    active(stage)
    stage.tell(absent(stage.assignment()))
    stage.run(5)
    stage.tell(absent(stage.assignment()))
    assert stage.phase() is Phase.RELEASED
    stage.tell()
    assert stage.observed() is None


def test_an_assignment_that_vanished_and_then_ended_is_told_to_the_hub_before_it_is_forgotten() -> None:
    stage = Stage()
    active(stage)
    stage.tell()
    stage.run(70)
    assert stage.phase() is Phase.RELEASED
    stage.tell()
    assert stage.observed() is None


def test_an_exit_does_not_need_the_agents_own_document_to_be_writable() -> None:
    stage = Stage()
    active_s = active(stage)
    stage.choose = lambda call: Fault.ERROR if call == "save_state" else None
    assert run_until_closed(stage, 100) == pytest.approx(active_s + 60, abs=0.25)
    stage.run(5)
    assert stage.gpu_phases() == {GpuPhase.FREE}
    assert stage.phase() is Phase.ACTIVE  # not told before it is durable
    stage.choose = lambda _: None
    stage.run(0.25)
    assert stage.phase() is Phase.RELEASED


def test_an_api_server_under_load_delays_the_close_by_a_second_at_most() -> None:
    stage = Stage()
    active_s = active(stage)
    stage.run(100, until=lambda: stage.clock.wall() >= active_s + 60)
    faults = iter([Fault.THROTTLED])
    stage.choose = lambda call: next(faults, None) if call == "close" else None
    assert run_until_closed(stage, 10) <= active_s + 60 + 1.25


def test_the_exit_of_a_node_that_left_the_cluster_ends_after_a_minute() -> None:
    stage = Stage()
    active(stage)
    del stage.cluster.world.nodes[stage.views[0].name]
    stage.tell(absent(stage.assignment()))
    stage.run(30)
    assert stage.phase() is Phase.ACTIVE
    stage.run(40)
    assert stage.phase() is Phase.RELEASED


def test_a_box_of_part_of_a_node_leaves_the_other_gpus_alone() -> None:
    stage = Stage()
    gpus = stage.assignment().gpus
    red = stage.assignment(gpus=gpus[:2], epoch=1)
    blue = stage.assignment(id="b0", gpr_id="gpr-2", slice="blue", gpus=gpus[2:], epoch=2)
    active(stage, red, blue)
    assert stage.open_to() == {"red", "blue"}
    stage.tell(absent(red), blue)
    stage.run(5)
    assert stage.open_to() == {"blue"}
    assert (stage.phase("a0"), stage.phase("b0")) == (Phase.RELEASED, Phase.ACTIVE)


@pytest.mark.parametrize("is_wiped", [False, True])
@pytest.mark.parametrize("is_leaving", [False, True])
def test_a_gpu_that_was_given_on_by_hand_stays_with_whom_it_was_given_to_and_the_rest_is_let_go(
    *, is_leaving: bool, is_wiped: bool
) -> None:
    """While the box ran or left, an admin took the record of one GPU or of all off the node, and the hub gave one GPU on."""
    stage = Stage(small_fleet(pods=TenantPods(stop_s=5.0)))
    red = stage.assignment(epoch=1)
    active(stage, red)
    if is_leaving:
        stage.tell(absent(red))
        stage.run(1)
    node = stage.cluster.world.nodes[red.node]
    blue = stage.assignment(id="b0", gpr_id="gpr-2", slice="blue", gpus=red.gpus[:1], epoch=2)
    given_on = {**({} if is_wiped else node.records), **new_records(blue, GpuPhase.OPEN, active_s=T0)}
    stage.cluster.world.nodes[red.node] = msgspec.structs.replace(node, version="99", records=given_on)

    changed_count = len(stage.cluster.history)
    stage.tell(absent(red), blue)
    stage.run(15)

    assert red.gpus[0] not in {change.gpu for change in stage.cluster.history[changed_count:]}
    records = stage.cluster.world.nodes[red.node].records
    assert (records[red.gpus[0]].slice, records[red.gpus[0]].phase) == ("blue", GpuPhase.OPEN)
    assert {records[gpu].phase for gpu in red.gpus[1:]} == {GpuPhase.FREE}
    assert stage.phase("a0") is Phase.RELEASED
    assert {pod.slice for pod in stage.cluster.world.pods.values() if pod.assignment_id} <= {"blue"}


def test_an_exit_that_had_begun_is_finished_though_the_agents_document_is_lost_and_the_hub_away() -> None:
    stage = Stage(small_fleet(pods=TenantPods(stop_s=5.0)))
    active(stage)
    stage.tell(absent(stage.assignment()))
    stage.run(0.5)
    stage.cluster.save_state(b"{}", stage.cluster.load_state().version)  # type: ignore[union-attr]
    stage.start()
    stage.run(15)
    assert stage.gpu_phases() == {GpuPhase.FREE}
    assert stage.running_pods() == 0


def test_an_open_box_is_kept_and_told_of_when_the_agents_document_is_lost() -> None:
    stage = Stage()
    active_s = active(stage)
    stage.cluster.save_state(b"{}", stage.cluster.load_state().version)  # type: ignore[union-attr]
    stage.start()
    stage.run(1)
    seen = stage.seen()
    assert (seen.phase, seen.active_s) == (Phase.ACTIVE, active_s)
    stage.tell(stage.assignment())
    assert run_until_closed(stage, 120) == pytest.approx(active_s + 60, abs=0.25)


@pytest.mark.parametrize(
    ("after_s", "stage"), [(0, DrainStage.EVICT), (29, DrainStage.EVICT), (30, DrainStage.DELETE), (120, DrainStage.FORCE)]
)
def test_a_drain_asks_then_tells_then_forces(after_s: float, stage: DrainStage) -> None:
    assert drain_stage(Drain(), after_s) is stage
