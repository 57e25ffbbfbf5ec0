"""The agent repairs a node by an annotation that asks for it, and by a restart of the driver's pods where that is allowed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.cluster_names import MAY_RESTART, REPAIR, REPAIR_DONE, SLICE, node_path
from protocol.nodes.steps import RepairStep
from tests.agent.fake_kube import Object, assignment, made
from worker_agent.cluster.base import NodeState, StepCall, StepProgress, StepStatus
from worker_agent.kube.api.objects import Node
from worker_agent.kube.nodes.repairs import Repairs, asked_of

PATH = node_path("n1")


class Site:
    def __init__(self, *, pods: list[Object] | None = None, labels: dict[str, str] | None = None) -> None:
        self.now_s = 1000.0
        self.api, driver = made({"n1": {"GPU-0": None}}, guard={})
        self.api.pods = lambda _: self.pods
        self.pods = pods or []
        self.api.objects["/api/v1/namespaces/gpu-operator"] = {
            "metadata": {"name": "gpu-operator", "labels": labels or {MAY_RESTART: "true"}}
        }
        self.object["status"]["nodeInfo"] = {"bootID": "boot-1"}
        self.state: NodeState = driver.observe()["n1"]
        self.repairs = self.new()

    def new(self) -> Repairs:
        return Repairs(self.api, wall=lambda: self.now_s, mono=lambda: self.now_s)  # type: ignore[arg-type]

    @property
    def object(self) -> Object:
        return self.api.objects[PATH]

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.object["metadata"]["annotations"])

    def poll(self, step: str, *, after_s: float = 2, attempt: int = 1) -> StepProgress:
        self.now_s += after_s
        box = msgspec.structs.replace(assignment("r1", "n1", "GPU-0"), is_repair=True)
        return self.repairs.run(StepCall(step=step, attempt=attempt, assignment=box, node=self.state))

    def answer(self, said: str) -> None:
        asked = asked_of(msgspec.convert(self.object, Node))
        assert asked is not None
        self.object["metadata"]["annotations"][REPAIR_DONE] = f"{asked.id} {said}"


def driver_pod(name: str, uid: str, *, ready: bool = True, namespace: str = "gpu-operator", **about: Any) -> Object:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "plugin", "uid": "u", "controller": True}
    meta = {"name": name, "namespace": namespace, "uid": uid, "ownerReferences": [owner], **about}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {"phase": "Running", "conditions": conditions}}


@pytest.mark.parametrize("step", [RepairStep.RESET_GPUS, RepairStep.REBOOT_NODE])
def test_what_is_to_be_done_stands_in_an_annotation_of_the_node(step: str) -> None:
    site = Site()
    assert site.poll(step).status is StepStatus.RUNNING

    asked = msgspec.json.decode(site.annotations[REPAIR])
    assert (asked["id"], asked["step"], asked["boot_id"]) == (f"r1.{step}.1", step, "boot-1")


def test_a_reset_is_done_when_the_tool_says_so_and_the_annotations_are_gone_then() -> None:
    site = Site()
    site.poll(RepairStep.RESET_GPUS)
    site.object["metadata"]["annotations"][REPAIR_DONE] = "r0.reset_gpus.1 ok"
    assert site.poll(RepairStep.RESET_GPUS).status is StepStatus.RUNNING, "that was the answer to another one"
    site.answer("ok")

    assert site.poll(RepairStep.RESET_GPUS).status is StepStatus.OK
    assert not {REPAIR, REPAIR_DONE} & site.annotations.keys()


def test_a_tool_that_fails_says_why_and_the_node_is_not_blamed() -> None:
    site = Site()
    site.poll(RepairStep.RESET_GPUS)
    site.answer("GPU 3 is in use")

    result = site.poll(RepairStep.RESET_GPUS)
    assert (result.status, result.blames_node) == (StepStatus.FAILED, False)
    assert result.log == "the tool that repairs nodes says: GPU 3 is in use"


def test_a_reboot_is_proved_by_another_boot_id_of_a_node_that_is_ready() -> None:
    site = Site()
    site.poll(RepairStep.REBOOT_NODE)
    site.answer("ok")
    assert site.poll(RepairStep.REBOOT_NODE).status is StepStatus.RUNNING, "the same boot"
    site.object["status"] |= {"nodeInfo": {"bootID": "boot-2"}, "conditions": [{"type": "Ready", "status": "False"}]}
    assert site.poll(RepairStep.REBOOT_NODE).status is StepStatus.RUNNING
    site.object["status"]["conditions"] = [{"type": "Ready", "status": "True"}]

    assert site.poll(RepairStep.REBOOT_NODE).status is StepStatus.OK


def test_what_nobody_does_fails_in_time_also_after_a_restart_of_the_agent() -> None:
    site = Site()
    site.poll(RepairStep.RESET_GPUS)
    site.repairs = site.new()
    assert site.poll(RepairStep.RESET_GPUS, after_s=590).status is StepStatus.RUNNING

    result = site.poll(RepairStep.RESET_GPUS, after_s=10)
    assert (result.status, result.log) == (StepStatus.FAILED, "Reset the GPUs: it was not done within 10 min")
    assert REPAIR not in site.annotations


def test_what_is_given_up_is_taken_back() -> None:
    site = Site()
    site.poll(RepairStep.REBOOT_NODE)
    box = msgspec.structs.replace(assignment("r1", "n1", "GPU-0"), is_repair=True)
    site.repairs.withdraw(StepCall(step="node_clean", attempt=1, assignment=box, node=site.state))

    assert REPAIR not in site.annotations


def test_the_drivers_pods_are_deleted_once_and_waited_for_until_new_ones_are_ready() -> None:
    site = Site(pods=[driver_pod("plugin-a", "old")])
    site.poll(RepairStep.RESTART_DRIVER)
    assert site.poll(RepairStep.RESTART_DRIVER).status is StepStatus.RUNNING
    site.pods = [driver_pod("plugin-b", "new", ready=False)]
    assert site.poll(RepairStep.RESTART_DRIVER).status is StepStatus.RUNNING
    site.pods = [driver_pod("plugin-b", "new")]

    result = site.poll(RepairStep.RESTART_DRIVER)
    assert (result.status, result.log) == (StepStatus.OK, "restarted: gpu-operator/plugin-b")
    assert [path for verb, path in site.api.calls if verb == "DELETE"] == ["/api/v1/namespaces/gpu-operator/pods/plugin-a"]


@pytest.mark.parametrize(
    ("labels", "about"),
    [({}, {}), ({MAY_RESTART: "true", SLICE: "red"}, {}), ({MAY_RESTART: "true"}, {"ownerReferences": []})],
    ids=["not marked", "of a workspace", "without a controller"],
)
def test_no_other_pod_is_restarted_whatever_its_labels_say(labels: dict[str, str], about: dict[str, Any]) -> None:
    site = Site(pods=[driver_pod("plugin-a", "old", **about)], labels=labels or {"other": "x"})
    site.poll(RepairStep.RESTART_DRIVER)

    result = site.poll(RepairStep.RESTART_DRIVER)
    assert (result.status, result.blames_node) == (StepStatus.FAILED, False)
    assert not any(verb == "DELETE" for verb, _ in site.api.calls)


def test_a_node_is_asked_about_once_a_second_at_most() -> None:
    site = Site()
    site.poll(RepairStep.RESET_GPUS)
    calls = len(site.api.calls)
    for _ in range(3):
        site.poll(RepairStep.RESET_GPUS, after_s=0.2)

    assert len(site.api.calls) == calls
