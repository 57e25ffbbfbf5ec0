"""Jobs that are objects, on a real API server: carried to the hub once, checked by their kind, told until they are complete."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from protocol import cluster_names
from protocol.tenancy.cluster_requests import ClusterRequestSpec, ClusterRequestState, JobAsk, JobProgress
from tests.kube.cluster import MUTATING, Cluster, KubeError, Object
from tests.kube.requests.counter import Counter
from tests.kube.site import member
from tests.kube.wire import MERGE

JOB: Object = {"shape": "H100-80GB", "duration": "2h", "image": "a/b:1"}


def job(name: str = "train", **changes: Any) -> Object:
    spec = {key: value for key, value in {**JOB, **changes}.items() if value is not None}
    return {"apiVersion": "egs.io/v1alpha1", "kind": "GPUJob", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def counter(cluster: Cluster) -> Iterator[Counter]:
    made = Counter(cluster)
    yield made
    made.leave()


def status(counter: Counter) -> Object:
    return counter.status(kind="gpujob")


def tell(counter: Counter, **changes: Any) -> None:
    """The hub's list says it from now on."""
    uid = str(counter.found(kind="gpujob")["metadata"]["uid"])
    given = {"id": uid, "gpr_id": f"gpr-{uid[:8]}", "state": "QUEUED", "job": JobProgress(state="WAITING"), **changes}
    counter.states[uid] = ClusterRequestState(**given)


def test_a_job_is_told_to_the_hub_once_and_kubectl_waits_until_it_is_complete(counter: Counter) -> None:
    env, volumes = {"LR": "3e-4"}, {"data": "/data"}
    counter.make(
        job(command=["torchrun", "train.py"], env=env, volumes=volumes, secrets=["hub"], retries=2, userId=2000, releasesBox=False)
    )
    counter.until("the claim", counter.claims)
    tell(counter, promised_start_s=1_800_000_000.0, estimated_start_s=1_800_000_000.0, message="It waits.")
    counter.until("its state", lambda: status(counter).get("phase") == "WAITING")
    counter.for_a_while()

    (claim,) = counter.claims()
    assert claim.spec == ClusterRequestSpec(
        shape="H100-80GB",
        duration="2h",
        job=JobAsk(
            image="a/b:1",
            command=("torchrun", "train.py"),
            env=env,
            volumes=volumes,
            secrets=("hub",),
            retries=2,
            user_id=2000,
            releases_box=False,
        ),
    )
    assert status(counter)["estimatedStartTime"] == "2027-01-15T08:00:00Z"
    assert "WAITING" in counter.kubectl("get", "gpujob")
    kubectl = [str(counter.cluster.programs / "kubectl"), "--kubeconfig", str(counter.cluster.kubeconfig), "--namespace", counter.namespace]
    waiting = subprocess.Popen([*kubectl, "wait", "--for=condition=Complete", "gpujob/train", "--timeout=60s"], stdout=subprocess.DEVNULL)
    counter.stop()
    counter.start()  # an agent that remembers nothing
    tell(counter, state="ACTIVE", job=JobProgress(state="RUNNING", pods_running=1), ends_s=1_800_007_200.0)
    counter.until("it runs", lambda: (status(counter).get("phase"), status(counter).get("podsRunning")) == ("RUNNING", 1))
    assert waiting.poll() is None
    tell(counter, state="RELEASED", job=JobProgress(state="SUCCEEDED"), is_ended=True)
    counter.until("it is complete", lambda: counter.condition("Complete", kind="gpujob") == ("True", "Succeeded"))

    assert waiting.wait(timeout=60) == 0
    assert [counter.condition(type_, kind="gpujob")[0] for type_ in ("Provisioned", "Failed", "Finished")] == ["False", "False", "True"]
    assert len(counter.claims()) == 1


def test_a_job_that_was_stopped_has_failed_and_a_deleted_one_is_told_as_gone(counter: Counter) -> None:
    counter.make(job())
    counter.until("the claim", counter.claims)
    tell(counter)
    counter.until("its state", lambda: status(counter).get("phase") == "WAITING")
    uid = str(counter.found(kind="gpujob")["metadata"]["uid"])
    counter.delete("gpujob", "train")

    counter.until("the end", lambda: [claim for claim in counter.told if claim.uid == uid and claim.is_gone])

    counter.make(job("other"))
    counter.until("the other", lambda: counter.claims("other"))
    other = counter.found("other", "gpujob")["metadata"]["uid"]
    counter.states[other] = ClusterRequestState(
        id=other, gpr_id="g", state="CANCELED", is_ended=True, message="Canceled.", job=JobProgress(state="STOPPED")
    )
    counter.until("it has failed", lambda: counter.condition("Failed", "other", "gpujob") == ("True", "Stopped"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": None}, "say which image runs"),
        ({"kind": "Manifest"}, "say which image runs, or give a manifest"),
        ({"manifest": "kind: Job"}, "a manifest needs kind: Manifest"),
        ({"kind": "Pod"}, 'supported values: "Job", "JobSet", "PyTorchJob", "MPIJob", "Manifest"'),
        ({"duration": None}, "say for how long"),
        ({"retries": 101}, "should be less than or equal to 100"),
        ({"command": ["x" * 4000] * 5}, "is longer than 16384 characters"),
        ({"env": {f"A{number}": "x" * 4000 for number in range(5)}}, "is longer than 16384 characters"),
        ({"imagee": "a"}, 'unknown field "spec.imagee"'),
    ],
)
def test_the_api_server_refuses_what_is_no_job(changes: Object, words: str, counter: Counter) -> None:
    with pytest.raises(KubeError) as refused:
        counter.make(job(**changes))

    assert words in str(refused.value)


def test_what_runs_cannot_be_changed(counter: Counter) -> None:
    counter.make(job(env={"A": "1"}))

    for spec in ({"image": "a/b:2"}, {"env": {"A": "2"}}, {"command": ["x"]}, {"shape": "H200"}):
        with pytest.raises(KubeError, match="only priority, duration and earlyRelease can be changed"):
            counter.patch("gpujob", "train", {"spec": spec})
    counter.patch("gpujob", "train", {"spec": {"duration": "3h", "priority": 150}})


@pytest.mark.rotates
def test_what_a_tenant_writes_beside_the_spec_moves_nobody_else(counter: Counter) -> None:
    """Names as long as Kubernetes has them, finalizers, owners, a template that is not there, marks and a status of EGS."""
    user = member(counter.cluster, counter.namespace, "user")
    path = f"/apis/egs.io/v1alpha1/namespaces/{counter.namespace}/gpujobs"

    def tries(method: str, sub: str, body: Object, words: str) -> None:
        with pytest.raises(KubeError) as refused:
            counter.cluster.wire.call(method, f"{path}{sub}", body, user=user, **({"type_": MERGE} if method == "PATCH" else {}))
        assert words in str(refused.value)

    for key in (cluster_names.AUTO, cluster_names.HUB_TEMPLATE, cluster_names.REQUESTER):
        posing = job()
        posing["metadata"]["annotations"] = {key: "theirs"}
        tries("POST", "", posing, "annotation")
    tries("POST", "", job(duration=["1h"], nodes="many", retries=-1), "spec.nodes")
    tries("POST", "", job(env={"A": "x" * 2_000_000}), "spec.env.A")

    long = "a" * 253
    stays, owned = job("stays"), job("owned")
    stays["metadata"]["finalizers"] = ["own.io/stay"]
    owner = {"apiVersion": "egs.io/v1alpha1", "kind": "GPUJob", "name": "theirs", "uid": "00000000-0000-0000-0000-000000000000"}
    owned["metadata"]["ownerReferences"] = [owner]
    for each in (job(long), stays, owned, job("absent", template="theirs")):
        counter.cluster.wire.call("POST", path, each, user=user)
    counter.until("the long one", lambda: counter.claims(long))
    counter.until("the one that stays", lambda: counter.status("stays", "gpujob").get("state") == "QUEUED")
    counter.until("the one with a template of the hub", lambda: counter.claims("absent"))
    tries("PATCH", f"/{long}/status", {"status": {"state": "ACTIVE", "gprID": "theirs"}}, "cannot patch")
    assert counter.claims("stays")[0].requester == (user if counter.cluster.has(MUTATING) else "")
    assert {claim.template for claim in counter.claims("absent")} == {"theirs"}

    counter.cluster.wire.call("DELETE", f"{path}/stays", user=user)
    uid = counter.found("stays", "gpujob")["metadata"]["uid"]
    counter.until("its end is told", lambda: [claim for claim in counter.told if claim.uid == uid and claim.is_gone])
    counter.until(
        "Kubernetes clears away what has no owner", lambda: counter.cluster.get("gpujob", "owned", namespace=counter.namespace) is None
    )
    counter.for_a_while()
    assert not [claim for claim in counter.told if claim.namespace not in ("", counter.namespace)]
    counter.patch("gpujob", "stays", {"metadata": {"finalizers": None}})
