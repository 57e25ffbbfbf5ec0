"""The agent sees and repairs foreign changes of a managed node or the guard, and none breaks the agent."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from protocol.assignments import Assignment, Drain, Phase
from tests.kube.cluster import Cluster, Object
from tests.kube.faults import StillClock
from tests.kube.site import AGENT, NODE_GPUS, Site, ended, moved_in
from worker_agent.boxes.exit import NODE_GONE_S
from worker_agent.kube.api.client import Api
from worker_agent.kube.nodes import drift_repair
from worker_agent.kube.nodes.bind_guard import slices_in
from worker_agent.kube.nodes.told_events import NodeEvents
from worker_agent.telemetry.told_xids import told_xids

# Each day: tests/agent/nodes, and test_boxes.py
pytestmark = pytest.mark.rotates


@pytest.fixture(autouse=True)
def _guard_is_read_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift_repair, "GUARD_ANEW_S", 2.0)


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    with moved_in(cluster, nodes=2) as made:
        yield made


@pytest.fixture
def red(site: Site) -> str:
    slice_ = site.make_slice("red")
    site.deploy(slice_, replicas=2, gpus=4)
    return slice_


def active(site: Site, slice_: str) -> Assignment:
    (box,) = site.box(slice_)
    site.tell(box)
    site.until("pods running", lambda: len(site.running(slice_)) == 2)
    return box


def by_hand(site: Site, patch: list[Object]) -> None:
    """Policies keep everybody but the agent from it, so it is done in the agent's name."""
    site.cluster.patch("node", site.node_names[0], patch, user=AGENT)


def label(key: str) -> str:
    return f"/metadata/labels/node-restriction.kubernetes.io~1{key}"


def test_a_taint_that_is_taken_off_comes_back(site: Site, red: str) -> None:
    box = active(site, red)
    taints = site.node()["spec"]["taints"]

    by_hand(site, [{"op": "replace", "path": "/spec/taints", "value": [each for each in taints if each["key"] != "egs.io/box"]}])
    site.until("the taint", lambda: site.box_taint() == [f"{box.gpr_id}.1"])

    assert ("marks_repaired", {"node": box.node}) in site.notes
    assert site.is_in(Phase.ACTIVE, box)
    (told,) = site.drifts
    assert (told.what, told.node, told.is_repaired) == (f"node {box.node}", box.node, True)
    assert told.detail == f"The taint egs.io/box was gone instead of {box.gpr_id}.1:NoSchedule."


def test_labels_that_are_taken_off_or_added_are_put_right(site: Site, red: str) -> None:
    box = active(site, red)
    before = site.node()["metadata"]["labels"]

    by_hand(
        site,
        [
            {"op": "remove", "path": label(f"egs-box-{box.gpr_id}")},
            {"op": "replace", "path": label("egs-slice"), "value": "somebody"},
            {"op": "add", "path": label("egs-box-other"), "value": "1"},
        ],
    )

    site.until("the labels", lambda: site.node()["metadata"]["labels"] == before)
    assert len(site.running(red)) == 2


@pytest.mark.parametrize("value", ["@0", "@0,somebody", None])
def test_a_guard_that_was_changed_is_put_right(site: Site, red: str, value: str | None) -> None:
    box = active(site, red)
    site.cluster.patch("bindguard", "nodes", {"spec": {"nodes": {box.node: value}}})

    site.until("the guard", lambda: site.guard().split(",")[1:] == [red])
    assert len(site.running(red)) == 2


def test_where_the_policy_says_so_a_mark_that_was_changed_is_told_and_left_until_the_box_ends(site: Site, red: str) -> None:
    box = active(site, red)
    site.tell(box, repairs_drift=False)
    by_hand(site, [{"op": "replace", "path": label("egs-slice"), "value": "somebody"}])
    site.cluster.patch("bindguard", "nodes", {"spec": {"nodes": {box.node: f"@0,{red},x"}}})

    site.until("told", lambda: len(site.drifts) == 2)
    for _ in range(3):
        time.sleep(drift_repair.EVERY_S)
        site.pass_()

    found = {(told.what, told.is_repaired) for told in site.drifts}
    assert found == {(f"node {box.node}", False), (f"bind guard of node {box.node}", False)}
    assert len(site.drifts) == 2
    assert site.node()["metadata"]["labels"]["node-restriction.kubernetes.io/egs-slice"] == "somebody"
    assert "x" in site.guard()

    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))
    assert site.box_taint() == ["free"]


def test_records_that_are_wiped_off_a_node_come_back_and_the_box_goes_on(site: Site, red: str) -> None:
    box = active(site, red)
    before = site.records()

    by_hand(site, [{"op": "replace", "path": "/metadata/annotations/egs.io~1records", "value": "[]"}])

    site.until("the records", lambda: site.records() == before)
    assert len(site.running(red)) == 2
    assert site.box_taint() == [f"{box.gpr_id}.1"]


def test_records_that_nobody_can_read_are_not_written_over(site: Site, red: str) -> None:
    box = active(site, red)
    by_hand(site, [{"op": "replace", "path": "/metadata/annotations/egs.io~1records", "value": "of a newer version"}])
    site.until("seen", lambda: not site.states[box.node].view.ready)

    site.tell(*ended(box))
    for _ in range(5):
        site.pass_()

    assert site.node()["metadata"]["annotations"]["egs.io/records"] == "of a newer version"
    assert not site.is_in(Phase.RELEASED, box)
    assert any("cannot be read" in str(fields) for event, fields in site.notes if event == "write_failed")
    site.until("told", lambda: any("cannot be read" in told.detail for told in site.drifts if not told.is_repaired))


def test_a_node_that_is_deleted_and_made_anew_is_another_node_and_nobodys_until_the_old_pods_have_left(site: Site, red: str) -> None:
    """Its kubelet knows nothing of that: what ran goes on, though no record says so any more."""
    clock = StillClock()
    site.restart(clock=clock)
    box = active(site, red)
    old, before = site.states[box.node].view, {pod["metadata"]["uid"] for pod in site.running(red)}
    manifest = site.manifest(0)
    site.cluster.delete("node", box.node, waits=True)
    site.cluster.apply(manifest)

    site.until("ready anew", lambda: (seen := site.states.get(box.node)) and seen.view.uid != old.uid and seen.view.ready)

    assert before.isdisjoint(pod["metadata"]["uid"] for pod in site.pods(red) if pod["status"]["phase"] == "Running")
    assert site.records(0) == {}
    assert site.box_taint() == ["free"]
    assert slices_in(site.guard()) == frozenset()
    assert {gpu.uuid for gpu in site.states[box.node].view.gpus}.isdisjoint(gpu.uuid for gpu in old.gpus)
    (told,) = (drift for drift in site.drifts if drift.what == f"pods on node {box.node}")
    assert "created again while pods of an earlier box ran there" in told.detail
    assert site.is_in(Phase.ACTIVE, box)  # the hub decides what becomes of it: it is told of the node by its UID

    (next_box,) = site.box(red)
    site.tell(*ended(box), next_box)
    site.pass_()
    assert site.is_in(Phase.ACTIVE, box) or site.is_in(Phase.EXITING, box)
    clock.advance(NODE_GONE_S)
    site.tell(*ended(box), next_box)  # so long a lease does not last
    site.until("the old one over", lambda: site.is_in(Phase.RELEASED, box))
    site.until("in use again", lambda: site.is_in(Phase.ACTIVE, next_box) and len(site.running(red)) == 2)


def test_a_node_that_is_renamed_is_another_node_and_what_it_held_is_over_after_a_minute(site: Site, red: str) -> None:
    clock = StillClock()
    site.restart(clock=clock)
    box = active(site, red)
    manifest = site.manifest(0)
    name = manifest["metadata"]["name"] = f"{box.node}-renamed"
    site.cluster.delete("node", box.node, waits=True)
    site.cluster.apply(manifest)
    try:
        site.until("taken in", lambda: name in site.states and site.states[name].view.ready)
        assert box.node not in site.states
        assert site.guard() == ""
        site.tell(*ended(box))
        site.pass_()
        assert not site.is_in(Phase.RELEASED, box)
        clock.advance(NODE_GONE_S)
        site.until("over", lambda: site.is_in(Phase.RELEASED, box))
        (event,) = (event for event in site.take_events() if (event.assignment_id, event.step) == (box.id, "release"))
        assert event.log == f"node {box.node} is not in the cluster any more: nothing of the workspace can be on it"
    finally:
        site.cluster.delete("node", name)


def test_a_box_goes_on_where_one_of_its_eight_gpus_drops_out_and_the_hub_is_told_which(site: Site, red: str) -> None:
    box = active(site, red)
    site.patch_node({"status": {"allocatable": {"nvidia.com/gpu": "7"}}})

    def sick() -> list[str]:
        return [gpu.uuid for view in site.take_views() if view.name == box.node for gpu in view.gpus if not gpu.healthy]

    assert site.until("told", sick) == [box.gpus[-1]]
    assert site.is_in(Phase.ACTIVE, box)
    assert len(site.running(red)) == 2
    assert site.box_taint() == [f"{box.gpr_id}.1"]
    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))
    assert site.box_taint() == ["free"]


def test_a_namespace_that_vanishes_takes_its_pods_along_and_the_box_goes_on_until_its_end(site: Site, red: str) -> None:
    box = active(site, red)
    site.cluster.delete("namespace", red, waits=True)
    site.until("pods gone", lambda: site.placed_count(box.gpr_id) == 0)
    assert site.is_in(Phase.ACTIVE, box)

    # Made anew and bound again: in it the box is as good as before.
    site.cluster.make_namespace(red, **{"egs.io/slice": red})
    site.deploy(red, replicas=2, gpus=4)
    site.until("pods running", lambda: len(site.running(red)) == 2)

    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))
    assert site.running(red) == []


def test_pods_of_a_namespace_that_is_going_do_not_hold_the_end_up(site: Site, red: str) -> None:
    site.cluster.delete("deployment", "train", namespace=red, waits=True)
    site.run_pod(red, "stubborn", gpus=8, labels={"egs.test/stops": "never"})
    (box,) = site.box(red, drain=Drain(grace_s=1.0, force_after_s=2.0))
    site.tell(box)
    site.until("running", lambda: site.running(red))
    site.cluster.delete("namespace", red)
    site.until("going", lambda: not site.running(red))

    site.tell(*ended(box))
    site.until("released", lambda: site.is_in(Phase.RELEASED, box))
    site.until("gone", lambda: site.cluster.get("namespace", red) is None)


def test_a_gpu_that_drops_out_makes_the_node_no_smaller_but_one_gpu_unhealthy(site: Site) -> None:
    site.patch_node({"status": {"allocatable": {"nvidia.com/gpu": "7"}}})

    name = site.node_names[0]
    site.until("seen", lambda: sum(not gpu.healthy for gpu in site.states[name].view.gpus) == 1)

    assert len(site.states[name].view.gpus) == NODE_GPUS


def test_a_node_with_gpu_pods_of_others_is_not_ready_until_they_are_gone(cluster: Cluster, site: Site) -> None:
    """They hold GPUs that would be given out. They run on; no new ones get in."""
    late = Site(cluster)
    late.start()
    late.cluster.apply(late.manifest(0, is_managed=False))
    slice_ = late.make_slice("early")
    late.run_pod_on(slice_, "early", number=0)
    late.until("running", lambda: late.running(slice_))

    late.manage(0)
    late.until("taken in", lambda: late.node_names[0] in late.states)
    assert not late.states[late.node_names[0]].view.ready
    assert late.running(slice_)

    late.cluster.delete("pod", "early", namespace=slice_, waits=True)
    late.until("ready", lambda: late.states[late.node_names[0]].view.ready)
    late.stop()
    late.move_out()


def test_a_node_that_is_no_longer_managed_is_let_go_once_it_is_free(site: Site, red: str) -> None:
    box = active(site, red)
    site.cluster.label("node", box.node, "egs.io/managed-")
    site.until("not ready", lambda: not site.states[box.node].view.ready)
    assert len(site.running(red)) == 2

    site.tell(*ended(box))
    site.until("let go", lambda: site.box_taint() == [] and site.guard() == "")

    meta = site.node()["metadata"]
    assert not [key for key in meta["labels"] if "egs" in key]
    assert "egs.io/records" not in meta["annotations"]
    site.manage(0)
    site.until("taken in again", lambda: box.node in site.states)


@contextmanager
def without_guard(cluster: Cluster) -> Iterator[None]:
    guard = cluster.get("bindguard", "nodes")
    assert guard is not None
    cluster.delete("bindguard", "nodes", waits=True)
    try:
        yield
    finally:
        cluster.apply({"apiVersion": "egs.io/v1alpha1", "kind": "BindGuard", "metadata": {"name": "nodes"}, "spec": guard["spec"]})


def test_without_the_guard_a_box_ends_all_the_same(frail: Cluster) -> None:
    with moved_in(frail) as site:
        slice_ = site.make_slice("red")
        site.deploy(slice_, replicas=2, gpus=4)
        box = active(site, slice_)
        with without_guard(frail):
            site.until("noted", lambda: [fields for event, fields in site.notes if "not installed" in str(fields)])

            site.tell(*ended(box))
            site.until("released", lambda: site.is_in(Phase.RELEASED, box))

        assert site.running(slice_) == []


def test_without_the_guard_no_node_is_taken_in_and_the_reason_is_noted(frail: Cluster) -> None:
    late = Site(frail)
    with without_guard(frail):
        late.start()
        late.cluster.apply(late.manifest(0))
        late.until("noted", lambda: [fields for event, fields in late.notes if "not installed" in str(fields)])
        assert late.node_names[0] not in late.states

    late.until("taken in", lambda: late.node_names[0] in late.states)
    late.stop()
    late.move_out()


def test_a_pod_that_waits_is_told_the_request_that_it_waits_for_or_why_none_could_be_made(site: Site) -> None:
    site.driver.waited_for = lambda pod: "train-1" if pod.metadata.name == "known" else ""
    site.driver.unasked = lambda pod: "exceeded quota: egs" if pod.metadata.name == "refused" else ""
    slice_ = site.make_slice("red")
    for name in ("known", "refused", "other"):
        site.run_pod(slice_, name, gpus=1)

    def told() -> dict[str, str]:
        found = site.cluster.list("events", namespace=slice_)
        return {each["involvedObject"]["name"]: each["message"] for each in found if each["reason"] == "WaitsForGpus"}

    said = site.until("all events", lambda: len(found := told()) == 3 and found)

    assert said["known"] == "Waits for GPUs that the request train-1 is to get: kubectl describe gpr train-1"
    assert said["refused"] == "No request could be made for this pod: exceeded quota: egs"
    assert "train-1" not in said["other"]


def test_warnings_about_a_node_that_tell_of_xids_are_read_but_not_those_of_another_machine_of_its_name(site: Site) -> None:
    """They are as node-problem-detector writes them, also when one repeats."""
    node = site.node_names[0]
    api = Api(site.access)
    events = NodeEvents(api=api, nodes=site.driver.nodes, note=lambda *_: None)
    events.start()
    syslog = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

    def tell(name: str, **more: Any) -> None:
        involved = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}
        about = {"metadata": {"name": f"{node}.{name}", "namespace": "default"}, "involvedObject": involved, "type": "Warning"}
        at = {"firstTimestamp": "2099-01-01T00:00:00Z", "lastTimestamp": "2099-01-01T00:00:00Z", "count": 1}
        said = {"reason": "XidError", "message": syslog, "source": {"component": "kernel-monitor", "host": node}}
        site.cluster.apply({"apiVersion": "v1", "kind": "Event", **about, **at, **said, **more})

    def told() -> list[tuple[int, int]]:
        return [(each.number, each.count) for each in told_xids(events.told().get(node, ()))]

    tell("info", type="Normal")
    tell("own", reportingComponent="egs.io/agent", reportingInstance="x")
    tell("old", lastTimestamp="2020-01-01T00:00:00Z")
    tell("disk", message="The disk is full.")
    tell("xid")
    site.until("the warning", lambda: told() == [(79, 1)])
    tell("xid", count=2, lastTimestamp="2099-01-01T01:00:00Z")
    site.until("its repetition", lambda: told() == [(79, 2)])
    assert len(events.told()[node]) == 1
    site.cluster.delete("event", f"{node}.xid", namespace="default")
    site.until("its end", lambda: told() == [])
    events.stop()
    api.close()


def test_a_bad_condition_of_a_node_is_told_and_is_gone_from_what_is_told_when_it_clears(site: Site) -> None:
    def told() -> set[str]:
        views = [view for view in site.take_views() if view.name == site.node_names[0]]
        return {each.type for each in views[-1].conditions} if views else {"nothing new"}

    site.tell()
    for status, expected in (("True", {"XidError"}), ("False", set[str]())):
        condition = {"type": "XidError", "status": status, "reason": "Xid79", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        site.patch_node({"status": {"conditions": [condition]}})
        site.until(f"{status} is told", lambda expected=expected: told() == expected)
