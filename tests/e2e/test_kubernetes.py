"""EGS does its main job on real Kubernetes; clusters, hub and agents are processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml

from tests.e2e.gpu_nodes import Exporter, exporting, rebooting
from tests.e2e.jobs import reservations_of
from tests.e2e.kubernetes import NODE_GPUS, KubernetesStage, healthy_nodes
from tests.e2e.processes import START_S, Api, wait_for
from tests.e2e.terminal import Terminal
from tests.kube.cluster import Cluster, Object, clusters
from tests.kube.world import container

pytestmark = pytest.mark.sqlite_only  # as all tests that start a control plane

SOON_S = 2 * START_S
EXIT_LATE_S = 2.0  # what is promised: an exit begins so soon after the end, hub or no hub
NAP_S = 0.05
REMEDIATION_S = 5.0  # between the hub's looks for faults
ENDED = ("COMPLETED", "RELEASED", "EVICTED", "FAILED", "CANCELED", "REJECTED")


@dataclass(frozen=True, slots=True)
class Platform:
    """A hub whose agent is in a cluster with two nodes."""

    stage: KubernetesStage
    west: Cluster
    api: Api
    ada: Api


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """One for all tests here: each has a workspace of its own, and leaves all nodes free and healthy."""
    with clusters("west", folder=tmp_path_factory.mktemp("kube")) as (west,):
        stage = KubernetesStage(tmp_path_factory.mktemp("hub"))
        try:
            with healthy_nodes(west):
                api = stage.start()
                stage.join_cluster(api, "west", west, nodes=2)
                api.post("/projects/", {"name": "research"})
                yield Platform(stage, west, api, stage.person("ada"))
        finally:
            stage.stop()


@pytest.fixture(scope="module")
def east(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """It is a second cluster of that hub, with three nodes."""
    with clusters("east", folder=tmp_path_factory.mktemp("kube")) as (made,), healthy_nodes(made) as platform.stage.sick:
        agent = platform.stage.join_cluster(platform.api, "east", made, nodes=3)
        yield made
        agent.stop()


def make_slice(api: Api, name: str, **namespaces: Cluster) -> None:
    """Makes a workspace with a namespace of the same name in each of the clusters."""
    api.post("/slices/", {"name": name, "project": "research", "clusters": list(namespaces)})
    for at in namespaces:
        api.post(f"/slices/{name}/namespaces/", {"name": name, "cluster": at})
    for cluster in namespaces.values():
        wait_for("the namespace", lambda cluster=cluster: bound(cluster, name), within_s=SOON_S)


def bound(cluster: Cluster, name: str) -> bool:
    found = cluster.get("namespace", name)
    is_bound = found is not None and "egs.io/slice" in found["metadata"].get("labels", {})
    return is_bound and cluster.get("serviceaccount", "default", namespace=name) is not None


def workload(kind: str, name: str, namespace: str, *, count: int, gpus: int) -> Object:
    """A Deployment or Job of so many pods, in what Pod Security asks of a tenant."""
    pod_spec: Object = {"containers": [container(gpus)], "terminationGracePeriodSeconds": 2}
    template: Object = {"metadata": {"labels": {"app": name}}, "spec": pod_spec}
    spec: Object = {"template": template}
    if kind == "Job":
        pod_spec["restartPolicy"] = "Never"
        spec |= {"parallelism": count, "completions": count, "backoffLimit": 100}
    else:
        spec |= {"replicas": count, "selector": {"matchLabels": {"app": name}}}
    version = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def bare_pod(name: str, namespace: str, *, gpus: int) -> Object:
    spec = {"containers": [container(gpus)], "restartPolicy": "Never", "terminationGracePeriodSeconds": 2}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def reasons(cluster: Cluster, namespace: str) -> set[str]:
    return {each["reason"] for each in cluster.list("events", namespace=namespace) if each["involvedObject"]["kind"] == "Namespace"}


def is_whole_life(told: set[str]) -> bool:
    """One of the marks is enough: after a pause only the latest is told."""
    return told >= {"Queued", "Provisioned", "Exiting", "Completed"} and any(reason.startswith("Passed") for reason in told)


def running(cluster: Cluster, namespace: str) -> list[Object]:
    pods = cluster.list("pods", namespace=namespace)
    return [pod for pod in pods if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]]


def gated(cluster: Cluster, namespace: str) -> list[Object]:
    return [pod for pod in cluster.list("pods", namespace=namespace) if pod["spec"].get("schedulingGates")]


def messages(cluster: Cluster, kind: str, namespace: str) -> str:
    """The messages of all events about objects of this kind, which `kubectl describe` shows, too."""
    events = cluster.list("events", namespace=namespace)
    return "\n".join(each["message"] for each in events if each["involvedObject"]["kind"] == kind)


def message_of(cluster: Cluster, namespace: str, name: str) -> str:
    """Returns what its GPUProvisioningRequest says; "" until it says something."""
    found = cluster.get("gpr", name, namespace=namespace) or {}
    return str(found.get("status", {}).get("message", ""))


def in_state(api: Api, gpr: dict[str, Any], state: str, *, within_s: float = SOON_S) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] | None = api.try_get(f"/gprs/{gpr['id']}/")
        if found is None:
            return None
        assert found["state"] == state or found["state"] not in ENDED, found
        return found if found["state"] == state else None

    return wait_for(state, look, within_s=within_s)


@pytest.mark.soak  # quickly: the pods below, in one cluster, and tests/browser/test_main_job.py, in two that are simulated
def test_workloads_of_two_workspaces_in_two_clusters_wait_run_in_their_boxes_and_wait_again(platform: Platform, east: Cluster) -> None:
    api, west = platform.api, platform.west
    make_slice(api, "vision", east=east)
    make_slice(api, "speech", east=east, west=west)
    east.apply(workload("Deployment", "train", "vision", count=3, gpus=4), workload("Deployment", "serve", "speech", count=1, gpus=8))
    west.apply(bare_pod("alone", "speech", gpus=1), workload("Job", "score", "speech", count=3, gpus=1))
    wait_for("all wait", lambda: len(gated(east, "vision")) == 3 and len(gated(west, "speech")) == 4, within_s=SOON_S)
    wait_for("they are told why", lambda: "GPU Provision Request" in messages(east, "Pod", "vision"), within_s=SOON_S)

    ask = {"shape": "H100-80GB", "nodes": 1}
    vision = api.post("/gprs/", {**ask, "name": "train", "slice": "vision", "duration_s": 3600})
    score = {**ask, "name": "score", "slice": "speech", "clusters": ["west"], "gpus_per_node": 4, "duration_s": 60}
    in_state(api, vision, "ACTIVE")
    speech = api.post("/gprs/", score)  # not before: it must not end while something else is waited for
    in_state(api, speech, "ACTIVE")
    wait_for("they run", lambda: len(running(east, "vision")) == 2 and len(running(west, "speech")) == 4, within_s=SOON_S)

    assert len(gated(east, "vision")) == 1
    assert running(east, "speech") == running(west, "vision") == []
    results = api.get(f"/gprs/{vision['id']}/steps/")["results"]
    assert {"claim", "node_ready", "gpu_count", "gpu_health", "storage", "network", "open"} <= {step["step"] for step in results}

    wait_for("the namespace tells", lambda: "EgsOpen" in reasons(east, "vision"), within_s=SOON_S)
    api.post(f"/gprs/{vision['id']}/release/")
    in_state(api, vision, "RELEASED")
    assert in_state(api, speech, "COMPLETED", within_s=3 * SOON_S)["end_reason"] == "EXPIRED"
    assert running(east, "vision") == running(west, "speech") == []
    # Nobody makes the bare pod anew.
    wait_for("all wait again", lambda: len(gated(east, "vision")) == 3 and len(gated(west, "speech")) == 3, within_s=SOON_S)
    wait_for("its life is told", lambda: is_whole_life(reasons(west, "speech")), within_s=SOON_S)


SICK = "east-gpu-01"  # where the planner begins


def passed_over(api: Api, gpr: dict[str, Any], sick: str) -> None:
    """Its check failed twice, it is set aside with the reason, administrators are told, and the request has another node."""
    why = "Entry check GPU health failed. ECC errors not corrected since the last reset: 2 (at most 0), GPU GPU-7."
    (node,) = api.get(f"/nodes/?cluster=east&name={sick}")["results"]
    assert (node["is_cordoned"], node["cordon_reason"]) == (True, why)
    (told,) = api.get("/events/?kind=node.cordoned")["results"]
    assert told["message"] == f"Node {sick} was set aside: {why}"
    steps = [step for step in api.get(f"/gprs/{gpr['id']}/steps/?page_size=200")["results"] if step["step"] == "gpu_health"]
    outcomes = [(step["node"], step["outcome"]) for step in steps]
    assert outcomes.count((sick, "FAILED")) == 2
    (used,) = [each["node"] for each in gpr["nodes_assigned"]]
    assert used != sick
    assert outcomes.count((used, "OK")) == 1


@pytest.mark.soak  # quickly: tests/kube/checks/test_checks.py and tests/lifecycle/boxes/test_swaps.py
def test_a_node_that_fails_its_checks_is_passed_over_and_one_that_fails_later_is_replaced(platform: Platform, east: Cluster) -> None:
    api, stage = platform.api, platform.stage
    make_slice(api, "health", east=east)
    east.apply(workload("Deployment", "train", "health", count=1, gpus=NODE_GPUS))
    stage.sick.add(SICK)
    ask = {"shape": "H100-80GB", "nodes": 1, "duration_s": 3600}
    gpr = api.post("/gprs/", {**ask, "name": "train", "slice": "health"})
    before = in_state(api, gpr, "ACTIVE")
    passed_over(api, before, SICK)
    (pod,) = wait_for("it runs", lambda: running(east, "health"), within_s=SOON_S)
    sick = pod["spec"]["nodeName"]

    break_node(east, sick)

    def replaced() -> Any:
        seen = api.get(f"/gprs/{gpr['id']}/")
        assert seen["state"] == "ACTIVE", seen
        return any(each["outcome"] == "replaced" for each in seen["replacements"]) and seen

    after = wait_for("the replacement", replaced, within_s=2 * SOON_S)
    spare = after["replacements"][-1]["spare"]

    def pods_on(node: str) -> Any:
        return [pod for pod in running(east, "health") if pod["spec"]["nodeName"] == node]

    wait_for("it runs on the spare", lambda: pods_on(spare), within_s=SOON_S)
    wait_for("the sick one is drained", lambda: not pods_on(sick), within_s=SOON_S)
    assert (after["replacements"][-1]["node"], after["ends_at"]) == (sick, before["ends_at"])
    assert api.get(f"/nodes/?cluster=east&name={sick}")["results"][0]["is_cordoned"]
    mend_node(east, sick)
    api.post(f"/gprs/{gpr['id']}/release/")
    in_state(api, gpr, "RELEASED")
    stage.sick.remove(SICK)
    for node in (SICK, sick):
        api.post(f"/nodes/{node}/uncordon/")


def break_node(cluster: Cluster, name: str) -> None:
    """It is not ready, and its kubelet says nothing more."""
    status = {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}
    _patch_node(cluster, name, {"metadata": {"annotations": {"kwok.x-k8s.io/node": None}}})
    _patch_node(cluster, name, {"status": status}, "--subresource", "status")


def mend_node(cluster: Cluster, name: str) -> None:
    _patch_node(cluster, name, {"metadata": {"annotations": {"kwok.x-k8s.io/node": "fake"}}})


def _patch_node(cluster: Cluster, name: str, patch: Object, *how: str) -> None:
    cluster.kubectl("patch", "node", name, *how, "--patch", json.dumps(patch))


REQUEST = """\
apiVersion: egs.io/v1alpha1
kind: GPUProvisioningRequest
metadata:
  name: {name}
spec:{more}
  shape: H100-80GB
  nodes: 1
  duration: 8h30m
"""


def terminal_of(person: Api, slice_: str, name: str, cluster: Cluster, folder: Path) -> Terminal:
    """Returns a terminal with a kubeconfig for this cluster, for which the person asked once the namespace was there."""

    def ask() -> Any:
        answer = person.raw("POST", f"/slices/{slice_}/kubeconfig/", {"cluster": name})
        return False if answer.json().get("code") == "namespace_not_ready" else answer

    answered = wait_for("the namespace", ask, within_s=SOON_S)
    assert answered.status_code < 300, answered.text
    asked = answered.json()

    def read() -> str | None:
        answer = person.raw("POST", f"/slices/{slice_}/kubeconfig/{asked['id']}/read/")
        return str(answer.json()["kubeconfig"]) if answer.status_code == 200 else None

    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(wait_for("a kubeconfig", read, within_s=SOON_S))
    return Terminal(programs=cluster.programs, kubeconfig=kubeconfig, folder=folder)


def make_slice_of_ada(platform: Platform, name: str, **namespaces: Cluster) -> None:
    make_slice(platform.api, name, **namespaces)
    for member, role in (("root", "owner"), ("ada", "editor")):
        platform.api.post(f"/slices/{name}/members/", {"user": member, "role": role})


@pytest.mark.soak  # quickly: the pods below, tests/kube/requests/test_requests.py and tests/cluster_requests
def test_a_member_asks_for_nodes_by_kubectl_alone_uses_them_and_gives_them_back(platform: Platform, east: Cluster, tmp_path: Path) -> None:
    ada = platform.ada
    make_slice_of_ada(platform, "language", east=east)
    terminal = terminal_of(ada, "language", "east", east, tmp_path)
    train = workload("Deployment", "train", "language", count=1, gpus=NODE_GPUS)
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(train))
    ahead = ada.post("/gprs/", {"name": "tuning", "slice": "language", "shape": "H100-80GB", "nodes": 1, "duration_s": 3600})
    in_state(ada, ahead, "ACTIVE")

    terminal.file("llama.yaml", REQUEST.format(name="llama", more=""))
    terminal.run("kubectl apply -f llama.yaml")
    wait_for("it waits", lambda: "tuning" in message_of(east, "language", "llama"), within_s=SOON_S)
    terminal.run("kubectl get gpr")
    terminal.run("kubectl get gpr llama -o jsonpath='{.status.message}{\"\\n\"}'")
    with terminal.beside("kubectl get gpr --watch") as watched:
        ada.post(f"/gprs/{ahead['id']}/release/")
        terminal.run("kubectl wait gpr/llama --for=condition=Provisioned --timeout=120s")
        terminal.run("kubectl apply -f train.yaml")
        terminal.run("kubectl wait deployment/train --for=condition=Available --timeout=60s")
        terminal.run('kubectl get gpr llama -o jsonpath=\'{.status.nodes}{"  until "}{.status.endTime}{"\\n"}\'')
        filed = next(gpr for gpr in ada.get("/gprs/?slice=language")["results"] if gpr["name"] == "llama")
        status = json.loads(terminal.quietly("kubectl get gpr llama -o json"))["status"]
        assert status["gprID"] == filed["id"]
        assert [node["node"] for node in filed["nodes_assigned"]] == status["nodes"]
        assert {pod["spec"]["nodeName"] for pod in running(east, "language")} == set(status["nodes"])
        assert filed["ends_at"][:19] == status["endTime"][:19]
        assert (filed["owner"], filed["name"], filed["state"]) == ("ada", "llama", "ACTIVE")
        assert filed["origin"].items() >= {"cluster": "east", "namespace": "language", "name": "llama", "is_auto": False}.items()

        terminal.run('kubectl patch gpr llama --type merge --patch \'{"spec": {"duration": "9h"}}\'')
        wait_for("it ends later", lambda: ada.get(f"/gprs/{filed['id']}/")["duration_s"] == 9 * 3600, within_s=SOON_S)
        terminal.run("kubectl events --for gpr/llama")
        terminal.run("kubectl delete gpr llama")
        in_state(ada, filed, "RELEASED")
    wait_for("its pod waits again", lambda: gated(east, "language") and not running(east, "language"), within_s=SOON_S)
    states = [line.split()[1] for line in watched().splitlines() if line.startswith("llama ") and len(line.split()) > 2]
    assert [state for state, _ in groupby(states) if state in ("QUEUED", "PROVISIONING", "ACTIVE")] == ["QUEUED", "PROVISIONING", "ACTIVE"]

    terminal.file("foreign.yaml", REQUEST.format(name="foreign", more="\n  workspace: speech"))
    terminal.run("kubectl apply -f foreign.yaml")
    terminal.run("kubectl wait gpr/foreign --for=condition=Accepted=False --timeout=60s")
    refused = terminal.run('kubectl get gpr foreign -o jsonpath=\'{.status.conditions[?(@.type=="Accepted")]}{"\\n"}\'')
    assert "OtherWorkspace" in refused
    assert {gpr["name"] for gpr in ada.get("/gprs/?slice=language")["results"]} == {"tuning", "llama"}
    terminal.save("by-hand")


TEMPLATE = """\
apiVersion: egs.io/v1alpha1
kind: GPRTemplate
metadata:
  name: standard
spec:
  auto: true
  shape: H100-80GB
  duration: 2h
  priority: 120
"""


def test_pods_that_wait_get_nodes_by_themselves_and_their_end_gives_these_to_another_workspace(platform: Platform, tmp_path: Path) -> None:
    api, ada, west = platform.api, platform.ada, platform.west
    make_slice_of_ada(platform, "pods", west=west)
    make_slice(api, "others", west=west)
    west.apply(workload("Deployment", "train", "others", count=1, gpus=NODE_GPUS))
    terminal = terminal_of(ada, "pods", "west", west, tmp_path)
    (tmp_path / "serve.yaml").write_text(yaml.safe_dump(workload("Deployment", "serve", "pods", count=2, gpus=NODE_GPUS)))

    terminal.file("standard.yaml", TEMPLATE)
    terminal.run("kubectl apply -f standard.yaml -f serve.yaml")
    wait_for("an object", lambda: west.list("gpr", namespace="pods"), within_s=SOON_S)
    terminal.run("kubectl get pods")
    terminal.run("kubectl wait gpr --all --for=condition=Provisioned --timeout=120s")
    terminal.run("kubectl wait deployment/serve --for=condition=Available --timeout=60s")
    terminal.run("kubectl get gpr")
    (filed,) = ada.get("/gprs/?slice=pods")["results"]
    assert (filed["owner"], filed["nodes"], filed["duration_s"], filed["priority"], filed["state"]) == ("root", 2, 7200, 120, "ACTIVE")
    assert (filed["origin"]["is_auto"], filed["origin"]["namespace"]) == (True, "pods")
    assert len(running(west, "pods")) == 2
    behind = api.post("/gprs/", {"name": "train", "slice": "others", "shape": "H100-80GB", "nodes": 1, "duration_s": 3600})
    wait_for("its pod is told why it waits", lambda: "GPU Provision Request" in messages(west, "Pod", "others"), within_s=SOON_S)
    assert (behind["state"], running(west, "others")) == ("QUEUED", [])

    terminal.run("kubectl delete deployment serve")
    ended = in_state(ada, filed, "RELEASED")
    assert ended["end_reason"] == "EARLY_RELEASE"
    terminal.run("kubectl get gpr")
    assert west.list("gpr", namespace="pods") == []
    terminal.save("auto")

    in_state(api, behind, "ACTIVE")
    wait_for("the other's pod runs", lambda: running(west, "others"), within_s=SOON_S)
    api.post(f"/gprs/{behind['id']}/release/")
    in_state(api, behind, "RELEASED")
    assert (len(gated(west, "others")), running(west, "others"), running(west, "pods")) == (1, [], [])


def warning_of_xid_79(node: str, *, bus: str) -> Object:
    """Writes the Event that node-problem-detector writes."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = f"NVRM: Xid (PCI:{bus}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{node}.xid", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "uid": node},
        **{"type": "Warning", "reason": "XidError", "message": message, "source": {"component": "kernel-monitor", "host": node}},
        **{"firstTimestamp": now, "lastTimestamp": now, "count": 1},
    }


@pytest.mark.rotates  # each day: tests/observability/remediation, and the agent's steps in tests/agent/nodes/test_repairs.py
@pytest.mark.parametrize("told_by", [pytest.param("exporter", marks=pytest.mark.soak), "event"])
def test_a_node_whose_gpu_throws_xid_79_is_set_aside_replaced_rebooted_and_back_only_after_its_checks(
    told_by: str, platform: Platform
) -> None:
    """An exporter tells of it, or node-problem-detector alone, because the exporter sees the GPU no more."""
    api, west, stage, space = platform.api, platform.west, platform.stage, f"faults-{told_by}"
    make_slice(api, space, west=west)
    west.apply(workload("Deployment", "train", space, count=1, gpus=NODE_GPUS))
    api.raw("PATCH", "/remediation-policies/west/", {"reboot_node": "auto"}).raise_for_status()
    exporter = Exporter([node["name"] for node in api.get("/nodes/?cluster=west")["results"]], NODE_GPUS)
    with exporting(exporter) as url, rebooting(west, exporter) as rebooted:
        settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "egs-settings", "namespace": "egs-system"}}
        west.apply({**settings, "data": {"exporters": url}})
        stage.agents["west"].stop()
        stage.agents["west"].start()
        ask = {"name": "train", "slice": space, "shape": "H100-80GB", "nodes": 1, "duration_s": 3600}
        gpr = in_state(api, api.post("/gprs/", ask), "ACTIVE")
        (pod,) = wait_for("it runs", lambda: running(west, space), within_s=SOON_S)
        sick = pod["spec"]["nodeName"]
        readings = f"/hotspots/?node={sick}"
        wait_for("readings", lambda: any(row["reading"] for row in api.get(readings)["results"]), within_s=2 * SOON_S)
        exporter.xids[sick, 3] = 31
        wait_for("Xid 31", lambda: any(row["reading"]["xid"] == 31 for row in api.get(readings)["results"]), within_s=2 * SOON_S)
        time.sleep(2 * REMEDIATION_S)
        assert api.get("/remediation/?is_open=true")["results"] == [], "an error of the application is no fault of the node"

        if told_by == "exporter":
            exporter.xids[sick, 3] = 79
        else:
            exporter.fallen.add((sick, 3))
            west.apply(warning_of_xid_79(sick, bus="0000:03:00"))
        (case,) = wait_for("the case", lambda: api.get(f"/remediation/?is_open=true&node={sick}")["results"], within_s=2 * SOON_S)
        assert (case["code"], case["why"]) == ("xid 79", "GPU 3 reported Xid 79 (GPU has fallen off the bus).")
        assert len(case["evidence"]) == 1

        def replaced() -> Any:
            return [each for each in running(west, space) if each["spec"]["nodeName"] != sick]

        wait_for("it runs on the spare", replaced, within_s=2 * SOON_S)
        now = api.get(f"/gprs/{gpr['id']}/")
        assert (now["state"], now["ends_at"]) == ("ACTIVE", gpr["ends_at"])

        def returned() -> Any:
            found = api.get(f"/remediation/{case['id']}/")
            (node,) = api.get(f"/nodes/?cluster=west&name={sick}")["results"]
            has_passed = bool(found["repairs"]) and found["repairs"][-1]["passed_at"] is not None
            assert node["is_cordoned"] or has_passed, "it is in use without having passed its checks"
            return found if found["state"] == "returned" else None

        after = wait_for("its return", returned, within_s=4 * SOON_S)
        assert rebooted == [sick]
        (repair,) = after["repairs"]
        steps = [step["name"] for step in repair["steps"] if step["outcome"] == "OK"]
        assert [step for step in steps if step != "claim"][:4] == ["reboot_node", "node_ready", "gpu_count", "gpu_health"]
        annotations = west.get("node", sick)["metadata"]["annotations"]  # type: ignore[index]
        assert "egs.io/repair" not in annotations
        api.post(f"/gprs/{gpr['id']}/release/")
        in_state(api, gpr, "RELEASED")
    west.delete("configmap", "egs-settings", namespace="egs-system")


@pytest.mark.soak  # quickly: tests/kube/nodes/test_crashes.py without Deployments, tests/e2e/test_kill.py with the hub killed
def test_while_the_hub_is_down_a_box_ends_at_its_time(platform: Platform) -> None:
    api, west, stage = platform.api, platform.west, platform.stage
    make_slice(api, "alone", west=west)
    west.apply(workload("Deployment", "train", "alone", count=1, gpus=NODE_GPUS))
    ask = {"name": "short", "slice": "alone", "shape": "H100-80GB", "nodes": 1, "duration_s": 60}
    gpr = in_state(api, api.post("/gprs/", ask), "ACTIVE")
    wait_for("it runs", lambda: running(west, "alone"), within_s=SOON_S)

    stage.hub.kill()
    with stalls() as stalled_s:
        wait_for("it waits again", lambda: not running(west, "alone") and gated(west, "alone"), within_s=2 * SOON_S)
    stage.hub.start()

    ended = in_state(api, gpr, "COMPLETED")
    assert ended["end_reason"] == "EXPIRED"
    (row,) = reservations_of(api, gpr["id"])
    late_s = (datetime.fromisoformat(row["exit_began_at"]) - datetime.fromisoformat(ended["ends_at"])).total_seconds()
    # What the machine kept this test itself waiting is not the agent's.
    assert 0.0 <= late_s <= EXIT_LATE_S + max(stalled_s)


@contextmanager
def stalls() -> Iterator[list[float]]:
    """Measures how much longer than asked each of many short naps took, beside what is tested."""
    found, is_over = [0.0], Event()

    def nap() -> None:
        while not is_over.is_set():
            began_mono = time.monotonic()
            time.sleep(NAP_S)
            found.append(time.monotonic() - began_mono - NAP_S)

    thread = Thread(target=nap)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


@pytest.mark.soak  # quickly: tests/kube/isolation/test_locks.py and tests/agent/process/test_replicas.py
def test_whichever_replica_is_killed_whenever_the_other_goes_on_where_it_was(platform: Platform, east: Cluster) -> None:
    api, stage = platform.api, platform.stage
    second = stage.start_replica("east", "east-2")
    make_slice(api, "steady", east=east)
    east.apply(workload("Deployment", "train", "steady", count=6, gpus=4))
    ask = {"name": "long", "slice": "steady", "shape": "H100-80GB", "nodes": 3, "duration_s": 3600}
    gpr = api.post("/gprs/", ask)

    wait_for("checks", lambda: east.list("jobs", namespace="egs-system"), within_s=SOON_S)
    kill_leader(stage, east)  # in the middle of the checks
    wait_for("some run", lambda: running(east, "steady"), within_s=SOON_S)
    kill_leader(stage, east)  # perhaps in the middle of lifting
    in_state(api, gpr, "ACTIVE")
    wait_for("all run", lambda: len(running(east, "steady")) == 6, within_s=SOON_S)
    kill_leader(stage, east)  # at rest
    api.post(f"/gprs/{gpr['id']}/release/")
    wait_for("the first is sent away", lambda: len(running(east, "steady")) < 6, within_s=SOON_S)
    kill_leader(stage, east)  # in the middle of the drain

    in_state(api, gpr, "RELEASED")
    wait_for("all wait again", lambda: len(gated(east, "steady")) == 6 and not running(east, "steady"), within_s=SOON_S)
    moves = [event["new"] for event in api.events_of(gpr["id"]) if event["kind"] == "gpr.transition"]
    assert moves == ["PROVISIONING", "ACTIVE", "EXITING", "RELEASED"]
    second.stop()


def kill_leader(stage: KubernetesStage, cluster: Cluster) -> None:
    """Ends it as a power cut would; it comes back as the one that waits."""
    leader = wait_for("a leader", lambda: stage.leader(cluster), within_s=SOON_S)
    leader.kill()
    leader.start()


@pytest.mark.rotates
def test_a_job_waits_runs_is_evicted_comes_back_with_what_is_left_and_completes(platform: Platform) -> None:
    """Each day tests/kube/jobs runs the agent's part alone, and tests/e2e/client/test_jobs.py runs in simulated clusters."""
    api, west = platform.api, platform.west
    make_slice_of_ada(platform, "gang", west=west)
    spec = {"shape": "H100-80GB", "nodes": 2, "duration": "1h", "runChecks": False, "image": "registry.example/train:1"}
    metadata = {"name": "train", "namespace": "gang"}
    west.apply(
        {"apiVersion": "egs.io/v1alpha1", "kind": "GPUJob", "metadata": metadata, "spec": {**spec, "command": ["torchrun", "train.py"]}}
    )
    (job,) = wait_for("it is filed", lambda: api.get("/jobs/?slice=gang")["results"], within_s=SOON_S)
    kill_leader(platform.stage, west)

    def told() -> tuple[str, set[str]]:
        """Its phase, and the conditions that are true."""
        status = (west.get("gpujob", "train", namespace="gang") or {}).get("status", {})
        return status.get("phase", ""), {each["type"] for each in status.get("conditions", []) if each["status"] == "True"}

    def in_job_state(state: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = api.get(f"/jobs/{job['id']}/")
            return found if found["state"] == state else None

        return wait_for(f"a job that is {state}", look, within_s=3 * SOON_S)

    in_job_state("RUNNING")
    wait_for("both pods run", lambda: len(running(west, "gang")) == 2, within_s=SOON_S)
    (first,) = west.list("jobs", namespace="gang")
    wait_for("it is told", lambda: told() == ("RUNNING", {"Accepted", "Current", "Provisioned"}), within_s=SOON_S)

    api.post(f"/gprs/{job['gpr_id']}/evict/", {"why": "Needed.", "requeue": True})
    platform.stage.hub.kill()  # as a power cut would, in the middle of the exit
    platform.stage.hub.start()

    def is_back() -> Any:
        (found,) = west.list("jobs", namespace="gang") or [first]
        return found["metadata"]["uid"] != first["metadata"]["uid"] and len(running(west, "gang")) == 2

    wait_for("it is made again", is_back, within_s=3 * SOON_S)
    again = in_job_state("RUNNING")
    assert again["run"] == 2
    for pod in running(west, "gang"):
        west.label("pod", pod["metadata"]["name"], "egs.test/outcome=pass", namespace="gang")
    in_job_state("SUCCEEDED")
    in_state(api, {"id": job["gpr_id"]}, "RELEASED")
    wait_for("it is complete", lambda: told() == ("SUCCEEDED", {"Accepted", "Complete", "Current", "Finished"}), within_s=SOON_S)
    assert len(api.get("/jobs/?slice=gang")["results"]) == 1
    wait_for("nothing of it is left", lambda: not west.list("jobs", namespace="gang"), within_s=SOON_S)
