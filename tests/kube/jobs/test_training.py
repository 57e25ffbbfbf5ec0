"""Jobs of the kinds PyTorchJob and MPIJob under their real operators: these make the pods, which enter the box, and say how a job ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from protocol import cluster_names
from protocol.tenancy.workloads import WorkloadKind, WorkloadPhase
from tests.kube.cluster import Cluster, Object
from tests.kube.jobs.operators import mpi
from tests.kube.jobs.operators.training import training_jobs
from tests.kube.jobs.test_jobs import NODES, Runner, closed, opened
from tests.kube.site import Site, moved_in

# Go builds the operators first, in some minutes. Two of a kind in one cluster would disturb each other.
pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("training")]

PYTORCH, MPI = WorkloadKind.PYTORCH_JOB, WorkloadKind.MPI_JOB
OFFICE: Object = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "office", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}, "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"}},
}


@pytest.fixture(scope="module")
def operated(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as operators:
        operators.enter_context(training_jobs(cluster, tmp_path_factory.mktemp("training")))
        if mpi.SOURCE:
            operators.enter_context(mpi.mpi_jobs(cluster, tmp_path_factory.mktemp("mpi")))
        yield cluster


@pytest.fixture(scope="module")
def site(operated: Cluster) -> Iterator[Site]:
    """It has one node without GPUs beside its GPU nodes, where launchers run."""
    operated.apply(OFFICE)
    with moved_in(operated, nodes=NODES) as made:
        yield made
    operated.delete("node", "office")


@pytest.fixture
def runner(site: Site) -> Iterator[Runner]:
    made = Runner(site, site.make_slice("t4712", is_restricted=True))
    yield made
    site.tell()
    made.works = []


def pods_of(runner: Runner) -> dict[str, Object]:
    return {pod["metadata"]["name"]: pod for pod in runner.site.running(runner.slice)}


def env_of(pod: Object) -> dict[str, str]:
    """Returns the variables with their values; one that comes from a label has the pod's."""
    env = {each["name"]: each for each in pod["spec"]["containers"][0]["env"]}
    labels = {f"metadata.labels['{key}']": value for key, value in pod["metadata"]["labels"].items()}
    fields = {name: each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "") for name, each in env.items()}
    return {name: labels.get(fields[name], each.get("value", "")) for name, each in env.items()}


def has_what_egs_gives(runner: Runner, pod: Object) -> None:
    spec = pod["spec"]
    assert cluster_names.ENDS_AT in pod["metadata"]["annotations"]
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in spec["volumes"]
    assert cluster_names.TAINT in {each["key"] for each in spec["tolerations"]}
    assert spec["nodeName"] in runner.site.node_names


# An MPIJob's launcher runs beside the box and has no rank. Its end is the job's end.
@pytest.mark.parametrize("kind", [PYTORCH, *([MPI] if mpi.SOURCE else [])])
def test_a_job_is_evicted_comes_back_and_completes(kind: WorkloadKind, runner: Runner) -> None:
    assert kind in (runner.driver.kinds() or ())
    count = NODES + (kind == MPI)
    box = opened(runner, nodes=NODES)
    work = runner.wants(box[0].gpr_id, nodes=NODES, kind=kind)

    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == count)
    pods = pods_of(runner)
    workers = {name: pod for name, pod in pods.items() if "-worker-" in name}
    assert set(workers) == {f"train-1-worker-{rank}" for rank in range(NODES)}
    assert {pod["spec"]["nodeName"] for pod in workers.values()} == set(runner.site.node_names)
    for name, pod in workers.items():
        has_what_egs_gives(runner, pod)
        if kind == PYTORCH:
            env = env_of(pod)
            assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"], env["PET_NODE_RANK"]) == (str(NODES), "8", name[-1])
            assert (env["MASTER_ADDR"], env["PET_MASTER_ADDR"]) == ("train-1-worker-0", "train-1-worker-0")
    for launcher in (pod for name, pod in pods.items() if name not in workers):
        assert launcher["spec"]["nodeName"] == "office"
        assert env_of(launcher)["OMPI_MCA_orte_set_default_slots"] == "8"
    found_by = "train-1-worker-0" if kind == PYTORCH else "train-1"
    assert found_by in {each["metadata"]["name"] for each in runner.services()}, "by which the others find it"

    closed(runner, box)  # evicted
    runner.gone()
    again = opened(runner, nodes=NODES, gpr_id=work.gpr_id, run=2)
    runner.wants(work.gpr_id, run=2, nodes=NODES, kind=kind)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == count)
    runner.finish(pods=[pod for name, pod in pods_of(runner).items() if kind == PYTORCH or "-worker-" not in name])
    runner.until(WorkloadPhase.SUCCEEDED)
    closed(runner, again)
    runner.gone()


def test_a_pod_that_fails_ends_the_pytorch_job_and_is_named(runner: Runner) -> None:
    box = opened(runner, nodes=2)
    runner.wants(box[0].gpr_id, nodes=2, kind=PYTORCH)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 2)

    runner.finish("crash", pods=[pods_of(runner)["train-1-worker-1"]])

    assert runner.until(WorkloadPhase.FAILED).message == "Pod train-1-worker-1 ended with exit code 137 (OOMKilled)."
    closed(runner, box)
    runner.gone()


def test_a_pod_of_a_pytorch_job_that_is_evicted_alone_comes_back_where_retries_are_left(runner: Runner) -> None:
    """The kind has no rule for disruptions: without retries the job has failed."""
    box = opened(runner, nodes=2)
    runner.wants(box[0].gpr_id, nodes=2, kind=PYTORCH, retries=1)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 2)
    uid = pods_of(runner)["train-1-worker-1"]["metadata"]["uid"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "train-1-worker-1", "namespace": runner.slice}}
    runner.site.cluster.wire.call("POST", f"/api/v1/namespaces/{runner.slice}/pods/train-1-worker-1/eviction", body)

    runner.site.until("another pod", lambda: pods_of(runner).get("train-1-worker-1", {"metadata": {"uid": uid}})["metadata"]["uid"] != uid)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 2)
    closed(runner, box)
    runner.gone()
