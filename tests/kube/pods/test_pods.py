"""Pods and Jobs on a real API server, scheduler and controllers, on nodes that kwok plays."""

from __future__ import annotations

import pytest

from tests.e2e.processes import wait_for
from tests.kube.cluster import SOON_S, Object
from tests.kube.pods.tenant import NODE_GPUS, Tenant


def condition(of: Object, type_: str) -> str:
    return next((str(each["status"]) for each in of["status"].get("conditions", []) if each["type"] == type_), "")


def terminated(pod: Object) -> Object:
    (container,) = pod["status"]["containerStatuses"]
    return dict(container["state"]["terminated"])


def test_a_node_is_ready_and_has_the_labels_of_gpu_feature_discovery(tenant: Tenant) -> None:
    def look() -> Object | None:
        found = tenant.cluster.get("node", tenant.node_name)
        return found if found and condition(found, "Ready") == "True" else None

    node = wait_for("the node is ready", look, within_s=SOON_S)

    assert node["status"]["allocatable"]["nvidia.com/gpu"] == str(NODE_GPUS)
    labels = node["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.memory"]) == ("8", "81559")
    assert (labels["topology.kubernetes.io/zone"], labels["topology.kubernetes.io/rack"]) == ("zone-1", "rack-1")


def test_a_gpu_pod_is_bound_by_the_scheduler_and_runs(tenant: Tenant) -> None:
    tenant.run("whole", gpus=NODE_GPUS)

    pod = tenant.pod_in("whole", "Running")

    assert pod["spec"]["nodeName"] == tenant.node_name
    assert condition(pod, "Ready") == "True"


def test_a_pod_waits_while_another_has_the_gpus(tenant: Tenant) -> None:
    tenant.run("first", gpus=5)
    tenant.pod_in("first", "Running")
    tenant.run("second", gpus=5)

    second = tenant.pod_once("second", "was looked at", lambda pod: condition(pod, "PodScheduled") == "False")
    assert "Insufficient nvidia.com/gpu" in str(second["status"]["conditions"])

    tenant.end("first")
    tenant.pod_in("second", "Running")


def test_a_pod_ends_in_two_steps(tenant: Tenant) -> None:
    """First asked, and still there with all that it holds; it stops; only then it is gone."""
    tenant.run("short", annotations={"egs.test/stops-for": "2s"})
    tenant.pod_in("short", "Running")

    tenant.end("short")

    asked = tenant.pod("short")
    assert asked is not None
    assert "deletionTimestamp" in asked["metadata"]
    assert asked["status"]["phase"] == "Running"
    wait_for("the pod is gone", lambda: tenant.pod("short") is None, within_s=SOON_S)


def test_a_pod_that_does_not_stop_stays_until_it_is_deleted_by_force(tenant: Tenant) -> None:
    tenant.run("deaf", labels={"egs.test/stops": "never"})
    tenant.run("hearing")
    for name in ("deaf", "hearing"):
        tenant.pod_in(name, "Running")
        tenant.end(name)
    wait_for("the other is gone", lambda: tenant.pod("hearing") is None, within_s=SOON_S)

    assert tenant.pod_in("deaf", "Running")
    tenant.cluster.delete("pod", "deaf", namespace=tenant.name, gracePeriodSeconds=0)

    assert tenant.pod("deaf") is None


@pytest.mark.parametrize(
    ("outcome", "phase", "exit_code", "reason"),
    [("pass", "Succeeded", 0, "Completed"), ("fail", "Failed", 1, "Error"), ("crash", "Failed", 137, "OOMKilled")],
)
def test_a_check_ends_as_it_is_told_with_its_last_words(outcome: str, phase: str, exit_code: int, reason: str, tenant: Tenant) -> None:
    tenant.run("check", labels={"egs.test/outcome": outcome}, annotations={"egs.test/message": 'busbw: "470"'})

    ended = terminated(tenant.pod_in("check", phase))

    assert (ended["exitCode"], ended["reason"], ended["message"]) == (exit_code, reason, 'busbw: "470"')


@pytest.mark.parametrize(("outcome", "condition_"), [("pass", "Complete"), ("fail", "Failed"), ("crash", "Failed")])
def test_a_job_ends_as_its_check_does(outcome: str, condition_: str, tenant: Tenant) -> None:
    tenant.run_job("check", labels={"egs.test/outcome": outcome})

    assert tenant.job_once("check", condition_)


def test_a_check_that_hangs_runs_until_the_deadline_of_its_job(tenant: Tenant) -> None:
    tenant.run_job("check", labels={"egs.test/outcome": "hang"}, deadline_s=3)

    assert tenant.job_once("check", "Failed")["reason"] == "DeadlineExceeded"
    wait_for("its pod is gone", lambda: not tenant.cluster.list("pods", namespace=tenant.name), within_s=SOON_S)
