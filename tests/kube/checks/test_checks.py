"""Entry and exit checks as Jobs on a real API server, scheduler and controllers; kwok plays the nodes and what their tools say."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import uuid4

import msgspec
import pytest

from protocol.cluster_names import (
    CHECK_OF,
    CHECK_SERVICE,
    MANAGED,
    NAMESPACE,
    NODE_SLICE,
    NODE_UID,
    RECORDS,
    TAINT,
    box_label,
    box_of,
    node_path,
)
from protocol.nodes.checks import CheckPolicy, Verdict
from protocol.nodes.steps import EntryStep, ExitStep
from tests.agent.checks.step_calls import step_call
from tests.e2e.processes import wait_for
from tests.kube.checks.healthy import gang_words, gpu_lines, last_words, nccl_report, row_lines
from tests.kube.cluster import SOON_S, Cluster, Object
from tests.kube.fleet_nodes import nodes_of
from tests.kube.pods.tenant import NODE_GPUS, Tenant
from tests.kube.site import AGENT, access_as_agent
from tests.kube.wire import STRATEGIC
from worker_agent.cluster.base import StepCall, StepProgress, StepStatus
from worker_agent.cluster.fleet import NodeGroup, SimulatedFleet
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.objects import Node
from worker_agent.kube.checks import jobs
from worker_agent.kube.checks import steps as checks
from worker_agent.kube.checks.steps import Checks
from worker_agent.kube.nodes.hardware import stored_uuids, uuids_by_index

# Each day: tests/agent/checks, and tests/e2e/test_kubernetes.py, whose boxes pass all checks
pytestmark = pytest.mark.rotates

GPUS = tuple(f"GPU-{n}" for n in range(NODE_GPUS))
IMAGE = "egs.test/agent"
STORAGE_CLASS = "egs-test"
GONE_S = 150.0  # the collector of pods of nodes that are gone looks each 20 s, and waits 40 s


@dataclass
class Bench:
    """One node with an assignment, the agent's checks, and the test as the node's kubelet."""

    cluster: Cluster
    api: Api
    node: str
    agent: Checks
    name: str = field(default_factory=lambda: str(uuid4()))

    def restart_agent(self) -> None:
        self.agent = Checks(self.api, image=IMAGE)

    def call(self, step: str, *, attempt: int = 1, policy: CheckPolicy | None = None, rdma: bool = False) -> StepCall:
        return step_call(step, GPUS, node=self.node, id=self.name, gpr_id=self.name, attempt=attempt, policy=policy, rdma=rdma)

    def poll(self, call: StepCall) -> StepProgress | None:
        """Returns None while it runs."""
        result = self.agent.run(call)
        return None if result.status is StepStatus.RUNNING else result

    def begun(self, call: StepCall) -> Object:
        """Its pod, once the node runs it or has it wait."""
        return wait_for("the pod of the check", lambda: self._polled(call, lambda: self.pod(call)), within_s=SOON_S)

    def ended(self, call: StepCall, *, within_s: float = SOON_S) -> StepProgress:
        return wait_for(f"{call.step} has ended", lambda: self.poll(call), within_s=within_s)

    def pod(self, call: StepCall) -> Object | None:
        found = self.pods()
        own = [pod for pod in found if pod["metadata"]["labels"]["egs.io/check-step"] == call.step]
        placed = [pod for pod in own if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Running"]
        return placed[-1] if placed else None

    def pods(self) -> list[Object]:
        return self.cluster.list("pods", namespace=NAMESPACE, selector=f"{CHECK_OF}={self.name}")

    def jobs(self) -> list[Object]:
        return self.cluster.list("jobs", namespace=NAMESPACE, selector=f"{CHECK_OF}={self.name}")

    def delete_jobs(self) -> None:
        self.cluster.delete("jobs", *(job["metadata"]["name"] for job in self.jobs()), namespace=NAMESPACE)

    def taint(self, *taints: str) -> None:
        read = [each.partition("=") for each in taints]
        spec = {"taints": [{"key": key, "value": value, "effect": "NoSchedule"} for key, _, value in read]}
        self.cluster.patch("node", self.node, {"spec": spec}, user=AGENT)

    def end(self, pod: Object, outcome: str, words: str = "") -> None:
        """Acts as its kubelet: the pod ends so, and leaves these words."""
        marks = {"annotations": {"egs.test/message": words, "egs.test/runs-for": "1ms"}, "labels": {"egs.test/outcome": outcome}}
        self.cluster.patch("pod", pod["metadata"]["name"], {"metadata": marks}, namespace=NAMESPACE)

    def passed(self, call: StepCall, words: str | None = None) -> StepProgress:
        """The whole of one attempt whose pod leaves these words."""
        pod = self.begun(call)
        self.end(pod, "pass", last_words(call.step, GPUS) if words is None else words)
        return self.ended(call)

    def _polled(self, call: StepCall, look: Callable[[], Object | None]) -> Object | None:
        self.poll(call)
        return look()


@pytest.fixture
def bench(cluster: Cluster, tenant: Tenant) -> Iterator[Bench]:
    api = Api(access_as_agent(cluster))
    made = Bench(cluster, api, tenant.node_name, Checks(api, image=IMAGE))
    manage(cluster, tenant.node_name)
    made.taint(f"{TAINT}=free")
    yield made
    made.delete_jobs()
    api.close()


def manage(cluster: Cluster, *nodes: str) -> None:
    for node in nodes:
        cluster.label("node", node, f"{MANAGED}=true")
        found = cluster.get("node", node)
        assert found is not None
        cluster.label("node", node, f"{NODE_UID}={found['metadata']['uid']}", user=AGENT)
    cluster.patch("bindguard", "nodes", {"spec": {"nodes": dict.fromkeys(nodes, "@0")}}, user=AGENT)


@pytest.mark.parametrize("step", [EntryStep.GPU_COUNT, EntryStep.GPU_HEALTH, EntryStep.NETWORK, ExitStep.GPU_IDLE, ExitStep.EXIT_NETWORK])
def test_a_healthy_node_passes_with_what_was_measured(step: str, bench: Bench) -> None:
    result = bench.passed(bench.call(step))

    assert (result.status, {each.verdict for each in result.results}) == (StepStatus.OK, {Verdict.PASS})


def test_the_first_check_of_a_node_tells_which_gpus_are_in_it(bench: Bench) -> None:
    """They are written down with the node, and replaced there once a check reads others."""
    bench.cluster.annotate("node", bench.node, f"{RECORDS}=", user=AGENT)
    bench.passed(bench.call(EntryStep.GPU_COUNT))
    first = bench.api.get(node_path(bench.node), Node)
    others = ("GPU-new", *GPUS[1:])
    bench.passed(bench.call(ExitStep.GPU_IDLE), last_words(ExitStep.GPU_IDLE, others))

    after = bench.api.get(node_path(bench.node), Node)

    assert uuids_by_index(stored_uuids(first), NODE_GPUS) == list(GPUS)
    assert uuids_by_index(stored_uuids(after), NODE_GPUS) == list(others)


def test_a_node_that_is_kept_for_somebody_by_a_taint_of_its_cluster_is_checked_all_the_same(bench: Bench) -> None:
    bench.taint(f"{TAINT}=free", "dedicated=ml")

    assert bench.passed(bench.call(EntryStep.GPU_HEALTH)).status is StepStatus.OK


def test_each_gpu_has_its_own_results_and_the_sick_one_fails_the_check(bench: Bench) -> None:
    words = {"gpus": {"text": gpu_lines(GPUS, ecc_uncorrected=2)}, "rows": {"text": row_lines(GPUS)}}

    result = bench.passed(bench.call(EntryStep.GPU_HEALTH), json.dumps({"commands": words, "xids": {"uptime_s": 9.0}}))

    assert (result.status, result.blames_node) == (StepStatus.FAILED, True)
    assert {each.gpu for each in result.results} == set(GPUS)
    (bad,) = [each for each in result.results if each.verdict is Verdict.FAIL]
    assert (bad.check, bad.gpu, bad.value, bad.threshold) == ("ecc_uncorrected", GPUS[-1], 2.0, 0.0)
    assert "ECC errors not corrected since the last reset: 2 (at most 0)" in result.log


def test_an_xid_of_a_gpu_fails_the_entry_of_its_node(bench: Bench) -> None:
    """An Xid of a program does not fail it."""
    line = "<4>[ {}] NVRM: Xid (PCI:0000:{}:00): {}, pid='<unknown>', name=<unknown>, what happened"
    log = "\n".join([line.format("100.5", "11", 79), line.format("101.5", "10", 31)])
    words = {"gpus": {"text": gpu_lines(GPUS)}, "rows": {"text": row_lines(GPUS)}}

    result = bench.passed(bench.call(EntryStep.GPU_HEALTH), json.dumps({"commands": words, "xids": {"text": log, "uptime_s": 200.0}}))

    assert (result.status, result.blames_node) == (StepStatus.FAILED, True)
    (bad,) = [each for each in result.results if each.verdict is Verdict.FAIL]
    assert (bad.check, bad.gpu, bad.value, bad.text) == ("xid_errors", GPUS[1], 1.0, "Xid 79: reboot the node")


def test_a_process_that_is_left_on_a_gpu_holds_the_exit_until_it_is_gone(bench: Bench) -> None:
    """Tried again, as an exit tries it until it passes."""
    busy = {"gpus": {"text": gpu_lines(GPUS, used_mib=70_000)}, "processes": {"text": f"{GPUS[-1]}, 4711\n"}}

    held = bench.passed(bench.call(ExitStep.GPU_IDLE), json.dumps({"commands": busy}))

    assert (held.status, held.blames_node) == (StepStatus.FAILED, True)
    bad = [(each.check, each.gpu, each.value) for each in held.results if each.verdict is Verdict.FAIL]
    assert bad == [("gpu_processes", GPUS[-1], 1.0), ("gpu_memory_used", GPUS[-1], 70_000.0)]
    assert bench.passed(bench.call(ExitStep.GPU_IDLE, attempt=2)).status is StepStatus.OK


def test_the_policy_of_the_hub_says_what_is_good_and_which_image_runs(bench: Bench) -> None:
    policy = CheckPolicy(limits={"gpu_temperature": 30.0}, images={"probe": "egs.test/other"})
    call = bench.call(EntryStep.GPU_HEALTH, policy=policy)

    result = bench.passed(call)

    assert result.status is StepStatus.FAILED
    assert {each.threshold for each in result.results if each.check == "gpu_temperature"} == {30.0}
    assert {container["image"] for pod in bench.pods() for container in pod["spec"]["containers"]} == {"egs.test/other"}


def test_a_check_has_the_gpus_of_the_box_on_its_node_and_no_rights(bench: Bench) -> None:
    """The node is fenced off from everybody else."""
    spec = bench.begun(bench.call(EntryStep.GPU_HEALTH))["spec"]

    (container,) = spec["containers"]
    assert (spec["nodeName"], spec["automountServiceAccountToken"]) == (bench.node, False)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(NODE_GPUS)
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYSLOG"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert not any(key in spec for key in ("hostPID", "hostNetwork", "hostIPC"))


@pytest.fixture
def runtime_class(cluster: Cluster) -> Iterator[str]:
    """Makes one as the GPU operator does where NVIDIA's runtime is not the default."""
    cluster.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"})
    yield "nvidia"
    cluster.delete("runtimeclass", "nvidia")


def test_a_check_of_gpus_runs_in_the_runtime_class_of_the_cluster(bench: Bench, runtime_class: str) -> None:
    bench.agent = Checks(bench.api, image=IMAGE, runtime_class=runtime_class, pull_secret="registry.example")
    call = bench.call(EntryStep.GPU_HEALTH)

    spec = bench.begun(call)["spec"]

    assert (spec["runtimeClassName"], spec["imagePullSecrets"]) == ("nvidia", [{"name": "registry.example"}])
    assert bench.passed(call).status is StepStatus.OK
    network = bench.call(EntryStep.NETWORK)
    assert "runtimeClassName" not in bench.begun(network)["spec"]


def test_a_runtime_class_that_the_cluster_has_not_is_told_and_no_node_is_blamed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "GPU_S", 4)
    call = bench.call(EntryStep.GPU_COUNT, policy=CheckPolicy(runtime_class="kata"))

    result = bench.ended(call)

    assert (result.status, result.blames_node) == (StepStatus.FAILED, False)
    assert "no pod was made for it, see the events of Job egs-check-" in result.log
    assert "is there a RuntimeClass kata?" in result.log


def test_a_check_that_breaks_off_says_its_last_words(bench: Bench) -> None:
    call = bench.call(EntryStep.GPU_COUNT)
    bench.end(bench.begun(call), "fail", "Traceback: no module named json")

    result = bench.ended(call)

    assert (result.status, result.blames_node) == (StepStatus.FAILED, True)
    assert "broke off with exit code 1: Traceback: no module named json" in result.log


def test_a_check_that_is_killed_says_by_what(bench: Bench) -> None:
    call = bench.call(EntryStep.GPU_COUNT)
    bench.end(bench.begun(call), "crash")

    assert "OOMKilled, exit code 137" in bench.ended(call).log


def test_a_check_that_hangs_fails_at_its_deadline(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "GPU_S", 4)
    call = bench.call(EntryStep.GPU_COUNT)
    bench.begun(call)

    result = bench.ended(call)

    assert (result.status, result.blames_node) == (StepStatus.FAILED, True)
    assert "did not end within 4 s" in result.log


def test_a_check_whose_job_is_deleted_by_hand_fails_and_blames_no_node(bench: Bench) -> None:
    call = bench.call(EntryStep.GPU_COUNT)
    bench.begun(call)
    bench.delete_jobs()

    result = bench.ended(call)

    assert (result.status, result.blames_node) == (StepStatus.FAILED, False)
    assert "deleted by somebody" in result.log


def test_an_image_that_cannot_be_pulled_fails_the_check_and_blames_no_node(bench: Bench) -> None:
    call = bench.call(EntryStep.GPU_COUNT, policy=CheckPolicy(images={"probe": "egs.test/none"}))

    result = bench.ended(call)

    assert (result.status, result.blames_node) == (StepStatus.FAILED, False)
    assert 'the image egs.test/none: ImagePullBackOff: Back-off pulling image "egs.test/none"' in result.log
    wait_for("its pod is gone", lambda: not bench.pods(), within_s=SOON_S)


def test_a_check_on_a_node_that_vanishes_fails(bench: Bench) -> None:
    call = bench.call(EntryStep.GPU_COUNT)
    bench.begun(call)
    bench.cluster.delete("node", bench.node)

    result = bench.ended(call, within_s=GONE_S)

    assert (result.status, result.blames_node) == (StepStatus.FAILED, True)
    assert "taken away" in result.log or "ended" in result.log


def test_an_agent_that_is_restarted_goes_on_with_the_same_check(bench: Bench) -> None:
    call = bench.call(EntryStep.GPU_COUNT)
    pod = bench.begun(call)
    bench.restart_agent()
    assert bench.poll(call) is None
    bench.end(pod, "pass", last_words(call.step, GPUS))
    assert bench.ended(call).status is StepStatus.OK

    bench.restart_agent()
    again = bench.ended(call)

    assert again.status is StepStatus.OK
    assert len(bench.jobs()) == len(bench.pods()) == 1


def test_another_attempt_waits_until_the_pod_of_the_last_one_is_gone(bench: Bench) -> None:
    """A restart in between, as when the first was given up for lost."""
    first, second = bench.call(EntryStep.GPU_COUNT), bench.call(EntryStep.GPU_COUNT, attempt=2)
    pod = bench.begun(first)["metadata"]["name"]
    bench.cluster.annotate("pod", pod, "egs.test/stops-for=2s", namespace=NAMESPACE)
    bench.restart_agent()
    at_work: list[int] = []

    def look() -> Object | None:
        bench.poll(second)
        running = [each for each in bench.pods() if each["status"]["phase"] == "Running"]
        at_work.append(len(running))
        return next((each for each in running if each["metadata"]["name"] != pod), None)

    wait_for("the second attempt runs", look, within_s=SOON_S)

    assert max(at_work) == 1
    assert len(bench.jobs()) == 1


def test_a_pod_that_never_ends_fails_the_attempts_behind_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "STUCK_S", 2.0)
    pod = bench.begun(bench.call(EntryStep.GPU_COUNT))["metadata"]["name"]
    bench.cluster.label("pod", pod, "egs.test/stops=never", namespace=NAMESPACE)

    result = bench.ended(bench.call(EntryStep.GPU_COUNT, attempt=2))

    assert (result.status, result.blames_node) == (StepStatus.FAILED, True)
    assert "does not end" in result.log
    bench.cluster.delete("pod", pod, namespace=NAMESPACE, gracePeriodSeconds=0)


@pytest.mark.parametrize("words", ["", "no document", '{"commands": {"gpus": {"error": "nvidia-smi: exit code 9: no driver"}}}', "[1]"])
def test_words_that_tell_no_result_fail_the_check(words: str, bench: Bench) -> None:
    """Never a pass by mistake."""
    result = bench.passed(bench.call(EntryStep.GPU_COUNT), words)

    assert result.status is StepStatus.FAILED
    assert "could not be measured" in result.log


@pytest.fixture
def volume(cluster: Cluster, bench: Bench) -> Iterator[None]:
    """A class of volumes that waits for its first consumer, with one volume."""
    name = f"egs-test-{bench.name[:8]}"
    cluster.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": STORAGE_CLASS},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": STORAGE_CLASS,
                "hostPath": {"path": "/none"},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        },
    )
    yield
    cluster.delete("persistentvolume", name)


@pytest.mark.usefixtures("volume")
def test_storage_is_a_volume_of_the_policy_s_class_that_is_gone_with_the_check(bench: Bench) -> None:
    call = bench.call(EntryStep.STORAGE, policy=CheckPolicy(storage_class=STORAGE_CLASS))
    pod = bench.begun(call)
    claims = bench.cluster.list("persistentvolumeclaims", namespace=NAMESPACE)
    assert [claim["status"]["phase"] for claim in claims if claim["metadata"]["name"].startswith(pod["metadata"]["name"])] == ["Bound"]
    bench.end(pod, "pass", last_words(call.step, GPUS))

    result = bench.ended(call)

    measured = {each.check: each.value for each in result.results}
    assert (result.status, measured["volume_write"], measured["volume_content"]) == (StepStatus.OK, 800.0, 1.0)
    assert measured["volume_wait"] is not None
    bench.passed(bench.call(EntryStep.NETWORK))
    wait_for("the claim is gone", lambda: not _claims_of(bench, pod), within_s=SOON_S)


def _claims_of(bench: Bench, pod: Object) -> list[Object]:
    claims = bench.cluster.list("persistentvolumeclaims", namespace=NAMESPACE)
    return [claim for claim in claims if claim["metadata"]["name"].startswith(pod["metadata"]["name"])]


def test_a_cluster_that_makes_no_volumes_is_told_so_and_no_node_is_blamed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "VOLUME_S", 5)

    result = bench.ended(bench.call(EntryStep.STORAGE, policy=CheckPolicy(storage_class="egs-test-missing")))

    assert (result.status, result.blames_node) == (StepStatus.FAILED, False)
    assert "unbound immediate PersistentVolumeClaims" in result.log


def test_rdma_links_are_judged_by_rate_and_subnet(bench: Bench) -> None:
    policy = CheckPolicy(rdma_subnet="fe80:0000:0000:0000")
    assert bench.passed(bench.call(EntryStep.RDMA, rdma=True, policy=policy)).status is StepStatus.OK

    foreign = bench.passed(bench.call(EntryStep.RDMA, rdma=True, attempt=2, policy=CheckPolicy(rdma_subnet="fe80:0000:0000:0001")))

    assert [each.check for each in foreign.results if each.verdict is Verdict.FAIL] == ["rdma_subnet"]


def test_nccl_runs_in_the_image_of_the_policy_and_is_judged_by_the_model_of_the_gpus(bench: Bench) -> None:
    policy = CheckPolicy(images={"nccl": "egs.test/nccl"})
    assert bench.passed(bench.call(EntryStep.NCCL, policy=policy)).status is StepStatus.OK

    slow = bench.passed(bench.call(EntryStep.NCCL, attempt=2, policy=policy), json.dumps(nccl_report(300.0)))

    assert [(each.check, each.value, each.threshold) for each in slow.results if each.verdict is Verdict.FAIL] == [
        ("nccl_bandwidth", 300.0, 460.0)
    ]


@pytest.mark.parametrize("step", [EntryStep.RDMA, EntryStep.NCCL, EntryStep.GANG_NETWORK])
def test_what_cannot_be_measured_there_is_skipped_in_so_many_words(step: str, bench: Bench) -> None:
    result = bench.ended(bench.call(step))

    assert (result.status, [each.verdict for each in result.results]) == (StepStatus.OK, [Verdict.SKIP])
    assert not bench.jobs()


def test_a_node_that_is_not_ready_fails_at_once(bench: Bench) -> None:
    call = bench.call(EntryStep.NODE_READY)
    assert bench.agent.run(call).status is StepStatus.OK

    down = msgspec.structs.replace(call.node, view=msgspec.structs.replace(call.node.view, ready=False))

    assert bench.agent.run(msgspec.structs.replace(call, node=down)).status is StepStatus.FAILED


def test_a_node_is_clean_when_no_mark_and_no_pod_of_the_box_is_left(bench: Bench, tenant: Tenant) -> None:
    call = bench.call(ExitStep.NODE_CLEAN)
    bench.cluster.label("node", bench.node, f"{box_label(bench.name)}=1", f"{NODE_SLICE}=red", user=AGENT)
    bench.taint(f"{TAINT}={box_of(bench.name, 1)}")
    tenant.run("left", labels={"egs.io/gpr": bench.name}, tolerations=[{"operator": "Exists"}])
    tenant.pod_in("left", "Running")

    dirty = bench.agent.run(call)

    assert dirty.status is StepStatus.FAILED
    assert [each.value for each in dirty.results] == [1.0, 2.0]
    assert f"{tenant.name}/left" in dirty.log

    tenant.end("left")
    bench.cluster.label("node", bench.node, f"{box_label(bench.name)}-", f"{NODE_SLICE}-", user=AGENT)
    bench.taint(f"{TAINT}=free")
    wait_for("the pod is gone", lambda: tenant.pod("left") is None, within_s=SOON_S)
    assert bench.agent.run(call).status is StepStatus.OK


def test_a_volume_of_the_workspace_that_is_still_on_the_node_holds_it_though_its_claim_is_gone(bench: Bench, tenant: Tenant) -> None:
    call = bench.call(ExitStep.VOLUMES)
    call = msgspec.structs.replace(call, assignment=msgspec.structs.replace(call.assignment, namespaces=(tenant.name,)))
    name = f"vol-{tenant.name}"
    volume = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/none"},
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": tenant.name, "name": "data"},
    }
    attachment = {"attacher": "egs.test", "nodeName": bench.node, "source": {"persistentVolumeName": name}}
    about = {"name": f"att-{tenant.name}"}
    bench.cluster.apply(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
        {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": about, "spec": attachment},
    )

    held = bench.ended(call)

    assert (held.status, held.results[0].value, held.results[0].text) == (StepStatus.FAILED, 1.0, name)
    bench.cluster.delete("volumeattachment", about["name"], waits=True)
    bench.cluster.delete("persistentvolume", name)
    assert bench.ended(call).status is StepStatus.OK


@pytest.fixture
def box(cluster: Cluster, bench: Bench) -> Iterator[tuple[str, ...]]:
    """Returns the nodes of a box of three; the bench's node is one of them."""
    group = NodeGroup(name="h100", count=2, node_type="hgx-h100", gpu_model="H100", memory_gib=80, gpus=NODE_GPUS)
    more = nodes_of(SimulatedFleet(name=f"box-{bench.name[:8]}", groups=(group,), zone="zone-1"))
    names = [node["metadata"]["name"] for node in more]
    cluster.create(*more)
    manage(cluster, *names)
    yield tuple(sorted([bench.node, *names]))
    cluster.delete("node", *names)


def test_the_nodes_of_a_box_get_a_pod_each_of_one_job_by_names_that_they_find(bench: Bench, box: tuple[str, ...]) -> None:
    """The names are those that the headless Service of the installation gives them: in its EndpointSlice."""
    calls = [_for_node(bench.call(EntryStep.GANG_NETWORK), node, box) for node in box]

    def running() -> list[Object]:
        assert all(bench.poll(call) is None for call in calls)
        return [pod for pod in gang_pods(bench) if pod["status"]["phase"] == "Running"]

    pods = wait_for("a pod on each", lambda: found if len(found := running()) == 3 else None, within_s=SOON_S)
    for number, pod in enumerate(pods):
        ips = {"podIP": f"10.9.0.{number + 1}", "podIPs": [{"ip": f"10.9.0.{number + 1}"}]}
        bench.cluster.patch("pod", pod["metadata"]["name"], {"status": ips}, namespace=NAMESPACE, sub="status", type_=STRATEGIC)
    (job,) = {pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] for pod in pods}
    expected = {f"{job}-{index}" for index in range(3)}
    wait_for("their names", lambda: expected <= _hostnames(bench.cluster), within_s=SOON_S)
    sick = pods[0]["spec"]["nodeName"]
    for pod in pods:
        bench.end(pod, "pass", _words_without(pod, pods[0]))

    results = {call.node.view.name: bench.ended(call) for call in calls}

    assert {pod["spec"]["nodeName"] for pod in pods} == set(box)
    assert {name for name, result in results.items() if result.status is StepStatus.FAILED} == {sick}
    other = next(result for name, result in results.items() if name != sick)
    assert f"to {sick}: timed out" in other.log
    assert len(gang_pods(bench)) == 3


def test_a_spare_is_measured_against_nodes_that_have_no_room_left(bench: Bench, tenant: Tenant, box: tuple[str, ...]) -> None:
    """The workspace's pods have all of their processors: a pod that asked for any would wait, or take somebody's place."""
    at_work = tuple(name for name in box if name != bench.node)
    for node in at_work:
        container = {"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": "128"}}}
        about = {"name": f"fills-{node}", "namespace": tenant.name}
        bench.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": {"nodeName": node, "containers": [container]}})
        tenant.pod_in(about["name"], "Running")
    call = msgspec.structs.replace(_for_node(bench.call(EntryStep.GANG_NETWORK), bench.node, box), at_work=at_work)

    def running() -> list[Object]:
        assert bench.poll(call) is None
        return [pod for pod in gang_pods(bench) if pod["status"]["phase"] == "Running"]

    pods = wait_for("a pod on each", lambda: found if len(found := running()) == 3 else None, within_s=SOON_S)
    for pod in pods:
        bench.end(pod, "pass", gang_words(int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]), 3))

    result = bench.ended(call)

    assert (result.status, {pod["spec"]["nodeName"] for pod in pods}) == (StepStatus.OK, set(box))
    assert {each.check: each.value for each in result.results}["gang_peers"] == 2.0
    assert [tenant.pod_in(f"fills-{node}", "Running")["spec"]["nodeName"] for node in at_work] == list(at_work)


def _for_node(call: StepCall, node: str, box: tuple[str, ...]) -> StepCall:
    assignment = msgspec.structs.replace(call.assignment, id=f"{call.assignment.id}-{node}", node=node, gang_count=len(box))
    state = msgspec.structs.replace(call.node, view=msgspec.structs.replace(call.node.view, name=node))
    return msgspec.structs.replace(call, assignment=assignment, node=state, gang=box)


def gang_pods(bench: Bench) -> list[Object]:
    pods = bench.cluster.list("pods", namespace=NAMESPACE)
    return [pod for pod in pods if pod["metadata"]["labels"].get(CHECK_OF, "").startswith(bench.name)]


def _words_without(pod: Object, sick: Object) -> str:
    """Returns what it says where that pod reaches none, and none reaches it."""
    own, lost = (int(each["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]) for each in (pod, sick))
    said = json.loads(gang_words(own, 3))
    said["gang"]["peers"] = {
        peer: {"error": "timed out"} if lost in (own, int(peer)) else reach for peer, reach in said["gang"]["peers"].items()
    }
    return json.dumps(said)


def _hostnames(cluster: Cluster) -> set[str]:
    """Returns the host names that the cluster's DNS has for the Service."""
    slices = cluster.list("endpointslices", namespace=NAMESPACE)
    own = [each for each in slices if each["metadata"]["labels"]["kubernetes.io/service-name"] == CHECK_SERVICE]
    return {endpoint["hostname"] for each in own for endpoint in each["endpoints"] or () if "hostname" in endpoint}


def test_many_checks_at_once_are_read_in_few_calls(bench: Bench) -> None:
    """One view of all Jobs serves all polls of half a second."""
    calls: list[str] = []
    real = bench.api.get

    def counted(path: str, type_: type[object], **params: str | int | bool) -> object:
        calls.append(path)
        return real(path, type_, **params)

    bench.api.get = counted  # type: ignore[method-assign, assignment]
    call = bench.call(EntryStep.GPU_COUNT)
    began = time.monotonic()
    for _ in range(20):
        bench.poll(call)

    assert len(calls) <= 2 * (1 + (time.monotonic() - began) // jobs.VIEW_S)
