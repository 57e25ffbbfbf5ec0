"""Waiting pods have owners; no owner that people write into their pods harms another workspace's requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.agent.fake_kube import Object, waiting_pod
from worker_agent.cluster.base import ClusterError, Unavailable, WriteConflict
from worker_agent.kube.api.client import Access, Api, Forbidden, Missing
from worker_agent.kube.api.custom import Custom
from worker_agent.kube.api.objects import Pod
from worker_agent.kube.pods.owners import READS_AT_ONCE
from worker_agent.kube.requests.automatic import AutomaticInputs, AutomaticRequests, ChosenTemplate

TEMPLATE = ChosenTemplate({"shape": "H100-80GB", "duration": "2h"})
UID = "11111111-aaaa-4aaa-8aaa-000000000001"


class OwnersApi:
    """It has by path the owner of an owner, or why that cannot be read. It keeps what is made as (namespace, nodes)."""

    def __init__(self, owners: Mapping[str, Object | ClusterError] | None = None) -> None:
        self.owners = owners or {}
        self.asked: list[str] = []
        self.made: list[tuple[str, int]] = []

    def get(self, path: str, type_: Any) -> Any:
        self.asked.append(path)
        found = self.owners.get(path, Missing("404"))
        if isinstance(found, ClusterError):
            raise found
        return msgspec.convert(found, type_)

    def create(self, path: str, body: Object, type_: Any) -> Custom:
        self.made.append((body["metadata"]["namespace"], body["spec"]["nodes"]))
        return msgspec.convert({**body, "metadata": {**body["metadata"], "uid": f"gpr-{len(self.made)}"}}, Custom)


def pod_of(name: str, namespace: str = "red", *, owner: str = "serve", uid: str = UID, kind: str = "Deployment", gpus: int = 8) -> Pod:
    pod = waiting_pod(name, namespace)
    pod["metadata"] |= {
        "creationTimestamp": datetime.now(UTC).isoformat(),
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": uid, "controller": True}],
    }
    pod["spec"]["containers"] = [{"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]
    return msgspec.convert(pod, Pod)


def replica(name: str, namespace: str, owner: str, uid: str = "") -> Pod:
    return pod_of(name, namespace, owner=owner, uid=uid or f"{namespace}-{name}", kind="ReplicaSet")


def auto_gpr(api: OwnersApi | Api, pods: Sequence[Pod]) -> AutomaticRequests:
    return AutomaticRequests(
        api=api,  # type: ignore[arg-type]
        pods=lambda: pods,
        nodes=lambda: (),
        learn=lambda _: None,
        note=lambda *_: None,
    )


def look(auto: AutomaticRequests, at_s: float, requests: Sequence[Custom] = ()) -> None:
    """Each namespace is a workspace's own, and has a template that says auto."""
    auto.look(AutomaticInputs(at_s, requests, (), str, {"red": TEMPLATE, "evil": TEMPLATE}))


@pytest.mark.parametrize("name", ["x/" + "y" * 70_000, "y" * 254, "x/status", "../../secrets", ""])
def test_a_name_that_no_owner_can_have_is_not_asked_for(name: str) -> None:
    api = OwnersApi()
    auto = auto_gpr(api, [replica("bad", "evil", name), pod_of("p0")])

    look(auto, 0.0)
    look(auto, 11.0)

    assert api.asked == []
    assert ("red", 1) in api.made


def test_a_call_with_an_impossible_path_is_refused_as_any_other() -> None:
    api = Api(Access(url="http://127.0.0.1:9", tls=False, bearer=lambda: ""))

    with pytest.raises(ClusterError):
        api.get(f"/api/v1/{'y' * 70_000}", msgspec.Raw)


def test_an_owner_that_may_not_be_read_holds_up_no_other_namespace() -> None:
    api = OwnersApi({"/apis/apps/v1/namespaces/evil/replicasets/x": Forbidden("403")})
    auto = auto_gpr(api, [replica("bad", "evil", "x"), pod_of("p0")])

    look(auto, 0.0)
    look(auto, 11.0)

    assert api.made == [("red", 1)]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Forbidden("exceeded quota: egs-slice"), "exceeded quota: egs-slice"),
        (WriteConflict("409 AlreadyExists"), ""),
        (Unavailable("504"), ""),
    ],
)
def test_pods_are_told_why_no_request_was_taken_but_not_what_may_be_otherwise_in_a_moment(error: ClusterError, why: str) -> None:
    class Refusing(OwnersApi):
        def create(self, *_: object) -> Custom:
            raise error

    pod = pod_of("p0")
    auto = auto_gpr(Refusing(), [pod])
    look(auto, 0.0)
    look(auto, 11.0)

    assert auto.unasked.get(pod.metadata.uid, "") == why


def test_thousands_of_owners_in_one_namespace_cost_each_look_a_bounded_number_of_calls() -> None:
    api = OwnersApi()
    auto = auto_gpr(api, [replica(f"p{number}", "evil", f"x{number}") for number in range(READS_AT_ONCE * 3)])
    counts = []

    for second in range(5):
        before = len(api.asked)
        look(auto, float(second))
        counts.append(len(api.asked) - before)

    assert counts == [READS_AT_ONCE] * 3 + [0, 0]
    assert len(set(api.asked)) == len(api.asked)


def test_a_namespace_with_ever_new_owners_takes_no_other_s_turn() -> None:
    api, pods = OwnersApi(), [replica("own", "red", "serve-1")]
    auto = auto_gpr(api, pods)

    for second in range(14):
        new = [replica(f"p{second}-{number}", "evil", f"x{number}") for number in range(READS_AT_ONCE * 2)]
        pods[:] = [*new, replica("own", "red", "serve-1")]
        look(auto, float(second))

    assert "/apis/apps/v1/namespaces/red/replicasets/serve-1" in api.asked
    assert ("red", 1) in api.made


def test_a_request_is_not_given_back_while_its_pods_may_be_among_those_whose_owners_are_read_next() -> None:
    meta = {"name": "serve", "namespace": "red", "uid": "g", "annotations": {"egs.io/auto": "true"}, "labels": {"egs.io/workload": UID}}
    made = msgspec.convert({"metadata": meta, "spec": {}, "status": {}}, Custom)
    released: list[str] = []
    api = OwnersApi({"/apis/apps/v1/namespaces/red/replicasets/serve-1": Forbidden("403")})
    api.patch = lambda path, *_: released.append(path)  # type: ignore[attr-defined]
    auto = auto_gpr(api, [replica("p0", "red", "serve-1")])

    look(auto, 0.0, [made])
    look(auto, 100.0, [made])

    assert released == []


@pytest.mark.parametrize(("state", "is_given_back"), [("QUEUED", True), ("PENDING_APPROVAL", True), ("ACTIVE", False)])
def test_a_request_that_waits_is_given_back_when_its_pods_run_elsewhere(state: str, is_given_back: bool) -> None:
    """It would take nodes for nothing. One that has its nodes may get pods of the same workload again."""
    meta = {"name": "serve", "namespace": "red", "uid": "g", "annotations": {"egs.io/auto": "true"}, "labels": {"egs.io/workload": UID}}
    made = msgspec.convert({"metadata": meta, "spec": {}, "status": {"state": state, "gprID": "mine"}}, Custom)
    released: list[str] = []

    def release(path: str, *_: Any) -> Custom:
        released.append(path)
        return made

    api = OwnersApi()
    api.patch = release  # type: ignore[attr-defined]
    pods = [pod_of("p0")]
    auto = auto_gpr(api, pods)

    look(auto, 0.0, [made])
    look(auto, 100.0, [made])
    assert released == []

    pods[0] = msgspec.structs.replace(pods[0], spec=msgspec.structs.replace(pods[0].spec, schedulingGates=()))
    look(auto, 110.0, [made])
    assert released == []
    look(auto, 171.0, [made])
    assert bool(released) is is_given_back


def test_a_pod_elsewhere_that_names_a_workload_s_uid_neither_takes_its_request_over_nor_makes_it_larger() -> None:
    api = OwnersApi()
    auto = auto_gpr(api, [*(pod_of(f"e{number}", "evil") for number in range(60)), pod_of("p0"), pod_of("p1")])

    look(auto, 0.0)
    look(auto, 11.0)

    assert sorted(api.made) == [("evil", 60), ("red", 2)]


def test_a_request_made_elsewhere_for_the_same_uid_is_not_what_pods_wait_for() -> None:
    meta = {"name": "theirs", "namespace": "evil", "uid": "g", "annotations": {"egs.io/auto": "true"}, "labels": {"egs.io/workload": UID}}
    theirs = msgspec.convert({"metadata": meta, "spec": {}, "status": {}}, Custom)
    api = OwnersApi()
    auto = auto_gpr(api, [pod_of("p0"), pod_of("e0", "evil")])

    look(auto, 0.0, [theirs])
    look(auto, 11.0, [theirs])

    assert api.made == [("red", 1)]
    assert auto.waits_for["uid-evil-e0"] == "theirs"
