"""The agent counts the room of a box as its nodes change, and lets others in if the scheduler cannot place an earlier pod."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from protocol.assignments import Assignment
from tests.agent.fake_kube import FakeApi, Object, assignment, fill, made, waiting_pod
from worker_agent.boxes.records import new_records
from worker_agent.cluster.base import GpuPhase
from worker_agent.kube.api.objects import Condition, Node, Pod, PodSpec, PodStatus
from worker_agent.kube.driver import KubernetesCluster
from worker_agent.kube.pods import unschedulable
from worker_agent.kube.pods.lifting import NodeCapacity

GPUS = tuple(f"GPU-{number}" for number in range(8))


def box_of(*gpus: str) -> Assignment:
    return msgspec.structs.replace(assignment("a", "n1", gpus[0]), gpus=gpus)


def opened(box: Assignment, *, pods: tuple[Object, ...] = ()) -> tuple[FakeApi, KubernetesCluster]:
    records = {**dict.fromkeys(GPUS), **new_records(box, GpuPhase.OPEN)}
    api, driver = made({"n1": records}, guard={"n1": "@1,red"}, pods=pods)
    driver.observe()
    return api, driver


def seen_again(api: FakeApi, driver: KubernetesCluster, **changes: Any) -> None:
    """Shows the node with another number of GPUs, or with other labels."""
    body = api.objects[cluster_names.node_path("n1")]
    offered = {**body["status"]["allocatable"], "rdma/hca": "4", **changes.get("offers", {})}
    body["status"] = {**body["status"], "capacity": offered, "allocatable": offered}
    body["metadata"]["labels"] |= changes.get("labels", {})
    body["metadata"]["annotations"].pop(cluster_names.GPU_UUIDS, None)
    if "uuids" in changes:
        body["metadata"]["annotations"][cluster_names.GPU_UUIDS] = ",".join(changes["uuids"])
    fill(driver._nodes, {("", "n1"): msgspec.convert(body, Node)})
    driver.observe()


def room(driver: KubernetesCluster, box: Assignment) -> NodeCapacity | None:
    found = driver._box_capacity([box])
    return found[0] if found else None


def test_a_box_that_holds_all_gpus_that_its_node_still_has_keeps_the_devices_beside_them() -> None:
    box = box_of(*GPUS)
    api, driver = opened(box)

    seen_again(api, driver, offers={"nvidia.com/gpu": "7"}, labels={"nvidia.com/gpu.count": "7"}, uuids=GPUS[:7])

    there = room(driver, box)
    assert there is not None
    assert (there.is_shared, there.has[cluster_names.GPU], there.has["rdma/hca"]) == (False, Decimal(7), Decimal(4))


@pytest.mark.parametrize("count_label", ["8", "7"])
def test_of_a_node_in_parts_the_box_loses_that_has_the_gpus_which_dropped_out(count_label: str) -> None:
    first, last = box_of(*GPUS[:4]), box_of(*GPUS[4:])
    for box, left in ((first, 4), (last, 3)):
        api, driver = opened(box)
        seen_again(
            api, driver, offers={"nvidia.com/gpu": "7"}, labels={"nvidia.com/gpu.count": count_label}, uuids=GPUS[: int(count_label)]
        )

        there = room(driver, box)

        assert there is not None
        assert (there.is_shared, there.has[cluster_names.GPU]) == (True, Decimal(left))
        assert "rdma/hca" not in there.has


def test_while_nobody_can_say_what_gpus_a_shared_node_has_no_pod_is_let_in_there() -> None:
    box = box_of(*GPUS[:4])
    api, driver = opened(box)

    seen_again(api, driver, labels={"nvidia.com/gpu.product": ""}, uuids=GPUS)

    assert room(driver, box) is None


def test_a_node_that_has_more_gpus_than_its_box_is_no_longer_its_own_before_the_taint_says_so() -> None:
    box = box_of(*GPUS)
    api, driver = opened(box)

    seen_again(api, driver, offers={"nvidia.com/gpu": "9"}, labels={"nvidia.com/gpu.count": "9"}, uuids=(*GPUS, "GPU-8"))

    there = room(driver, box)
    assert there is not None
    assert (there.is_shared, there.has[cluster_names.GPU]) == (True, Decimal(8))


def unschedulable_pod(name: str = "p") -> Pod:
    said = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    pod = msgspec.convert(waiting_pod(name), Pod)
    return msgspec.structs.replace(pod, spec=PodSpec(containers=pod.spec.containers), status=PodStatus(conditions=(said,)))


def test_a_pod_is_stranded_once_the_scheduler_has_found_no_node_for_it_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    known, pod, gated = unschedulable.UnschedulablePods(), unschedulable_pod(), msgspec.convert(waiting_pod("q"), Pod)
    assert known.among([pod, gated]) == []

    now[0] += unschedulable.UNSCHEDULABLE_S
    assert known.among([pod, gated]) == [pod]

    placed = msgspec.structs.replace(pod, spec=PodSpec(nodeName="n1"))
    assert known.among([placed]) == []
    assert known.among([pod]) == []  # begins anew


def test_while_a_box_is_not_whole_no_pod_is_told_that_it_fits_nowhere() -> None:
    """A node of it is not open yet, or its object is gone: what it has nobody knows."""
    box = box_of(*GPUS)
    large = waiting_pod("p")
    large["spec"]["containers"] = [{"resources": {"limits": {"nvidia.com/gpu": "99"}}}]
    _, driver = opened(box, pods=(large,))
    half = msgspec.structs.replace(box, gang_count=2)

    driver.lift_gates([[half]])
    assert [driver._misfits.of(pod.metadata.uid) for pod in driver._observation.all_waiting()] == [None]

    driver.lift_gates([[box]])
    assert driver._misfits.of(next(iter(driver._observation.all_waiting())).metadata.uid) is not None


@pytest.mark.parametrize("pressure", ["DiskPressure", "MemoryPressure", "PIDPressure"])
def test_a_node_under_pressure_lets_no_pod_in_for_the_scheduler_would_not_take_it(pressure: str) -> None:
    box = box_of(*GPUS)
    api, driver = opened(box)
    api.objects[cluster_names.node_path("n1")]["status"]["conditions"].append({"type": pressure, "status": "True"})
    seen_again(api, driver, uuids=GPUS)

    assert room(driver, box) is None


def let_in_but_not_placed(name: str, box: Assignment) -> Object:
    body: Object = msgspec.to_builtins(unschedulable_pod(name))
    body["metadata"]["labels"] = {cluster_names.POD_GPR: box.gpr_id}
    return body


@pytest.mark.parametrize(("gpus", "calls"), [(GPUS[:8], 1), (GPUS[:1], 0)])
def test_a_box_of_whole_nodes_is_counted_again_as_soon_as_a_pod_of_it_is_stranded_and_no_part_of_one_is(
    gpus: tuple[str, ...], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = box_of(*gpus)
    typo = let_in_but_not_placed("typo", box)
    typo["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(len(gpus))
    api, driver = opened(box, pods=(typo, waiting_pod("good")))
    driver.lift_gates([[box]])
    driver.lift_gates([[box]])
    assert not driver._gate_lifter.is_any_busy

    monkeypatch.setattr(unschedulable, "UNSCHEDULABLE_S", 0.0)
    driver.lift_gates([[box]])

    driver._gate_lifter._pool.shutdown()
    assert sum(verb == "PATCH" and "/pods/good" in path for verb, path in api.calls) == calls


def test_a_pod_that_fits_onto_no_node_of_the_box_is_told_so_and_not_to_wait_for_other_pods() -> None:
    box, typo = box_of(*GPUS), waiting_pod("typo")
    typo["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1000"
    _, driver = opened(box, pods=(typo, waiting_pod("good")))
    pods = {pod.metadata.name: pod for pod in driver._observation.all_waiting()}
    assert driver.why_it_waits(pods["typo"]).startswith("Waits for GPUs")

    driver.lift_gates([[box]])

    reason = "it asks for 1000 cpu, and no node there has more than 64 cpu."
    assert driver.why_it_waits(pods["typo"]) == f"This pod will not start in the box of the request train: {reason}"
    driver.waited_for = lambda _: "train"
    assert driver.why_it_waits(pods["typo"]).startswith("This pod will not start in the box of the request train")
    driver.waited_for = lambda _: "other"
    told = driver.why_it_waits(pods["typo"])
    assert told.startswith("Waits for GPUs that the request other is to get")
    assert told.endswith(f"In the box of train it will not start: {reason}")
    driver.waited_for = lambda _: ""
    driver.lift_gates([])
    assert driver.why_it_waits(pods["typo"]).startswith("Waits for GPUs")


def test_while_a_node_of_the_box_is_away_no_pod_is_told_that_it_fits_nowhere() -> None:
    box = box_of(*GPUS)
    other = msgspec.structs.replace(assignment("c", "n2", "GPU-x"), gpr_id=box.gpr_id)
    typo = waiting_pod("typo")
    typo["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "1000"
    _, driver = opened(box, pods=(typo,))

    driver._fitting([box, other], list(driver._observation.all_waiting()), [], [])

    assert driver.why_it_waits(next(iter(driver._observation.all_waiting()))).startswith("Waits for GPUs")
