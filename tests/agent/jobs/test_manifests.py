"""The objects of each kind of job: what they need to run in a workspace's namespace, and no more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from protocol.cluster_names import INDEX_OF_POD
from protocol.tenancy.job_objects import BoxFacts, main_of, objects_of
from protocol.tenancy.notebooks import IngressWay
from protocol.tenancy.workloads import NOTEBOOK_HOME, JobWorkload, WorkloadKind
from worker_agent.kube.api.objects import Meta, Pod
from worker_agent.kube.jobs.logs import part_of, pod_of_rank

BOX = BoxFacts(gpus_per_node=8, grace_s=120, rdma="rdma/hca")
WORK = JobWorkload(
    id="5c4b3a29",
    gpr_id="0f5f3c0a-9a4e-4f38-8a83-5b2d1a6f7e22",
    run=2,
    slice="s-1",
    namespace="train",
    name="train-5c4b3a29-2",
    nodes=4,
    image="a:1",
    command=("torchrun", "train.py"),
    env={"LR": "3e-4"},
    secrets=("hub",),
    volumes={"data": "/data"},
    pull_secret="registry",
    retries=2,
    checkpoint=("/bin/save",),
)


def made(**changes: Any) -> list[Any]:
    return objects_of(msgspec.structs.replace(WORK, **changes), BOX)


def pods_of(made: Any) -> list[Any]:
    """The specs of all pods that an object makes."""
    if isinstance(made, dict):
        own = [made["spec"]] if isinstance(made.get("spec"), dict) and "containers" in made["spec"] else []
        return own + [pod for each in made.values() for pod in pods_of(each)]
    return [pod for each in made for pod in pods_of(each)] if isinstance(made, list) else []


@pytest.mark.parametrize("kind", [kind for kind in WorkloadKind if kind != WorkloadKind.MANIFEST])
def test_every_pod_is_one_that_pod_security_and_the_end_of_the_box_ask_for(kind: str) -> None:
    pods = pods_of(made(kind=kind))

    assert pods
    for pod in pods:
        (main,) = pod["containers"]
        assert pod["securityContext"] == {
            **{"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert main["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert pod["automountServiceAccountToken"] is False
        assert pod["terminationGracePeriodSeconds"] == 120
        assert main["lifecycle"] == {"preStop": {"exec": {"command": ["/bin/save"]}}}
        home = {NOTEBOOK_HOME} if kind == WorkloadKind.NOTEBOOK else set()
        assert {mount["mountPath"] for mount in main["volumeMounts"]} == {"/dev/shm", "/etc/egs", "/data", *home}  # noqa: S108
        assert main["envFrom"] == [{"secretRef": {"name": "hub"}}]
        assert not any(key.startswith("egs.io/") for key in pod.get("metadata", {}).get("labels", {}))
        # Not all versions of Kubernetes have a policy that would add it.
        assert pod.get("schedulingGates", []) == ([{"name": "egs.io/gpr"}] if main["resources"]["limits"] else [])


@pytest.mark.parametrize("kind", list(WorkloadKind))
def test_every_object_bears_the_marks_by_which_the_agent_takes_it_away(kind: str) -> None:
    own = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "own", "labels": {"app": "x"}}}
    for each in made(kind=kind, objects=(own,)):
        assert each["metadata"]["namespace"] == "train"
        assert each["metadata"]["labels"]["egs.io/job"] == WORK.id
        assert each["metadata"]["labels"]["egs.io/job-box"] == f"{WORK.gpr_id}.2"


def test_pods_with_gpus_are_as_many_as_nodes_and_ask_for_all_of_each() -> None:
    asked = {"nvidia.com/gpu": "8", "rdma/hca": "1"}
    _, job = made()
    assert (job["spec"]["completions"], job["spec"]["parallelism"], job["spec"]["backoffLimit"]) == (4, 4, 8)
    assert job["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": asked}
    (pytorch,) = made(kind="PyTorchJob")
    assert {name: part["replicas"] for name, part in pytorch["spec"]["pytorchReplicaSpecs"].items()} == {"Worker": 4}
    (mpi,) = made(kind="MPIJob")
    parts = mpi["spec"]["mpiReplicaSpecs"]
    assert parts["Worker"]["replicas"] == 4
    assert parts["Launcher"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {}}


def test_an_eviction_counts_as_no_failure() -> None:
    for kind, path in (("Job", ()), ("JobSet", ("replicatedJobs", 0, "template", "spec"))):
        spec = main_of(made(kind=kind))["spec"]  # type: ignore[index]
        for step in path:
            spec = spec[step]
        assert spec["podFailurePolicy"] == {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
        assert spec["template"]["spec"]["restartPolicy"] == "Never", "such a policy needs it"


def test_a_notebook_has_its_token_in_a_secret_alone_and_leads_to_its_own_pod() -> None:
    way = IngressWay("https", "nb.example.org", "nginx")
    work = msgspec.structs.replace(WORK, kind="Notebook", nodes=1, command=(), token="s3cret")
    job, secret, service, ingress = objects_of(work, replace(BOX, ingress=way))

    assert [each["kind"] for each in (job, secret, service, ingress)] == ["Job", "Secret", "Service", "Ingress"]
    assert secret["stringData"] == {"token": "s3cret"}
    assert "s3cret" not in str((job, service, ingress))
    (main,) = job["spec"]["template"]["spec"]["containers"]
    assert main["command"][:2] == ["jupyter", "lab"]
    assert main["env"][-1] == {"name": "JUPYTER_TOKEN", "valueFrom": {"secretKeyRef": {"name": WORK.name, "key": "token"}}}
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": WORK.name}
    assert ingress["spec"]["rules"][0]["host"] == f"{WORK.name}.nb.example.org"
    assert way.url(work) == f"https://{WORK.name}.nb.example.org/"


def test_a_claim_at_the_home_of_a_notebook_takes_the_place_of_the_empty_one() -> None:
    (job, *_) = made(kind="Notebook", nodes=1, volumes={"home": NOTEBOOK_HOME})

    mounts = job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert [mount["name"] for mount in mounts if mount["mountPath"] == NOTEBOOK_HOME] == ["claim-0"]


def test_one_node_needs_no_service_and_finds_itself() -> None:
    (job,) = made(nodes=1)

    env = {each["name"]: each.get("value") for each in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert (env["MASTER_ADDR"], env["PET_NNODES"]) == ("localhost", "1")


def labeled(name: str, **labels: str) -> Pod:
    plain = {key.replace("_", "-"): value for key, value in labels.items()}
    return Pod(metadata=Meta(name=name, labels={f"training.kubeflow.org/{key}": value for key, value in plain.items()}))


@pytest.mark.parametrize(
    ("pods", "names"),
    [
        ([labeled("w1", replica_type="worker", replica_index="1"), labeled("w0", replica_type="worker", replica_index="0")], "w0 w1"),
        (
            [
                labeled("w0", replica_type="worker", replica_index="0"),
                labeled("m", replica_type="master", job_role="master", replica_index="0"),
            ],
            "m w0",
        ),
        ([labeled("second", job_role="launcher"), labeled("first", job_role="launcher")], "second"),
        ([labeled("w1", job_role="worker", replica_index="1"), labeled("l", job_role="launcher")], "l - w1"),
        ([Pod(metadata=Meta(name=name, labels={INDEX_OF_POD: name[1:]})) for name in ("p2", "p0")], "p0 - p2"),
        ([Pod(metadata=Meta(name=name)) for name in ("new", "old")], "new old"),
    ],
)
def test_the_pod_of_a_rank_is_found_by_the_labels_of_its_operator(pods: list[Pod], names: str) -> None:
    found = [pod_of_rank(pods, rank) for rank in range(3)]

    assert " ".join(pod.metadata.name if pod else "-" for pod in found).rstrip(" -") == names


LINES = "2026-11-27T10:00:00.1Z one\n2026-11-27T10:00:00.15Z two\n2026-11-27T10:00:01Z three\n2026-11-27T10:00:02Z cut o"


def test_each_line_of_output_comes_once_and_a_cut_one_later() -> None:
    first = part_of(LINES, "")
    assert first == ("one\ntwo\nthree\n", "2026-11-27T10:00:01Z")
    assert part_of(LINES, "2026-11-27T10:00:00.1Z") == ("two\nthree\n", "2026-11-27T10:00:01Z")
    assert part_of(f"{LINES}ff\n", first.until) == ("cut off\n", "2026-11-27T10:00:02Z")
    assert part_of("no time\n", "") == ("", "")


def test_a_long_output_comes_in_parts_of_whole_lines() -> None:
    text = "".join(f"2026-11-27T10:00:{second:02}Z {'x' * 30_000}\n" for second in range(5))

    part = part_of(text, "")

    assert part == ("x" * 30_000 + "\n" + "x" * 30_000 + "\n", "2026-11-27T10:00:01Z")
