"""The simulated cluster reads fleets from files and keeps their rules."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from protocol.agents.events import Outcome
from protocol.assignments import Phase
from protocol.nodes.checks import CheckPolicy, Verdict
from protocol.nodes.steps import CAPABILITIES, EntryStep, ExitStep
from tests.agent.stage import FakeClock, Stage, small_fleet
from worker_agent.boxes.records import new_records
from worker_agent.cluster.base import GpuPhase, NodeState, WriteConflict, WriteKind
from worker_agent.cluster.fleet import FleetError, NodeFailure, NodeGroup, SimulatedFleet, read_fleet
from worker_agent.cluster.simulated import SimulatedCluster
from worker_agent.cluster.store import FileStore

FLEETS = Path(__file__).parents[3] / "deploy" / "fleets"


def test_the_demo_fleets_are_what_the_demo_says() -> None:
    shapes = {
        name: Counter((node.shape, len(node.gpus), node.rdma) for node in read_fleet(FLEETS / f"{name}.yaml").nodes())
        for name in ("demo-a", "demo-b")
    }
    assert shapes["demo-a"] == {("H100-80GB", 8, True): 6, ("L40S-48GB", 4, False): 3}
    assert shapes["demo-b"] == {("A100-80GB", 8, True): 4, ("A10-24GB", 4, False): 4, ("H100-80GB", 8, True): 2}
    assert {node.rack for node in read_fleet(FLEETS / "demo-a.yaml").nodes() if node.rdma} == {"rack-a1", "rack-a2"}


@pytest.mark.parametrize("name", ["demo-a", "demo-b"])
def test_a_demo_box_is_ready_within_seconds_and_gone_as_fast(name: str) -> None:
    stage = Stage(read_fleet(FLEETS / f"{name}.yaml"))
    one = stage.assignment(entry_steps=tuple(EntryStep), exit_steps=tuple(ExitStep), duration_s=10.0)
    stage.tell(one)
    stage.run(20, until=lambda: stage.phase() is Phase.ACTIVE)
    active_s = stage.seen().active_s
    assert active_s is not None
    assert 1.0 <= active_s - one.not_before_s <= 3.0
    stage.run(30, until=lambda: stage.phase() is Phase.RELEASED)
    assert stage.clock.wall() - (active_s + 10.0) <= 3.5


def test_a_fleet_is_the_same_each_time_and_shares_no_id_with_another() -> None:
    one, again = (read_fleet(FLEETS / "demo-a.yaml") for _ in range(2))
    other = read_fleet(FLEETS / "demo-b.yaml")
    assert one.nodes() == again.nodes()
    ids = [gpu.uuid for fleet in (one, other) for node in fleet.nodes() for gpu in node.gpus]
    ids += [node.uid for fleet in (one, other) for node in fleet.nodes()] + [one.cluster_uid, other.cluster_uid]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("name: x\n", "groups"),
        ("name: x\ngroups: [{name: a}]\n", "groups"),
        ("name: [", "x.yaml"),
        (
            "name: x\ngroups: [{name: h, count: 1, node_type: t, gpu_model: H100, memory_gib: 80, gpus: 1}]\n"
            "failures: [{node: y, step: network}]\n",
            "no node y",
        ),
        (
            "name: x\ngroups: [{name: h, count: 1, node_type: t, gpu_model: H100, memory_gib: 80, gpus: 1}]\n"
            "troubles: [{group: y, what: gone, open_s: 5}]\n",
            "no group y",
        ),
    ],
)
def test_a_fleet_with_a_fault_is_refused_with_its_place(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(FleetError, match=word):
        read_fleet(tmp_path / "x.yaml")


@pytest.mark.parametrize("what", ["gpu_sick", "not_ready", "gone"])
def test_by_the_script_one_node_fails_once_it_has_been_open_for_so_long_and_stays_so(tmp_path: Path, what: str) -> None:
    fleet = msgspec.structs.replace(small_fleet(), troubles=(NodeFailure(group="h", what=what, open_s=5.0),))  # type: ignore[arg-type]
    stage = Stage(fleet)
    stage.cluster._store = FileStore(tmp_path / "state")
    stage.tell(*stage.gang())
    stage.run(5)
    assert failing(stage.cluster) == {}
    stage.run(5)
    assert failing(stage.cluster) == {"test-h-01": what}

    again = SimulatedCluster(fleet=fleet, store=FileStore(tmp_path / "state"), clock=stage.clock)
    assert failing(again) == {"test-h-01": what}


def failing(cluster: SimulatedCluster) -> dict[str, str]:
    found = {}
    for name in ("test-h-01", "test-h-02"):
        node = cluster.observe().get(name)
        if node is None:
            found[name] = "gone"
        elif not node.view.ready:
            found[name] = "not_ready"
        elif not all(gpu.healthy for gpu in node.view.gpus):
            found[name] = "gpu_sick"
    return found


def test_the_cluster_survives_in_its_files(tmp_path: Path) -> None:
    stage = Stage()
    stage.cluster._store = FileStore(tmp_path / "state")
    stage.tell(stage.assignment())
    stage.run(3)
    again = SimulatedCluster(fleet=stage.fleet, store=FileStore(tmp_path / "state"), clock=stage.clock)
    assert again.world == stage.cluster.world
    assert again.load_state() == stage.cluster.load_state()


def test_a_write_to_a_node_that_changed_since_it_was_read_has_no_effect() -> None:
    cluster = Stage().cluster
    stage = Stage()
    seen = cluster.observe()[stage.views[0].name]
    records = new_records(stage.assignment(), GpuPhase.ISOLATED)
    (first,) = cluster.write(WriteKind.ISOLATE, [(seen, records)])
    (second,) = cluster.write(WriteKind.ISOLATE, [(seen, records)])

    assert isinstance(first, NodeState)
    assert isinstance(second, WriteConflict)


def test_a_state_document_that_changed_since_it_was_read_is_not_overwritten() -> None:
    cluster = SimulatedCluster(fleet=small_fleet(), store=Stage().cluster._store, clock=FakeClock())
    doc = cluster.load_state()
    assert doc is not None
    cluster.save_state(b"{}", doc.version)
    with pytest.raises(WriteConflict):
        cluster.save_state(b"{}", doc.version)


def test_the_agent_says_what_it_can() -> None:
    assert CAPABILITIES == (
        "node_ready", "gpu_count", "gpu_health", "storage", "network", "rdma", "nccl", "gang_network",
        "drain", "gpu_idle", "exit_network", "exit_nccl", "volumes", "node_clean",
            "restart_driver", "reset_gpus", "reboot_node",
    )  # fmt: skip


def test_each_step_says_what_it_measured_and_against_what() -> None:
    stage = Stage()
    stage.tell(stage.assignment(entry_steps=tuple(EntryStep), exit_steps=tuple(ExitStep), duration_s=5.0))
    stage.run(20)
    events = {event.step: event for event in stage.take_events()}
    logs = {step: event.log for step, event in events.items()}
    assert set(logs) == {"claim", *EntryStep, "open", "close", *ExitStep, "release"}
    assert "at most 2,000" in logs["network"]
    assert "at least 460" in logs["nccl"]
    assert "4 of 4" in logs["gpu_count"]
    assert all(logs.values())
    gpus = stage.assignment().gpus
    assert {result.gpu for result in events["gpu_health"].results} == set(gpus)
    assert {result.verdict for event in events.values() for result in event.results} <= {Verdict.PASS, Verdict.SKIP}


def test_a_threshold_of_the_hub_s_policy_is_what_the_simulated_nodes_are_judged_by() -> None:
    stage = Stage()
    policy = CheckPolicy(limits={"nccl_bandwidth": 900.0})
    stage.tell(stage.assignment(entry_steps=("nccl",), checks=policy))
    stage.run(20)

    failed = next(event for event in stage.take_events() if event.step == "nccl")

    assert failed.outcome == Outcome.FAILED
    bandwidth = next(result for result in failed.results if result.check == "nccl_bandwidth")
    assert (bandwidth.verdict, bandwidth.threshold, bandwidth.is_least) == (Verdict.FAIL, 900.0, True)


def test_an_exit_check_that_fails_is_reported_and_does_not_hold_up_the_exit() -> None:
    stage = Stage()
    one = stage.assignment(
        exit_steps=("drain", "exit_nccl", "gpu_idle"), checks=CheckPolicy(limits={"nccl_bandwidth": 900.0}), duration_s=5.0
    )
    stage.tell(one)
    stage.run(60, until=lambda: stage.phase() is Phase.RELEASED)

    tried = [(event.step, event.attempt, event.outcome) for event in stage.take_events() if event.step in ("exit_nccl", "gpu_idle")]

    assert tried == [("exit_nccl", 1, Outcome.FAILED), ("exit_nccl", 2, Outcome.FAILED), ("gpu_idle", 1, Outcome.OK)]
    assert stage.phase() is Phase.RELEASED


def test_nodes_in_a_row_share_an_nvlink_domain_if_the_fleet_says_how_many() -> None:
    group = NodeGroup(name="gb", count=3, node_type="t", gpu_model="GB200", memory_gib=192, gpus=4, nvlink_nodes=2)

    nodes = SimulatedFleet(name="f", groups=(group, msgspec.structs.replace(group, name="alone", count=1, nvlink_nodes=0))).nodes()

    assert [node.nvlink_domain for node in nodes] == ["gb-1", "gb-1", "gb-2", ""]
