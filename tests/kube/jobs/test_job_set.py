"""A job of the kind JobSet under its real operator: it makes the child Job and the pods, which enter the box, and says how it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol import cluster_names
from protocol.tenancy.workloads import WorkloadKind, WorkloadPhase
from tests.kube.cluster import Cluster, Object
from tests.kube.jobs.operators.job_sets import job_sets
from tests.kube.jobs.test_jobs import NODES, Runner, closed, opened
from tests.kube.site import Site, moved_in

# Go builds the operator first, in some minutes. Two of a kind in one cluster would disturb each other.
pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("job_sets")]


@pytest.fixture(scope="module")
def operated(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with job_sets(cluster, tmp_path_factory.mktemp("jobset")):
        yield cluster


@pytest.fixture(scope="module")
def site(operated: Cluster) -> Iterator[Site]:
    with moved_in(operated, nodes=NODES) as made:
        yield made


@pytest.fixture
def runner(site: Site) -> Iterator[Runner]:
    made = Runner(site, site.make_slice("t4711", is_restricted=True))
    yield made
    site.tell()
    made.works = []


def test_a_job_set_gets_its_child_job_and_pods_is_evicted_comes_back_and_completes(runner: Runner) -> None:
    site = runner.site
    assert WorkloadKind.JOB_SET in (runner.driver.kinds() or ())
    box = opened(runner, nodes=NODES)
    work = runner.wants(box[0].gpr_id, nodes=NODES, kind=WorkloadKind.JOB_SET)

    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == NODES)
    (job,) = runner.jobs()
    assert job["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    pods = site.running(runner.slice)
    assert {pod["spec"]["nodeName"] for pod in pods} == set(site.node_names)
    assert {pod["metadata"]["labels"][cluster_names.JOB_SET_OF_POD] for pod in pods} == {"train-1"}
    assert {pod["spec"]["hostname"] for pod in pods} == {f"train-1-node-0-{rank}" for rank in range(NODES)}
    env = {each["name"]: each.get("value") for each in pods[0]["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == "train-1-node-0-0.train-1"
    assert pods[0]["spec"]["subdomain"] == "train-1"

    closed(runner, box)  # evicted
    runner.gone()
    again = opened(runner, nodes=NODES, gpr_id=work.gpr_id, run=2)
    runner.wants(work.gpr_id, run=2, nodes=NODES, kind=WorkloadKind.JOB_SET)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == NODES)
    runner.finish()
    runner.until(WorkloadPhase.SUCCEEDED)
    closed(runner, again)
    runner.gone()


def test_a_pod_that_fails_ends_the_job_set_after_its_retries(runner: Runner) -> None:
    box = opened(runner, nodes=2)
    runner.wants(box[0].gpr_id, nodes=2, retries=1, kind=WorkloadKind.JOB_SET)
    for attempt in ("0", "1"):
        runner.site.until("the pods of this attempt", lambda attempt=attempt: runner.look() and len(pods_of(runner, attempt)) == 2)
        runner.finish("fail", pods=pods_of(runner, attempt)[:1])

    seen = runner.until(WorkloadPhase.FAILED)

    assert seen.message
    closed(runner, box)
    runner.gone()


def pods_of(runner: Runner, attempt: str) -> list[Object]:
    return [pod for pod in runner.site.running(runner.slice) if pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == attempt]
