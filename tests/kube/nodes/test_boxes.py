"""A box on a real cluster: its pods wait, run when it opens, and wait again when it is over; nothing of another slice ever gets in."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from protocol.assignments import Phase
from tests.kube.cluster import Cluster
from tests.kube.site import NODE_GPUS, Site, ended, moved_in
from worker_agent.kube.pods.unschedulable import UNSCHEDULABLE_S


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    with moved_in(cluster, nodes=2) as made:
        yield made


def test_pods_wait_run_in_the_box_and_wait_again_after_it(site: Site) -> None:
    red = site.make_slice("red")
    site.deploy(red, replicas=3, gpus=4)
    site.until("pods behind the gate", lambda: len(site.gated(red)) == 3)
    (box,) = site.box(red)

    site.tell(box)
    site.until("active", lambda: site.is_in(Phase.ACTIVE, box))
    site.until("pods running", lambda: len(site.running(red)) == 2)

    assert len(site.gated(red)) == 1
    assert {pod["spec"]["nodeName"] for pod in site.running(red)} == {box.node}
    assert site.box_taint() == [f"{box.gpr_id}.1"]
    assert site.guard() == f"@0,{red}"

    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))

    assert site.running(red) == []
    assert site.box_taint() == ["free"]
    assert site.guard() == "@1"
    site.until("three wait again", lambda: len(site.gated(red)) == 3)


def test_two_boxes_on_one_node_keep_to_their_counts(site: Site) -> None:
    red, blue = site.make_slice("red"), site.make_slice("blue")
    site.deploy(red, replicas=6, gpus=1)
    site.deploy(blue, replicas=9, gpus=1)
    (first,) = site.box(red, gpus=range(4))
    (second,) = site.box(blue, gpus=range(4, NODE_GPUS))

    site.tell(first, second)
    site.until("pods running", lambda: len(site.running(red)) == 4 and len(site.running(blue)) == 4)

    assert site.box_taint() == ["shared"]
    assert site.guard() == f"@0,{blue},{red}" if blue < red else f"@0,{red},{blue}"
    assert {pod["spec"]["nodeName"] for pod in [*site.running(red), *site.running(blue)]} == {site.node_names[0]}

    site.tell(*ended(first), second)
    site.until("one released", lambda: site.is_in(Phase.RELEASED, first))

    assert site.running(red) == []
    assert len(site.running(blue)) == 4
    assert site.box_taint() == ["shared"]
    assert site.guard() == f"@1,{blue}"


def test_a_pod_that_asks_for_all_cpus_of_a_shared_node_stays_out_and_its_neighbor_gets_its_part(site: Site) -> None:
    red, blue = site.make_slice("red"), site.make_slice("blue")
    site.deploy(red, replicas=1, gpus=1, cpu="120", name="greedy")  # of 128, of which half goes with half of the GPUs
    site.deploy(red, replicas=1, gpus=1)
    site.deploy(blue, replicas=1, gpus=4, cpu="60")
    (first,) = site.box(red, gpus=range(4))
    (second,) = site.box(blue, gpus=range(4, NODE_GPUS))

    site.tell(first, second)
    site.until("pods running", lambda: site.running(red) and site.running(blue))

    assert [pod["metadata"]["labels"]["app"] for pod in site.gated(red)] == ["greedy"]


def test_a_pod_with_network_devices_runs_on_whole_nodes_and_is_told_that_a_part_of_one_is_not_enough(site: Site) -> None:
    devices = {"egs.test/nic": "4"}
    for number in range(2):
        site.patch_node({"status": {"capacity": devices, "allocatable": devices}}, number)
    red, blue = site.make_slice("red"), site.make_slice("blue")
    site.deploy(red, replicas=1, gpus=NODE_GPUS, nic="4")
    site.deploy(blue, replicas=1, gpus=1, nic="1")
    (whole,), (part,) = site.box(red), site.box(blue, nodes=(1,), gpus=range(4))

    site.tell(whole, part)
    site.until("both active", lambda: site.is_in(Phase.ACTIVE, whole) and site.is_in(Phase.ACTIVE, part))
    site.until("the pod runs on its whole node", lambda: len(site.running(red)) == 1)

    assert len(site.gated(blue)) == 1


def test_a_pod_that_no_node_can_take_keeps_nobody_out_of_its_box_and_is_told_why(site: Site) -> None:
    red = site.make_slice("red")
    site.deploy(red, replicas=1, gpus=NODE_GPUS, cpu="1000", name="typo")
    site.until("the typo waits", lambda: len(site.gated(red)) == 1)
    time.sleep(1.1)  # pods are ordered by the second in which they were made
    site.deploy(red, replicas=NODE_GPUS, gpus=1, name="good")
    (box,) = site.box(red)

    site.tell(box)
    site.until("the others run", lambda: len(site.running(red)) == NODE_GPUS)

    assert [pod["metadata"]["labels"]["app"] for pod in site.gated(red)] == ["typo"]
    reason = "it asks for 1000 cpu, and no node there has more than 128 cpu."
    site.until("it is told", lambda: f"This pod will not start in the box of the request train: {reason}" in told(site, red))


def test_gpus_that_no_large_pod_can_have_are_used_by_small_ones(site: Site) -> None:
    red = site.make_slice("red")
    site.deploy(red, replicas=3, gpus=5, name="large")
    site.until("the large ones wait", lambda: len(site.gated(red)) == 3)
    time.sleep(1.1)
    site.deploy(red, replicas=6, gpus=1, name="small")

    site.tell(*site.box(red, nodes=(0, 1)))
    site.until("two large ones and all small ones run", lambda: len(site.running(red)) == 8)

    assert [pod["metadata"]["labels"]["app"] for pod in site.gated(red)] == ["large"]


def test_a_pod_that_the_scheduler_cannot_place_for_what_only_it_knows_leaves_the_box_to_others(site: Site) -> None:
    red = site.make_slice("red")
    site.run_pod(red, "lost", gpus=NODE_GPUS)
    site.patch_pod(red, "lost", [{"op": "add", "path": "/spec/nodeSelector", "value": {"zone": "nowhere"}}])
    time.sleep(1.1)
    site.deploy(red, replicas=NODE_GPUS, gpus=1, name="good")
    (box,) = site.box(red)

    site.tell(box)
    site.until("it is let in first", lambda: [pod["metadata"]["name"] for pod in site.lifted(red)] == ["lost"])
    site.until("the others run", lambda: len(site.running(red)) == NODE_GPUS, within_s=UNSCHEDULABLE_S + 30)

    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))
    assert "lost" not in [pod["metadata"]["name"] for pod in site.lifted(red)]


def test_a_box_whose_node_has_fewer_gpus_by_now_keeps_its_devices_and_lets_in_what_fits(site: Site) -> None:
    site.patch_node({"status": {"capacity": {"egs.test/nic": "4"}, "allocatable": {"egs.test/nic": "4"}}})
    red = site.make_slice("red")
    (box,) = site.box(red)
    site.tell(box)
    site.until("active", lambda: site.is_in(Phase.ACTIVE, box))
    site.cluster.label("node", box.node, "nvidia.com/gpu.count=7")
    site.patch_node({"status": {"capacity": {"nvidia.com/gpu": "7"}, "allocatable": {"nvidia.com/gpu": "7"}}})
    site.until("seven are left", lambda: len(site.states[box.node].view.gpus) == 7)

    site.deploy(red, replicas=1, gpus=4, nic="4", name="rdma")
    site.until("the pod with devices runs", lambda: len(site.running(red)) == 1)
    site.deploy(red, replicas=4, gpus=1, name="plain")
    site.until("the rest is full", lambda: len(site.running(red)) == 4)

    site.until("all are made", lambda: len(site.pods(red)) == 5)
    assert len(site.lifted(red)) == 4
    assert len(site.gated(red)) == 1


def told(site: Site, slice_: str) -> list[str]:
    return [event["message"] for event in site.cluster.list("events", namespace=slice_) if event["reason"] == "WaitsForGpus"]


def test_two_boxes_of_one_node_that_end_at_once_leave_nothing_in_the_guard(site: Site) -> None:
    red, blue = site.make_slice("red"), site.make_slice("blue")
    for slice_ in (red, blue):
        site.deploy(slice_, replicas=1, gpus=1)
    (first,) = site.box(red, gpus=range(4))
    (second,) = site.box(blue, gpus=range(4, NODE_GPUS))
    site.tell(first, second)
    site.until("pods running", lambda: site.running(red) and site.running(blue))

    site.tell(*ended(first, second))
    site.pass_()
    closed = site.guard()
    site.until("released", lambda: site.is_in(Phase.RELEASED, first, second))

    assert closed == site.guard() == "@1"  # once, to both
    assert site.drifts == ()  # nothing had to be mended
