"""Repairs a node by steps: each asks for it in an annotation of the node, and sees whether it was done.

The agent has no right to reset or reboot anything. A tool of the cluster's administrators reads REPAIR, does it, and answers in
REPAIR_DONE. A restart of the driver's pods is the agent's own work, in namespaces that have the label MAY_RESTART.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from protocol import cluster_names
from protocol.cluster_names import node_path, pointer
from protocol.decoding import decode
from protocol.nodes.steps import RepairStep, step_name
from worker_agent.cluster.base import ClusterError, StepCall, StepProgress, StepStatus
from worker_agent.kube.api.client import Api, Missing, Op
from worker_agent.kube.api.objects import Namespace, Node, Pod, PodList

DONE_WITHIN_S: Final = {RepairStep.RESTART_DRIVER: 300.0, RepairStep.RESET_GPUS: 600.0, RepairStep.REBOOT_NODE: 1200.0}
LOOK_EVERY_S: Final = 1.0
DRIVER_PODS: Final = (
    "app=nvidia-device-plugin-daemonset",
    "app.kubernetes.io/name=nvidia-device-plugin",
    "app=nvidia-dcgm-exporter",
    "app.kubernetes.io/name=dcgm-exporter",
)
WORDS_MAX: Final = 150  # of what a tool says


class RepairRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Holds the repair that the annotation asks for."""

    id: str
    step: str
    asked_s: float
    boot_id: str = ""  # as it was then
    pods: tuple[str, ...] = ()  # UIDs of the pods to restart


class Repairs:
    def __init__(self, api: Api, *, wall: Callable[[], float] = time.time, mono: Callable[[], float] = time.monotonic) -> None:
        self._api, self._wall, self._mono = api, wall, mono
        self.driver_pods: Sequence[str] = DRIVER_PODS  # label selectors
        self._looked_mono: dict[str, float] = {}  # by id of what is wanted

    def run(self, call: StepCall) -> StepProgress:
        """Polls one attempt once. Raises ClusterError."""
        id_ = f"{call.assignment.id}.{call.step}.{call.attempt}"
        if self._mono() - self._looked_mono.get(id_, float("-inf")) < LOOK_EVERY_S:
            return StepProgress(status=StepStatus.RUNNING)
        self._looked_mono[id_] = self._mono()
        node = self._api.get(node_path(call.node.view.name), Node)
        asked = asked_of(node)
        if asked is None or asked.id != id_:
            self._write(node, self._wanted(id_, call.step, node))
            return StepProgress(status=StepStatus.RUNNING)
        found = self._done(asked, node, call) or self._late(asked, call)
        if found is None:
            return StepProgress(status=StepStatus.RUNNING)
        self._write(node, None)
        del self._looked_mono[id_]
        return found

    def withdraw(self, call: StepCall) -> None:
        """Takes back what is wanted, so that no tool does it to a node that somebody uses. Raises ClusterError."""
        node = self._api.get(node_path(call.node.view.name), Node)
        if cluster_names.REPAIR in (node.metadata.annotations or {}):
            self._write(node, None)

    def _wanted(self, id_: str, step: str, node: Node) -> RepairRequest:
        pods = self._pods_on(node.metadata.name) if step == RepairStep.RESTART_DRIVER else []
        return RepairRequest(
            id=id_, step=step, asked_s=self._wall(), boot_id=node.status.nodeInfo.bootID, pods=tuple(pod.metadata.uid for pod in pods)
        )

    def _done(self, asked: RepairRequest, node: Node, call: StepCall) -> StepProgress | None:
        if call.step == RepairStep.RESTART_DRIVER:
            return self._restart(asked, node)
        boot_id = node.status.nodeInfo.bootID
        if call.step == RepairStep.REBOOT_NODE and boot_id != asked.boot_id and node.status.is_ready:
            return _ok(f"the node came back with another boot id, {boot_id}, after {self._wall() - asked.asked_s:.0f} s")
        word, _, said = node.metadata.annotation(cluster_names.REPAIR_DONE).partition(" ")
        if word != asked.id:
            return None
        said = said.strip()[:WORDS_MAX]
        if said != "ok":
            return _failed(f"the tool that repairs nodes says: {said or 'nothing'}")
        if call.step == RepairStep.REBOOT_NODE:
            return None  # the new boot id is the proof
        return _ok(f"the tool that repairs nodes says that it is done, after {self._wall() - asked.asked_s:.0f} s")

    def _late(self, asked: RepairRequest, call: StepCall) -> StepProgress | None:
        if self._wall() - asked.asked_s < DONE_WITHIN_S[RepairStep(call.step)]:
            return None
        return _failed(f"{step_name(call.step)}: it was not done within {DONE_WITHIN_S[RepairStep(call.step)] / 60:.0f} min")

    def _restart(self, asked: RepairRequest, node: Node) -> StepProgress | None:
        if not asked.pods:
            labels = ", ".join(self.driver_pods)
            return _failed(
                f"no namespace with the label {cluster_names.MAY_RESTART}=true has a pod on this node with one of the labels {labels}"
            )
        there = self._pods_on(node.metadata.name)
        old = [pod for pod in there if pod.metadata.uid in asked.pods]
        for pod in old:
            if not pod.is_leaving:
                try:
                    self._api.delete(pod.path, uid=pod.metadata.uid)
                except Missing:
                    continue
                except ClusterError as error:
                    return _failed(f"{pod.label} cannot be restarted: {error}")
        fresh = [pod.label for pod in there if pod.metadata.uid not in asked.pods and pod.is_ready]
        if old or len(fresh) < len(asked.pods):
            return None
        return _ok(f"restarted: {', '.join(sorted(fresh))}")

    def _pods_on(self, node: str) -> list[Pod]:
        """Returns pods that their controller makes anew, in namespaces that are marked for it: a workspace's pod may have any label."""
        found: dict[str, Pod] = {}
        for word in self.driver_pods:
            pods = self._api.get("/api/v1/pods", PodList, labelSelector=word, fieldSelector=f"spec.nodeName={node}").items
            found |= {pod.metadata.uid: pod for pod in pods if pod.metadata.controller is not None and not pod.is_over}
        marked = {name for name in {pod.metadata.namespace for pod in found.values()} if self._may_restart_in(name)}
        return [pod for pod in found.values() if pod.metadata.namespace in marked]

    def _may_restart_in(self, namespace: str) -> bool:
        labels = self._api.get(f"/api/v1/namespaces/{namespace}", Namespace).metadata
        return labels.label(cluster_names.MAY_RESTART) == "true" and not labels.label(cluster_names.SLICE)

    def _write(self, node: Node, asked: RepairRequest | None) -> None:
        annotations = node.metadata.annotations or {}
        path, was = pointer("metadata", "annotations", cluster_names.REPAIR), annotations.get(cluster_names.REPAIR)
        ops: list[Op] = [
            {"op": "test", "path": "/metadata/uid", "value": node.metadata.uid},
            {"op": "test", "path": path, "value": was},
            {"op": "add", "path": path, "value": msgspec.json.encode(asked).decode()} if asked else {"op": "remove", "path": path},
        ]
        if cluster_names.REPAIR_DONE in annotations:
            ops.append({"op": "remove", "path": pointer("metadata", "annotations", cluster_names.REPAIR_DONE)})
        self._api.patch(node_path(node.metadata.name), ops, Node)


def asked_of(node: Node) -> RepairRequest | None:
    try:
        return decode(node.metadata.annotation(cluster_names.REPAIR), RepairRequest)
    except msgspec.DecodeError:
        return None


def _ok(log: str) -> StepProgress:
    return StepProgress(status=StepStatus.OK, log=log)


def _failed(log: str) -> StepProgress:
    return StepProgress(status=StepStatus.FAILED, log=log, blames_node=False)
