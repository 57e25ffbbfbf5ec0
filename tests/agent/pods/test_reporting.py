"""The agent describes a pod from the words of Kubernetes and the exporters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from protocol.pods import PodSeen
from protocol.tenancy.workspaces import Binding, Workspace
from tests.agent.fake_kube import Object, waiting_pod
from tests.agent.pods.test_workloads import OwnersApi
from tests.builders import node_view
from worker_agent.cluster.base import GpuPhase, GpuRecord, NodeState, Unavailable
from worker_agent.kube.api.objects import Pod
from worker_agent.kube.pods.reporting import PodReporter
from worker_agent.telemetry.pod_devices import PodDevices

SPACES = (Workspace(id="red-id", name="red", bindings=(Binding(namespace="red"),)),)
BOX = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
RECORD = GpuRecord(epoch=1, assignment_id="a", gpr_id=BOX, slice="red-id", phase=GpuPhase.OPEN)
VIEW = node_view("n1", gpus=2)
NODES = {"n1": NodeState(view=VIEW, version="1", records={gpu.uuid: RECORD for gpu in VIEW.gpus})}
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
JOB_SET = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "js", "uid": "uid-js", "controller": True}
JOB_PATH = "/apis/batch/v1/namespaces/red/jobs/j"


def running(name: str = "p", *, gpus: int = 2, labels: Object | None = None, owner: Object | None = JOB, **status: Any) -> Object:
    body = waiting_pod(name, "red")
    body["metadata"] |= {"uid": f"uid-{name}", "labels": {cluster_names.POD_GPR: BOX, **(labels or {})}}
    body["metadata"]["ownerReferences"] = [owner] if owner else []
    limits = {"limits": {cluster_names.GPU: str(gpus)}}
    main = {"name": "main", "image": "train:1", "command": ["torchrun"], "args": ["--hf-token", "abc"], "resources": limits}
    body["spec"] = {"nodeName": "n1", "containers": [main | {"env": [{"name": "WORLD_SIZE", "value": "16"}, {"name": "X", "value": "y"}]}]}
    body["status"] = {"phase": "Running", "startTime": "2026-11-27T12:00:00Z", **status}
    return body


def reporter(api: OwnersApi, *pods: Object, devices: PodDevices | None = None) -> PodReporter:
    read = [msgspec.convert(pod, Pod) for pod in pods]
    return PodReporter(
        api=api,  # type: ignore[arg-type]
        pods=lambda: read,
        workspace_of=lambda namespace: {"red": "red-id"}.get(namespace, ""),
        why=lambda _: "Waits for GPUs.",
        devices=devices or PodDevices(),
        note=lambda *_: None,
    )


def told(*pods: Object, api: OwnersApi | None = None, devices: PodDevices | None = None) -> list[PodSeen]:
    made = reporter(api or OwnersApi(), *pods, devices=devices)
    return msgspec.json.decode(msgspec.json.encode(list(made.look(NODES, SPACES))), type=list[PodSeen])


def test_a_pod_is_told_with_its_owners_its_gpus_and_what_it_runs() -> None:
    api = OwnersApi({JOB_PATH: {"metadata": {"name": "j", "uid": "uid-j", "ownerReferences": [JOB_SET]}}})
    labels = {cluster_names.INDEX_OF_POD: "3", "jobset.sigs.k8s.io/replicatedjob-name": "workers", cluster_names.MODEL: "llama"}

    (pod,) = told(running(labels=labels), api=api)

    assert [owner.kind for owner in pod.owners] == ["Job", "JobSet"]
    assert (pod.phase, pod.hold, pod.node, pod.gpr_id, pod.gpu_count) == ("Running", "", "n1", BOX, 2)
    assert pod.gpus == tuple(gpu.uuid for gpu in VIEW.gpus)
    assert (pod.image, pod.arguments, pod.variables) == ("train:1", ("torchrun", "--hf-token", "(hidden)"), {"WORLD_SIZE": "16"})
    assert (pod.rank, pod.role, pod.model) == (3, "workers", "llama")


def test_a_service_of_kserve_is_the_owner_that_its_label_names() -> None:
    (pod,) = told(running(owner=None, labels={"serving.kserve.io/inferenceservice": "chat"}))

    assert [(owner.kind, owner.name) for owner in pod.owners] == [("InferenceService", "chat")]


def test_where_pods_share_a_node_the_exporter_s_words_tell_their_gpus_and_not_those_of_an_earlier_pod() -> None:
    devices = PodDevices()
    with devices.one_look():
        devices.take("red", "p", VIEW.gpus[1].uuid)
        devices.take("red", "young", VIEW.gpus[0].uuid)
    later = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()

    old, young, unknown = told(running(gpus=1), running("young", gpus=1, startTime=later), running("quiet", gpus=1), devices=devices)

    assert (old.gpus, young.gpus, unknown.gpus) == ((VIEW.gpus[1].uuid,), (), ())


def waits(reason: str, message: str = "") -> list[Object]:
    return [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]


def unplaced(message: str) -> Object:
    body = running()
    del body["spec"]["nodeName"]
    body["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}
    return body


@pytest.mark.parametrize(
    ("pod", "hold", "why"),
    [
        (waiting_pod("w", "red"), "gate", "Waits for GPUs."),
        (
            running(containerStatuses=waits("ImagePullBackOff", "pull https://u:p@reg/x")),
            "image",
            "(ImagePullBackOff). pull https://(hidden)@reg/x",
        ),
        (running(initContainerStatuses=waits("CrashLoopBackOff")), "container", "does not start (CrashLoopBackOff)"),
        (running(containerStatuses=waits("ContainerCreating")), "container", "is being made"),
        (
            unplaced("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {egs.io/box: secret.1}."),
            "scheduler",
            "too little cpu is left",
        ),
        (unplaced("0/3 nodes are available: 3 node(s) had untolerated taint {egs.io/box: secret.1}."), "scheduler", "The pod's events"),
    ],
)
def test_what_keeps_a_pod_from_running_is_told_without_the_boxes_of_others(pod: Object, hold: str, why: str) -> None:
    (seen,) = told(pod)

    assert seen.hold == hold
    assert why in seen.why
    assert "secret" not in seen.why


def test_pods_without_gpus_and_of_no_workspace_are_not_told() -> None:
    loose = waiting_pod("l", "loose")
    bare = running("bare", gpus=0)

    assert told(loose, bare) == []


def test_a_pod_whose_owner_cannot_be_read_now_stays_as_it_was_told() -> None:
    api = OwnersApi({JOB_PATH: {"metadata": {"name": "j", "uid": "uid-j", "ownerReferences": [JOB_SET]}}})
    made = reporter(api, running())
    before = list(made.look(NODES, SPACES))
    made._chains._above_of.clear()
    api.owners = {JOB_PATH: Unavailable("504")}

    assert list(made.look(NODES, SPACES)) == before
