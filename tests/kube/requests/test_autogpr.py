"""GPU pods that wait get a request by their namespace's template: one for each workload, given back when that is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from protocol import cluster_names
from protocol.tenancy.cluster_requests import ClusterRequestSpec
from tests.kube.cluster import Cluster, KubeError, Object
from tests.kube.fleet_nodes import nodes_of
from tests.kube.requests.counter import Counter, request, template
from tests.kube.world import container, pod
from worker_agent.cluster.fleet import NodeGroup, SimulatedFleet
from worker_agent.kube.api.custom import Custom
from worker_agent.kube.api.objects import Node, Owner, Pod
from worker_agent.kube.pods.workloads import WaitingWorkload, Workloads, size_of
from worker_agent.kube.requests import automatic, cleanup
from worker_agent.kube.requests.automatic import AutomaticInputs, AutomaticRequests, spec_for

# Each day: tests/agent/requests, and tests/e2e/test_kubernetes.py, whose pods wait
pytestmark = pytest.mark.rotates

AUTO: Object = {"auto": True, "shape": "H100-80GB", "duration": "2h", "priority": 60}
FLEET = SimulatedFleet(name="seen", groups=(NodeGroup(name="gpu", count=1, node_type="hgx", gpu_model="H100", memory_gib=80, gpus=8),))
JOB_SET = "v1alpha2"  # the version that its operator serves
BODY = nodes_of(FLEET)[0]
NODE = msgspec.convert({**BODY, "metadata": {**BODY["metadata"], "uid": "node-1"}}, Node)


@pytest.fixture
def counter(cluster: Cluster) -> Iterator[Counter]:
    made = Counter(cluster, nodes=(NODE,))
    made.cluster.wait_for_account(made.namespace)
    yield made
    made.leave()


def deployment(name: str = "serve", *, replicas: int = 3, gpus: int = 2) -> Object:
    labels = {"app": name}
    spec = {"metadata": {"labels": labels}, "spec": {"containers": [container(gpus)]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": spec},
    }


def job(name: str = "train", *, pods: int = 2, gpus: int = 8) -> Object:
    spec = {"restartPolicy": "Never", "containers": [container(gpus)]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completions": pods, "parallelism": pods, "template": {"spec": spec}},
    }


def requests(counter: Counter) -> list[Object]:
    return counter.cluster.list("gpr", namespace=counter.namespace)


def the_request(counter: Counter, count: int = 1) -> Object:
    found = counter.until("the request", lambda: len(found := requests(counter)) >= count and found)
    assert len(found) == count
    return dict(sorted(found, key=lambda each: str(each["metadata"]["name"]))[-1])


def test_many_pods_of_a_deployment_get_one_request_that_goes_with_it(counter: Counter) -> None:
    counter.make(template(**AUTO), deployment(replicas=5, gpus=4))

    made = the_request(counter)

    uid = counter.found("serve", "deployment")["metadata"]["uid"]
    assert made["metadata"]["name"] == f"serve-{uid[:8]}"
    assert made["metadata"]["annotations"][cluster_names.AUTO] == "true"
    assert made["spec"] == {"shape": "H100-80GB", "duration": "2h", "priority": 60, "nodes": 3}
    assert [(owner["kind"], owner["uid"]) for owner in made["metadata"]["ownerReferences"]] == [("Deployment", uid)]
    counter.until("the claim", lambda: counter.claims(made["metadata"]["name"]))
    (claim,) = counter.claims(made["metadata"]["name"])
    assert (claim.is_auto, claim.template) == (True, "")
    assert claim.spec == ClusterRequestSpec(shape="H100-80GB", duration="2h", priority=60, nodes=3)
    counter.for_a_while(3.0)
    assert len(requests(counter)) == 1

    counter.delete("deployment", "serve")

    counter.until("that it is gone", lambda: [each for each in counter.told if each.is_gone and each.uid == claim.uid])


def test_where_the_namespace_has_no_template_that_says_auto_the_hub_s_counts_and_else_its_own(counter: Counter) -> None:
    """This also holds for pods that waited before the hub had one."""
    counter.make(template("no-auto", shape="A100-80GB", duration="9h"), deployment("first", replicas=2, gpus=8))
    counter.for_a_while(4.0)
    assert requests(counter) == []

    counter.auto = ClusterRequestSpec(shape="H100-80GB", duration="3h", priority=70, evictable=False)

    made = the_request(counter)
    assert made["spec"] == {"shape": "H100-80GB", "duration": "3h", "priority": 70, "evictable": False, "nodes": 2}
    counter.until("the claim", lambda: counter.claims(made["metadata"]["name"]))
    (claim,) = counter.claims(made["metadata"]["name"])
    assert (claim.is_auto, claim.template) == (True, "of-the-hub")
    assert claim.spec == ClusterRequestSpec(shape="H100-80GB", duration="3h", priority=70, evictable=False, nodes=2)
    counter.for_a_while(3.0)
    assert len(requests(counter)) == 1

    counter.make(template(**AUTO), deployment("second", replicas=1, gpus=8))
    assert the_request(counter, 2)["spec"] == {"shape": "H100-80GB", "duration": "2h", "priority": 60, "nodes": 1}


def test_a_namespace_that_is_not_bound_gets_nothing_by_the_hub_s_template(counter: Counter) -> None:
    counter.auto = ClusterRequestSpec(shape="H100-80GB", duration="3h")
    counter.bound[counter.namespace] = ""
    counter.make(deployment())
    counter.for_a_while(4.0)
    assert requests(counter) == []

    counter.bound[counter.namespace] = counter.slice_id

    assert the_request(counter)["spec"]["duration"] == "3h"


def test_each_workload_has_its_own_and_a_pod_without_an_owner_is_one(counter: Counter) -> None:
    alone = container(resources={"limits": {cluster_names.GPU: "3", "cpu": "1", "memory": "1Gi"}})
    counter.make(template(**AUTO), job("train", pods=2, gpus=8), pod("alone", containers=[alone]))

    counter.until("two requests", lambda: len(requests(counter)) == 2)

    specs = {made["metadata"]["ownerReferences"][0]["kind"]: made["spec"] for made in requests(counter)}
    assert specs["Job"]["nodes"] == 2
    assert (specs["Pod"]["nodes"], specs["Pod"]["gpusPerNode"]) == (1, 3)


@pytest.fixture
def kinds(cluster: Cluster) -> None:
    """Two kinds of others that own what owns pods, as far as that goes. They stay: other tests may use them meanwhile."""
    wanted = owner_kind("jobset.x-k8s.io", "JobSet", JOB_SET), owner_kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
    # The real operator of JobSets may have brought its own.
    cluster.make_kinds(*(kind for kind in wanted if cluster.get("crd", kind["metadata"]["name"]) is None))


def owner_kind(group: str, kind: str, version: str = "v1") -> Object:
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": schema}],
        },
    }


def job_set(name: str) -> Object:
    """Returns one whose jobs the test makes itself."""
    return {"apiVersion": f"jobset.x-k8s.io/{JOB_SET}", "kind": "JobSet", "metadata": {"name": name}, "spec": {"suspend": True}}


def owned(body: Object, by: Object) -> Object:
    meta = by["metadata"]
    owner = {"apiVersion": by["apiVersion"], "kind": by["kind"], "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}


def stateful(name: str, *, replicas: int = 1, gpus: int = 8) -> Object:
    body = deployment(name, replicas=replicas, gpus=gpus)
    return {**body, "kind": "StatefulSet", "spec": {**body["spec"], "serviceName": name}}


def test_all_jobs_of_a_jobset_are_one_workload(counter: Counter, kinds: None) -> None:
    """Otherwise its leader would wait for workers that wait for its box to be over."""
    counter.make(template(**AUTO), job_set("llama"))
    jobset = counter.found("llama", "jobset")

    counter.make(owned(job("llama-leader-0", pods=1), jobset), owned(job("llama-worker-0", pods=3), jobset))

    made = the_request(counter)
    assert made["spec"]["nodes"] == 4
    assert [(owner["kind"], owner["uid"]) for owner in made["metadata"]["ownerReferences"]] == [("JobSet", jobset["metadata"]["uid"])]
    counter.for_a_while(3.0)
    assert len(requests(counter)) == 1


def test_the_groups_of_a_leaderworkerset_are_one_workload_by_way_of_their_leaders(counter: Counter, kinds: None) -> None:
    counter.make(template(**AUTO), {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "vllm"}})
    top = counter.found("vllm", "leaderworkerset")

    counter.make(owned(stateful("vllm"), top))
    leader = counter.until("the leader", lambda: counter.cluster.get("pod", "vllm-0", namespace=counter.namespace))
    counter.make(owned(stateful("vllm-0"), {"apiVersion": "v1", "kind": "Pod", **leader}))

    made = the_request(counter)
    assert made["spec"]["nodes"] == 2
    assert [owner["uid"] for owner in made["metadata"]["ownerReferences"]] == [top["metadata"]["uid"]]


def test_each_run_of_a_cronjob_is_a_workload_of_its_own(counter: Counter) -> None:
    counter.make(template(**AUTO))
    counter.make(cronjob("nightly"))

    counter.kubectl("create", "job", "nightly-1", "--from=cronjob/nightly")

    (owner,) = the_request(counter)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", "nightly-1")


def cronjob(name: str) -> Object:
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job(name)["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": spec}


def test_an_owner_s_name_is_no_way_out_of_the_path(counter: Counter) -> None:
    """People may write any name."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "../../../../../api/v1/secrets?x=", "uid": "u", "controller": True}
    counter.make(template(**AUTO), pod("odd", 1, metadata={"ownerReferences": [owner]}), pod("alone", 1))

    counter.until("the other's", lambda: [made for made in requests(counter) if made["metadata"]["name"].startswith("alone")])


def test_pods_that_come_later_get_no_second_one_also_from_an_agent_that_starts_anew(counter: Counter) -> None:
    counter.make(template(**AUTO), deployment(replicas=1))
    the_request(counter)
    counter.scale("serve", 4)
    counter.for_a_while(3.0)

    counter.stop()
    counter.start()
    counter.for_a_while(4.0)

    assert len(requests(counter)) == 1


def test_without_a_template_that_says_auto_none_is_made(counter: Counter) -> None:
    counter.make(template(shape="H100-80GB", duration="2h"), pod("alone", 1), pod("cpu"))

    counter.for_a_while(4.0)

    assert requests(counter) == []


def test_of_several_templates_that_say_auto_the_first_by_name_counts_and_the_others_say_so(counter: Counter) -> None:
    counter.make(template("b", **AUTO, rdma=True), template("a", **AUTO), pod("alone", 1))

    made = the_request(counter)

    assert "rdma" not in made["spec"]
    assert counter.condition("Auto", "a", "gprt") == ("True", "First")
    counter.until("the other's word", lambda: counter.condition("Auto", "b", "gprt") == ("False", "NotFirst"))
    counter.delete("gprt", "a")
    counter.until("its turn", lambda: counter.condition("Auto", "b", "gprt") == ("True", "First"))
    counter.patch("gprt", "b", {"spec": {"auto": False}})
    counter.until("no word", lambda: counter.condition("Auto", "b", "gprt") == ("", ""))


def test_a_request_that_people_made_serves_the_pods_too(counter: Counter) -> None:
    """It serves them if the largest pod fits into it."""
    counter.make(template(**AUTO), request("small", shape="H100-80GB", nodes=1, gpusPerNode=1, duration="1h"))
    counter.make(request("mine", shape="H100-80GB", nodes=1, duration="1h"), pod("alone", 2))

    counter.until("that it is known", lambda: list(counter.agent._automatic.waits_for.values()) == ["mine"])
    counter.for_a_while(3.0)
    assert {made["metadata"]["name"] for made in requests(counter)} == {"small", "mine"}

    counter.delete("gpr", "mine")

    counter.until("one of its own", lambda: any(made["metadata"].get("labels") for made in requests(counter)))


def test_it_is_given_back_when_its_workload_has_no_pods_any_more(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "IDLE_S", 2.0)
    counter.make(template(**AUTO), deployment(replicas=1))
    name = the_request(counter)["metadata"]["name"]
    counter.until("its claim", lambda: counter.claims(name))
    counter.state(name, state="ACTIVE", position=None)
    counter.until_condition("Provisioned", "True", "Provisioned", name)
    counter.for_a_while(3.0)
    assert "earlyRelease" not in counter.found(name)["spec"]

    counter.scale("serve", 0)

    counter.until("that it is given back", lambda: counter.found(name)["spec"].get("earlyRelease"))
    counter.until_condition("Finished", "True", "Canceled", name)
    assert counter.claims(name)[-1].spec.early_release


def neighbor_in(counter: Counter, name: str) -> Pod:
    """A pod of another workload that was let into the box of this request; the agent sees it from now on."""
    gpr_id = counter.states[counter.uid(name)].gpr_id
    body = {**pod("neighbor", 1), "status": {"phase": "Running"}}
    body["metadata"] |= {"uid": "neighbor-1", "labels": {cluster_names.POD_GPR: gpr_id}}
    body["spec"]["nodeName"] = "node-1"
    seen = msgspec.convert(body, Pod)
    counter.others = [seen]
    return seen


def test_it_is_not_given_back_while_pods_of_another_workload_are_in_its_box(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "IDLE_S", 1.0)
    counter.make(template(**AUTO), deployment(replicas=1))
    name = the_request(counter)["metadata"]["name"]
    counter.until("its claim", lambda: counter.claims(name))
    counter.state(name, state="ACTIVE", position=None)
    counter.until_condition("Provisioned", "True", "Provisioned", name)
    neighbor_in(counter, name)

    counter.scale("serve", 0)
    counter.for_a_while(4.0)
    assert "earlyRelease" not in counter.found(name)["spec"]

    counter.others.clear()
    counter.until("that it is given back", lambda: counter.found(name)["spec"].get("earlyRelease"))


def test_when_its_workload_is_deleted_the_box_stays_for_the_pods_of_another_that_are_in_it(counter: Counter) -> None:
    counter.make(template(**AUTO), deployment(replicas=1))
    name = the_request(counter)["metadata"]["name"]
    counter.until("its claim", lambda: counter.claims(name))
    counter.state(name, state="ACTIVE", position=None)
    neighbor_in(counter, name)

    counter.delete("deployment", "serve")
    counter.until("that it is cleared away", lambda: not requests(counter))
    counter.for_a_while(4.0)
    assert not [each for each in counter.told if each.is_gone]

    counter.others.clear()
    counter.until("that it is told", lambda: [each for each in counter.told if each.is_gone])


def test_a_workload_that_was_scaled_to_zero_and_back_gets_another(counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its pods were there again before the first was over."""
    monkeypatch.setattr(automatic, "IDLE_S", 1.0)
    monkeypatch.setattr(automatic, "AGAIN_S", 1.0)
    counter.make(template(**AUTO), deployment(replicas=1))
    first = the_request(counter)["metadata"]["name"]
    counter.until("its claim", lambda: counter.claims(first))
    counter.scale("serve", 0)
    counter.until("that it is given back", lambda: counter.found(first)["spec"].get("earlyRelease"))

    counter.is_away = True
    counter.scale("serve", 1)
    counter.for_a_while(2.0)
    counter.is_away = False

    counter.until_condition("Finished", "True", "Canceled", first)
    assert the_request(counter, 2)["metadata"]["name"] == f"{first}-2"


def test_when_its_time_is_over_pods_that_wait_on_get_another(counter: Counter) -> None:
    counter.make(template(**AUTO), deployment(replicas=1))
    first = the_request(counter)["metadata"]["name"]
    counter.until("its claim", lambda: counter.claims(first))

    counter.state(first, state="COMPLETED", is_ended=True, position=None)
    counter.agent._automatic._not_before_mono.clear()

    counter.until_condition("Finished", "True", "Completed", first)
    assert the_request(counter, 2)["metadata"]["name"] == f"{first}-2"


def test_when_people_withdrew_it_only_new_pods_get_another(counter: Counter) -> None:
    counter.make(template(**AUTO), deployment(replicas=1))
    first = the_request(counter)["metadata"]["name"]
    counter.until("its claim", lambda: counter.claims(first))

    counter.state(first, state="CANCELED", is_ended=True, position=None)
    counter.agent._automatic._not_before_mono.clear()
    counter.for_a_while(4.0)
    assert len(requests(counter)) == 1

    counter.scale("serve", 2)

    the_request(counter, 2)


def test_some_time_after_its_end_it_is_deleted_and_the_hub_told_nothing_but_one_of_people_stays(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its box was given back, too."""
    monkeypatch.setattr(cleanup, "EVERY_S", 0.5)
    monkeypatch.setattr(automatic, "IDLE_S", 1.0)
    counter.make(template(**AUTO), request("mine", shape="H100-80GB", nodes=1, gpusPerNode=1, duration="1h"))
    counter.make(deployment(replicas=1, gpus=2))
    counter.until("its claim", lambda: [claim for claim in counter.told if claim.name.startswith("serve-")])
    name = next(claim.name for claim in counter.told if claim.name.startswith("serve-"))
    counter.until("the claim of people's", lambda: counter.claims("mine"))
    counter.state("mine", state="COMPLETED", is_ended=True, position=None)
    counter.until_condition("Finished", "True", "Completed", "mine")

    counter.scale("serve", 0)

    counter.until_condition("Finished", "True", "Canceled", name)
    monkeypatch.setattr(cleanup, "KEPT_S", 1.0)
    counter.until("that it is deleted", lambda: [made["metadata"]["name"] for made in requests(counter)] == ["mine"])
    counter.for_a_while(3.0)
    assert not [claim for claim in counter.told if claim.is_gone]
    assert len(requests(counter)) == 1


def test_where_a_finalizer_holds_one_that_was_deleted_pods_that_come_again_get_another_all_the_same(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is taken until the finalizer goes."""
    monkeypatch.setattr(cleanup, "EVERY_S", 0.5)
    monkeypatch.setattr(cleanup, "KEPT_S", 0.0)
    monkeypatch.setattr(automatic, "IDLE_S", 1.0)
    monkeypatch.setattr(automatic, "AGAIN_S", 1.0)
    counter.make(template(**AUTO), deployment(replicas=1))
    first = the_request(counter)["metadata"]["name"]
    counter.patch("gpr", first, {"metadata": {"finalizers": ["example.org/backup"]}})
    counter.scale("serve", 0)
    counter.until("that it is deleted", lambda: counter.found(first)["metadata"].get("deletionTimestamp"))

    counter.scale("serve", 1)

    try:
        assert the_request(counter, 2)["metadata"]["name"] == f"{first}-2"
    finally:
        counter.patch("gpr", first, {"metadata": {"finalizers": None}})


def test_pods_whose_owner_is_none_do_not_make_it_work_all_the_time(counter: Counter) -> None:
    """People may write any owner; the cluster clears a request away whose owner is none."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "none", "uid": "no-such-uid", "controller": True}
    body = pod("orphan", 1, metadata={"ownerReferences": [owner]})
    counter.make(template(**AUTO), body)

    counter.for_a_while(8.0)

    assert len(counter.noted("request_made")) <= 1


def is_refused(counter: Counter, body: Object) -> bool:
    try:
        path = counter.cluster.wire.kind_of(body).path(counter.namespace)
        counter.cluster.wire.call("POST", path, body, dryRun="All")
    except KubeError:
        return True
    return False


def test_pods_are_told_why_no_request_could_be_made_for_them_until_it_could(counter: Counter) -> None:
    hard = {"count/gpuprovisioningrequests.egs.io": "0"}
    counter.make({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": hard}})
    counter.until("that it counts", lambda: is_refused(counter, request("tried")))
    counter.make(template(**AUTO), pod("alone", 1))

    def why() -> str:
        return next((counter.agent.unasked(each) for each in counter.pods.objects().values() if each.metadata.name == "alone"), "")

    counter.until("the reason", why)
    assert "quota: full" in why()  # exceeded, or not yet counted
    assert requests(counter) == []

    counter.delete("quota", "full")
    the_request(counter)
    counter.until("no reason any more", lambda: why() == "")


def test_the_request_of_a_bound_namespace_alone_is_made(counter: Counter) -> None:
    counter.bound[counter.namespace] = ""
    counter.make(template(**AUTO), pod("alone", 1))

    counter.until("its word", lambda: counter.condition("Auto", "standard", "gprt") == ("False", "NamespaceNotBound"))
    counter.for_a_while(3.0)

    assert requests(counter) == []


# --- how much


def gpu_pod(gpus: int, *, cpu: str = "1", uid: str = "p", **devices: str) -> Pod:
    limits = {cluster_names.GPU: str(gpus), "cpu": cpu, "memory": "1Gi", **devices}
    body = pod(uid, metadata={"uid": uid, "namespace": "red"}, containers=[container(resources={"limits": limits})])
    body["spec"]["schedulingGates"] = [{"name": cluster_names.GATE}]
    return msgspec.convert(body, Pod)


SIZES: list[tuple[list[int], int | None, tuple[int, int | None] | None]] = [
    ([1], None, (1, 1)),
    ([8], None, (1, None)),
    ([4, 4], None, (1, None)),
    ([2, 3], None, (1, 5)),
    ([5, 5, 3, 3], None, (2, None)),
    ([8] * 200, None, (64, None)),
    ([2, 2, 2], 4, (2, 4)),
    ([9], None, None),
    ([9, 1], None, (1, 1)),
]


@pytest.mark.parametrize(("pods", "gpus_per_node", "size"), SIZES)
def test_enough_whole_or_part_nodes_are_asked_for(pods: list[int], gpus_per_node: int | None, size: Any) -> None:
    found = size_of([gpu_pod(gpus) for gpus in pods], gpus_per_node=gpus_per_node, node=NODE)

    assert (found and (found.nodes, found.gpus_per_node)) == size


def test_whole_nodes_are_asked_for_where_pods_want_other_devices_as_well() -> None:
    found = size_of([gpu_pod(1, **{"rdma/hca": "1"})], gpus_per_node=None, node=NODE)

    assert found is not None
    assert (found.nodes, found.gpus_per_node) == (1, None)


HCA = {"rdma/hca": "1"}
ANY = {"shape": None, "minGpuMemoryGiB": 70}  # any shape with so much


def node_like(name: str, *, gpus: int, memory_mib: int = 81559) -> Node:
    metadata = {**BODY["metadata"], "name": name, "uid": name}
    labels = {**metadata["labels"], "nvidia.com/gpu.count": str(gpus), "nvidia.com/gpu.memory": str(memory_mib)}
    status = {key: {**BODY["status"][key], cluster_names.GPU: str(gpus)} for key in ("capacity", "allocatable")}
    return msgspec.convert({**BODY, "metadata": {**metadata, "labels": labels}, "status": {**BODY["status"], **status}}, Node)


HALF = node_like("half", gpus=4)
SMALL = node_like("small", gpus=4, memory_mib=23028)  # 24 GB


@pytest.mark.parametrize(
    ("asked", "templates_words", "pods", "serves"),
    [
        ({}, {}, [gpu_pod(1), gpu_pod(8, **HCA)], True),
        ({"gpusPerNode": 4}, {}, [gpu_pod(4), gpu_pod(1)], True),
        ({"gpusPerNode": 4}, {}, [gpu_pod(8)], False),
        ({"gpusPerNode": 4}, {}, [gpu_pod(1), gpu_pod(1, **HCA)], False),
        ({"gpusPerNode": 8}, {}, [gpu_pod(1, **HCA)], True),
        ({"template": "half"}, {"gpusPerNode": 4}, [gpu_pod(1, **HCA)], False),
        ({"template": "half", "gpusPerNode": 8}, {"gpusPerNode": 4}, [gpu_pod(1, **HCA)], True),
    ],
)
def test_a_request_that_people_made_serves_pods_that_can_be_let_into_its_boxes(
    asked: Object, templates_words: Object, pods: list[Pod], serves: bool
) -> None:
    """Pods with other devices than GPUs get into whole nodes alone: in a part of one they would wait in vain, and nothing be asked for."""
    status = {"templateSpec": templates_words} if templates_words else {}

    assert is_served(asked, status, pods, [NODE]) is serves


@pytest.mark.parametrize(
    ("asked", "status", "nodes", "serves"),
    [
        ({"gpusPerNode": 8}, {}, [NODE], True),
        ({"gpusPerNode": 4}, {}, [NODE], False),
        # It may get nodes of one size or the other.
        ({"gpusPerNode": 4}, {}, [NODE, HALF], False),
        ({"gpusPerNode": 8}, {}, [NODE, HALF], True),
        # What has not that much memory it does not get; nor what is of another type, or has no RDMA.
        ({"gpusPerNode": 8}, {}, [NODE, node_like("old", gpus=16, memory_mib=23028)], True),
        ({"gpusPerNode": 4}, {}, [NODE, SMALL], False),
        ({"gpusPerNode": 8, "nodeType": "another"}, {}, [NODE], False),
        ({"gpusPerNode": 8, "rdma": True}, {}, [NODE], False),
        # Once it has nodes, these count.
        ({"gpusPerNode": 4}, {"nodes": ["half"]}, [NODE, HALF], True),
        ({"gpusPerNode": 4}, {"nodes": [BODY["metadata"]["name"]]}, [NODE, HALF], False),
        ({"gpusPerNode": 4}, {"nodes": ["half", BODY["metadata"]["name"]]}, [NODE, HALF], False),
        ({"gpusPerNode": 8}, {"nodes": ["gone"]}, [NODE], True),
        ({"gpusPerNode": 8}, {}, [], False),
    ],
)
def test_a_request_for_any_shape_with_so_much_memory_serves_pods_with_devices_where_it_gets_whole_nodes(
    asked: Object, status: Object, nodes: list[Node], serves: bool
) -> None:
    assert is_served({**ANY, **asked}, status, [gpu_pod(1, **HCA)], nodes) is serves


def is_served(asked: Object, status: Object, pods: list[Pod], nodes: list[Node]) -> bool:
    spec = {"shape": "H100-80GB", "nodes": 1, "duration": "1h", **asked}
    by_hand = msgspec.convert(
        {
            "metadata": {"name": "mine", "namespace": "red", "uid": "mine"},
            "spec": {key: value for key, value in spec.items() if value is not None},
            "status": status,
        },
        Custom,
    )
    agent = AutomaticRequests(api=None, pods=lambda: [], nodes=lambda: nodes, learn=lambda _: None, note=lambda *_: None)  # type: ignore[arg-type]
    workload = WaitingWorkload(Owner(apiVersion="v1", kind="Pod", name="p", uid="p"), "red", pods)
    return agent._by_hand(workload, AutomaticInputs(0.0, (by_hand,), (), lambda _: "slice")) == "mine"


@pytest.mark.parametrize(("gpus_per_node", "is_made"), [(4, False), (8, True)])
def test_a_template_for_any_shape_with_so_much_memory_makes_requests_for_pods_with_devices_where_they_get_whole_nodes(
    gpus_per_node: int, is_made: bool
) -> None:
    workload = WaitingWorkload(Owner(apiVersion="v1", kind="Pod", name="p", uid="p"), "red", [gpu_pod(1, **HCA)])
    template = {"auto": True, "minGpuMemoryGiB": 70, "gpusPerNode": gpus_per_node, "duration": "1h"}

    spec = spec_for(workload, template, lambda: [NODE, HALF])

    assert spec == ({"minGpuMemoryGiB": 70, "gpusPerNode": 8, "duration": "1h", "nodes": 1} if is_made else None)


@pytest.mark.parametrize(("gpus_per_node", "is_made"), [(4, False), (8, True), (None, True)])
def test_a_template_that_says_how_many_nodes_makes_no_request_that_its_pods_cannot_be_let_into(
    gpus_per_node: int | None, is_made: bool
) -> None:
    template = {**AUTO, "nodes": 2} | ({"gpusPerNode": gpus_per_node} if gpus_per_node else {})
    workload = WaitingWorkload(Owner(apiVersion="v1", kind="Pod", name="p", uid="p"), "red", [gpu_pod(1, **HCA)])

    spec = spec_for(workload, template, lambda: [NODE])

    assert spec == ({key: value for key, value in template.items() if key != "auto"} if is_made else None)


def test_a_part_of_a_node_is_as_large_as_its_cpu_is_needed() -> None:
    cpus = int(float(NODE.status.allocatable["cpu"]))

    found = size_of([gpu_pod(1, cpu=str(cpus // 2))], gpus_per_node=None, node=NODE)

    assert found is not None
    assert found.gpus_per_node == 4


def test_a_workload_is_settled_when_no_pod_has_come_for_a_while_or_after_a_limit() -> None:
    workloads = Workloads(api=None)  # type: ignore[arg-type]
    workload = WaitingWorkload(Owner(apiVersion="batch/v1", kind="Job", name="train", uid="w"), "red")
    times = []
    for second in range(12):
        workload.waiting.append(gpu_pod(1, uid=f"p{second}"))
        times.append(workloads.settled(workload, float(second)))
    assert times == [False] * 10 + [True] * 2

    workloads.forget_all_but([])
    assert not workloads.settled(workload, 20.0)
    assert workloads.settled(workload, 22.0)
