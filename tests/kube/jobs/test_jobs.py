"""A job on a real API server: made in the open box alone, gone with it, made again for what is left, and told of as it ends."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from egs_client.kube.access import Access, ClusterRefused
from protocol import cluster_names
from protocol.assignments import Assignment, Drain, Phase
from protocol.tenancy.notebooks import IngressWay
from protocol.tenancy.workloads import JobWorkload, WorkloadPhase, WorkloadSeen
from tests.client.kubelet import HOST, at_hand, kubelet, lab
from tests.kube.cluster import Cluster, Object
from tests.kube.site import AGENT, Site, ended, member, moved_in
from tests.kube.wire import tls_of, url_of
from tests.kube.written import written
from worker_agent.cluster.base import Unavailable
from worker_agent.hub.workloads import BoxJob
from worker_agent.kube.jobs.driver import KubernetesWorkloads

NODES = 4
DRAIN = Drain(grace_s=1.0, force_after_s=3.0)


class Runner:
    """An agent's thread of jobs, a look at a time. The hub's list is the test's."""

    def __init__(self, site: Site, slice_: str) -> None:
        self.site, self.slice = site, slice_
        self.works: list[JobWorkload] = []
        self.restart()

    def restart(self) -> None:
        """It knows what the cluster keeps."""
        site = self.site
        self.driver = KubernetesWorkloads(
            api=site.agent_api,
            bound=site.driver.workspace_of,
            pods=site.driver.pods,
            nodes=site.driver.nodes,
            why=site.driver.why_it_waits,
            note=site.note,
            ingress=IngressWay("https", "nb.example.org", "nginx"),
        )

    def wants(self, gpr_id: str, *, run: int = 1, name: str = "", **changes: Any) -> JobWorkload:
        given: dict[str, Any] = {"image": "none", "command": ("true",), "nodes": 1, **changes}
        work = JobWorkload(
            id=f"job-{gpr_id}", gpr_id=gpr_id, run=run, slice=self.slice, namespace=self.slice, name=name or f"train-{run}", **given
        )
        self.works = [work]
        return work

    def look(self) -> WorkloadSeen | None:
        boxes = self.site.core.open_boxes() or []
        jobs = [BoxJob(work, box) for work in self.works for box in boxes if (box.gpr_id, box.run) == (work.gpr_id, work.run)]
        self.driver._not_before_mono = float("-inf")
        seen = self.driver.reconcile(jobs, {(box.gpr_id, box.run) for box in boxes}, now_s=0.0)
        return next(iter(seen), None)

    def until(self, phase: WorkloadPhase, *, holds: Callable[[WorkloadSeen], bool] = lambda _: True) -> WorkloadSeen:
        def look() -> WorkloadSeen | None:
            seen = self.look()
            return seen if seen is not None and seen.phase is phase and holds(seen) else None

        found: WorkloadSeen = self.site.until(f"a job that is {phase}", look)
        return found

    def jobs(self) -> list[Object]:
        return self.site.cluster.list("jobs", namespace=self.slice)

    def gone(self) -> None:
        """The box closes, and nothing of the job is left."""

        def is_gone() -> bool:
            self.look()
            return not self.jobs() and not self.site.pods(self.slice) and not self.services()

        self.site.until("nothing of the job is left", is_gone)

    def services(self) -> list[Object]:
        return self.site.cluster.list("services", namespace=self.slice)

    def finish(self, outcome: str = "pass", *, pods: list[Object] | None = None) -> None:
        for pod in pods or self.site.running(self.slice):
            self.site.cluster.label("pod", pod["metadata"]["name"], f"egs.test/outcome={outcome}", namespace=self.slice)


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    with moved_in(cluster, nodes=NODES) as made:
        yield made


@pytest.fixture
def runner(site: Site, request: pytest.FixtureRequest) -> Iterator[Runner]:
    made = Runner(site, site.make_slice(f"t{zlib.crc32(request.node.name.encode()) % 10_000}", is_restricted=True))
    yield made
    site.tell()
    made.works = []


def opened(runner: Runner, *, nodes: int = 1, **changes: Any) -> list[Assignment]:
    box = runner.site.box(runner.slice, nodes=tuple(range(nodes)), drain=DRAIN, **changes)
    runner.site.tell(*box)
    runner.site.until("an open box", lambda: runner.site.is_in(Phase.ACTIVE, *box))
    return box


def closed(runner: Runner, box: list[Assignment]) -> None:
    runner.site.tell(*ended(*box))
    runner.site.until("a closed box", lambda: runner.site.is_in(Phase.RELEASED, *box))
    runner.site.tell()


def test_a_job_on_four_nodes_is_evicted_comes_back_and_completes(runner: Runner) -> None:
    site = runner.site
    box = opened(runner, nodes=NODES)
    work = runner.wants(box[0].gpr_id, nodes=NODES, retries=0)

    seen = runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == NODES)
    assert seen.message == ""
    (job,) = runner.jobs()
    assert job["spec"]["backoffLimit"] == 0
    assert job["metadata"]["labels"][cluster_names.JOB_BOX] == f"{work.gpr_id}.1"
    assert {pod["spec"]["nodeName"] for pod in site.running(runner.slice)} == set(site.node_names)
    env = {each["name"]: each.get("value") for each in site.running(runner.slice)[0]["spec"]["containers"][0]["env"]}
    assert (env["MASTER_ADDR"], env["PET_NNODES"], env["NPROC_PER_NODE"]) == ("train-1-0.train-1", "4", "8")
    assert [each["metadata"]["name"] for each in runner.services()] == ["train-1"]
    assert all(cluster_names.ENDS_AT in pod["metadata"]["annotations"] for pod in site.running(runner.slice))

    closed(runner, box)  # evicted
    assert runner.look() is None, "of a run that is over nothing is told"
    runner.gone()

    again = opened(runner, nodes=NODES, gpr_id=work.gpr_id, run=2)
    runner.wants(work.gpr_id, run=2, nodes=NODES, retries=0)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == NODES)
    runner.finish()
    runner.until(WorkloadPhase.SUCCEEDED)
    closed(runner, again)
    runner.gone()


def test_a_failure_names_the_pod_and_its_exit_code(runner: Runner) -> None:
    box = opened(runner, nodes=2)
    runner.wants(box[0].gpr_id, nodes=2)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 2)
    bad = next(pod for pod in runner.site.running(runner.slice) if pod["metadata"]["labels"][cluster_names.INDEX_OF_POD] == "1")

    runner.finish("crash", pods=[bad])

    assert runner.until(WorkloadPhase.FAILED).message == "Pod 1 ended with exit code 137 (OOMKilled)."
    # Members and operators clear away what has ended; the API server itself leaves out its grace period.
    path = f"/api/v1/namespaces/{runner.slice}/pods/{bad['metadata']['name']}"
    runner.site.cluster.wire.call("DELETE", path, user=member(runner.site.cluster, runner.slice, "user"))
    closed(runner, box)
    runner.gone()


def test_without_retries_a_job_outlives_the_eviction_of_its_pod(runner: Runner) -> None:
    box = opened(runner)
    runner.wants(box[0].gpr_id)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 1)
    (pod,) = runner.site.running(runner.slice)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"], "namespace": runner.slice}}
    runner.site.cluster.wire.call("POST", f"/api/v1/namespaces/{runner.slice}/pods/{pod['metadata']['name']}/eviction", body)

    def another() -> bool:
        return any(each["metadata"]["uid"] != pod["metadata"]["uid"] for each in runner.site.running(runner.slice))

    runner.site.until("another pod", another)
    assert runner.until(WorkloadPhase.RUNNING).phase is WorkloadPhase.RUNNING
    closed(runner, box)
    runner.gone()


def test_an_agent_that_restarts_makes_nothing_twice_and_clears_what_was_left(runner: Runner) -> None:
    box = opened(runner)
    runner.wants(box[0].gpr_id)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 1)
    uid = runner.jobs()[0]["metadata"]["uid"]

    runner.restart()
    runner.until(WorkloadPhase.RUNNING)
    assert [job["metadata"]["uid"] for job in runner.jobs()] == [uid]

    closed(runner, box)
    runner.works = []
    runner.restart()  # it has no word from the hub of what it made
    runner.gone()


@pytest.mark.rotates
def test_what_others_made_is_left_alone_though_it_has_the_name(runner: Runner) -> None:
    own = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "train-1", "namespace": runner.slice},
        "spec": {"ports": [{"port": 80}]},
    }
    runner.site.cluster.apply(own)
    box = opened(runner, nodes=2)
    runner.wants(box[0].gpr_id, nodes=2)

    assert "already exists" in runner.until(WorkloadPhase.REFUSED).message
    assert runner.jobs() == []
    closed(runner, box)
    runner.look()
    assert [each["metadata"]["name"] for each in runner.services()] == ["train-1"]
    runner.site.cluster.delete("service", "train-1", namespace=runner.slice)


@pytest.mark.rotates
def test_a_job_that_somebody_deleted_is_not_made_again(runner: Runner) -> None:
    box = opened(runner)
    runner.wants(box[0].gpr_id)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 1)

    runner.site.cluster.delete("job", "train-1", namespace=runner.slice)

    assert runner.until(WorkloadPhase.FAILED).message == "Somebody deleted Job train-1 in the cluster."
    assert runner.jobs() == []
    closed(runner, box)


@pytest.mark.rotates
def test_a_job_for_another_workspace_s_namespace_is_not_made(runner: Runner, site: Site) -> None:
    theirs = site.make_slice(f"x{runner.slice[:6]}")
    box = opened(runner)
    work = runner.wants(box[0].gpr_id)
    runner.works = [msgspec.structs.replace(work, namespace=theirs)]

    assert runner.until(WorkloadPhase.PENDING).message == f"Namespace {theirs} is not ready."
    assert site.cluster.list("jobs", namespace=theirs) == []
    closed(runner, box)


@pytest.mark.rotates
def test_marks_that_another_workspace_writes_draw_no_job_there(runner: Runner, site: Site) -> None:
    theirs = site.make_slice(f"a{runner.slice[:6]}")
    box = opened(runner)
    work = runner.wants(box[0].gpr_id)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 1)
    marks = {cluster_names.JOB: work.id, cluster_names.JOB_BOX: f"{work.gpr_id}.1"}
    about = {"name": "posing", "namespace": theirs, "labels": marks}
    site.cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": about, "spec": {"ports": [{"port": 80}]}})

    runner.restart()

    assert runner.until(WorkloadPhase.RUNNING).pods_running == 1
    closed(runner, box)
    runner.gone()


def test_a_run_stays_in_the_namespace_where_it_began(runner: Runner, site: Site) -> None:
    box = opened(runner)
    work = runner.wants(box[0].gpr_id)
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 1)
    runner.works = [msgspec.structs.replace(work, namespace="another-one")]

    assert runner.until(WorkloadPhase.RUNNING).pods_running == 1
    runner.restart()
    assert runner.until(WorkloadPhase.RUNNING).pods_running == 1
    closed(runner, box)
    runner.gone()


@pytest.mark.rotates
def test_a_manifest_is_made_with_what_it_says_and_its_pods_meet_all_policies(runner: Runner) -> None:
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}
    main = {
        "name": "main",
        "image": "none",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "securityContext": {**safe, "runAsNonRoot": True},
    }
    spec = {"restartPolicy": "Never", "containers": [main]}
    fine = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "own"}, "spec": {"template": {"spec": spec}}}
    bad_spec = {**spec, "tolerations": [{"operator": "Exists"}]}
    bad = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "bad"}, "spec": {"template": {"spec": bad_spec}}}
    box = opened(runner)
    runner.wants(
        box[0].gpr_id, kind="Manifest", image="", command=(), objects=tuple(written(runner.site.cluster, each) for each in (fine, bad))
    )

    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 1)

    assert {pod["metadata"]["labels"]["job-name"] for pod in runner.site.pods(runner.slice)} == {"own"}
    closed(runner, box)
    runner.gone()


@pytest.mark.rotates
def test_objects_that_a_workspace_may_not_make_are_not_made_whatever_the_hub_says(runner: Runner) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "own"}}
    box = opened(runner)
    runner.wants(box[0].gpr_id, kind="Manifest", objects=(role,))

    assert runner.until(WorkloadPhase.REFUSED).message == "This agent makes no Manifest. Upgrade it."
    closed(runner, box)


# -- notebooks -------------------------------------------------------------------------------------------------------------


def may(site: Site, user: str, verb: str, resource: str, namespace: str) -> bool:
    kind, _, sub = resource.partition("/")
    asked = {"verb": verb, "resource": kind, "subresource": sub, "namespace": namespace}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": user, "resourceAttributes": asked}}
    return bool(site.cluster.wire.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])


def notebook(runner: Runner, gpr_id: str, token: str) -> JobWorkload:
    work = runner.wants(gpr_id, kind="Notebook", command=(), token=token, name="lab-1")
    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 1)
    return work


def test_a_notebook_has_its_pod_its_service_and_its_token_in_the_workspace_and_nothing_is_left_of_it(runner: Runner) -> None:
    site, space = runner.site, runner.slice
    box = opened(runner)

    notebook(runner, box[0].gpr_id, "s3cret")

    seen = runner.look()
    assert seen is not None
    assert (seen.namespace, seen.url) == (space, "https://lab-1.nb.example.org/")
    (pod,) = site.running(space)
    (service,) = runner.services()
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    secret = site.cluster.get("secret", "lab-1", namespace=space)
    assert secret is not None
    assert base64.b64decode(secret["data"]["token"]) == b"s3cret"
    assert site.cluster.get("ingress", "lab-1", namespace=space) is not None
    assert "s3cret" not in str((pod, service, runner.jobs()))
    assert not any(may(site, AGENT, verb, "secrets", space) for verb in ("get", "list", "watch", "delete"))
    user, viewer = member(site.cluster, space, "user"), member(site.cluster, space, "viewer")
    assert [may(site, who, verb, "pods/portforward", space) for who in (user, viewer) for verb in ("get", "create")] == [
        True,
        True,
        False,
        False,
    ]
    assert not may(site, viewer, "get", "secrets", space)

    runner.restart()  # what it does not read, it makes no second time
    runner.until(WorkloadPhase.RUNNING)
    closed(runner, box)
    runner.gone()

    def is_gone() -> bool:
        return not any(site.cluster.get(kind, "lab-1", namespace=space) for kind in ("secret", "ingress"))

    site.until("neither token nor ingress is left", is_gone)


@pytest.mark.rotates
def test_a_part_of_a_notebook_that_could_not_be_made_is_made_later(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    box = opened(runner)
    runner.wants(box[0].gpr_id, kind="Notebook", command=(), token="s3cret", name="lab-1")
    create = runner.driver._api.create

    def fails_for_secrets(path: str, *given: Any, **more: Any) -> Any:
        if path.endswith("/secrets"):
            raise Unavailable("no answer")
        return create(path, *given, **more)

    monkeypatch.setattr(runner.driver._api, "create", fails_for_secrets)
    runner.until(WorkloadPhase.PENDING, holds=lambda seen: "does not answer" in seen.message)
    assert len(runner.jobs()) == 1
    monkeypatch.undo()

    runner.until(WorkloadPhase.RUNNING, holds=lambda seen: seen.pods_running == 1)
    secret = runner.site.cluster.get("secret", "lab-1", namespace=runner.slice)
    assert secret is not None
    assert secret["metadata"]["ownerReferences"][0]["uid"] == runner.jobs()[0]["metadata"]["uid"]
    closed(runner, box)
    runner.gone()


def test_a_member_reaches_the_notebook_through_the_api_server_and_a_viewer_does_not(runner: Runner, tmp_path: Path) -> None:
    """kwok serves no pods, so that a kubelet of the test stands behind the node's address."""
    site, space = runner.site, runner.slice
    box = opened(runner)
    notebook(runner, box[0].gpr_id, "s3cret")
    (pod,) = site.running(space)

    def access_of(role: str) -> Access:
        member(site.cluster, space, role)
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = site.cluster.wire.call("POST", f"/api/v1/namespaces/{space}/serviceaccounts/{role}/token", body)["status"]["token"]
        return Access(url_of(site.cluster.kubeconfig), tls_of(site.cluster.folder), token)

    def pod_of(own: Access) -> str:
        return own.running_pod(space, "batch.kubernetes.io/job-name=lab-1")

    with lab() as target, kubelet(tmp_path, target) as own:
        address = {"addresses": [{"type": "InternalIP", "address": HOST}], "daemonEndpoints": {"kubeletEndpoint": {"Port": own.port}}}
        site.cluster.patch("node", pod["spec"]["nodeName"], {"status": address}, sub="status")
        user, viewer = access_of("user"), access_of("viewer")

        def is_there() -> bool:
            with at_hand(user, space, find=pod_of) as url:
                return httpx.get(f"{url}/lab").content == b"/lab" * 20_000

        site.until("the notebook at hand", is_there)
        with at_hand(viewer, space, find=pod_of) as url:
            refused = httpx.get(url)
        assert refused.status_code == 502
        assert "cannot" in refused.text
        assert 'cannot get resource "pods/portforward"' in refused.text or "forbidden" in refused.text
        assert all(f"/{space}/{pod['metadata']['name']}" in asked for asked in own.asked)
    with pytest.raises(ClusterRefused):
        user.running_pod("kube-system", "")
    closed(runner, box)
    runner.gone()
