"""Workspaces in a real cluster: made, kept as they shall be, opened to those whom the hub names, and given up again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import msgspec
import pytest

from protocol import cluster_names
from protocol.assignments import Desired
from protocol.nodes.drift import Drift
from protocol.tenancy.workspaces import AccessRole, Account, Binding, BindingSeen, BindingState, IssuedToken, Workspace
from slices.kubeconfigs.services import kubeconfig_text
from tests.e2e.processes import wait_for
from tests.kube.cluster import CLAIMS, SOON_S, Cluster, KubeError
from tests.kube.corner import CornerApi
from tests.kube.site import access_as_agent
from tests.kube.world import pod
from worker_agent.cluster.base import Throttled
from worker_agent.hub.workspaces import TenancyResult
from worker_agent.kube.api.client import Access, Api, Forbidden
from worker_agent.kube.tenancy import referenced_names
from worker_agent.kube.tenancy.isolation import role_binding
from worker_agent.kube.tenancy.workspaces import KubernetesTenancy

# Each day: test_labels.py, tests/agent/tenancy, and tests/kube/isolation
pytestmark = pytest.mark.rotates

NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True)
class House:
    """A workspace with one namespace, an agent that keeps it, and what the agent said last."""

    cluster: Cluster
    workspace: Workspace
    notes: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    apis: list[Api] = field(default_factory=list)
    repairs: bool = True
    looks_at_installation: bool = False  # a hundred calls at each look, which test_installed.py is about
    tenancy: KubernetesTenancy = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    @property
    def key(self) -> str:
        """Returns the key of its corner of the cluster, which is part of its namespace's name."""
        return self.workspace.id[:8]

    def start(self) -> None:
        self.start_at(access_as_agent(self.cluster, key=self.key))

    def start_at(self, access: Access) -> None:
        self.apis.append(CornerApi(access))
        note = lambda event, fields: self.notes.append((event, fields))  # noqa: E731
        self.tenancy = KubernetesTenancy(api=self.apis[-1], server=access.url, ca=access.ca, note=note)
        if not self.looks_at_installation:
            self.tenancy._installed.look = tuple  # type: ignore[method-assign]

    def leave(self) -> None:
        for api in self.apis:
            api.close()

    @property
    def namespace(self) -> str:
        return self.workspace.bindings[0].namespace

    def change(self, **changes: Any) -> None:
        self.workspace = msgspec.structs.replace(self.workspace, **changes)

    def found(self, *others: Workspace, in_use: frozenset[str] = NOBODY, has_token: frozenset[str] = NOBODY) -> TenancyResult:
        return self.tenancy.reconcile((self.workspace, *others), in_use=in_use, has_token=has_token, repairs=self.repairs)

    def settle(self, **given: Any) -> BindingSeen:
        return self.found(**given).bindings[0]

    def make(self) -> None:
        assert self.settle() == self.seen(BindingState.READY)

    def seen(self, state: BindingState, detail: str = "", *repaired: str) -> BindingSeen:
        return BindingSeen(slice=self.workspace.id, namespace=self.namespace, state=state, detail=detail, repaired=repaired)

    def left(self, *what: str) -> BindingSeen:
        return BindingSeen(slice=self.workspace.id, namespace=self.namespace, state=BindingState.READY, left=what)

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        return self.cluster.get(kind, name, namespace=self.namespace)

    def labels(self) -> dict[str, str]:
        found = self.cluster.get("namespace", self.namespace)
        assert found is not None
        return dict(found["metadata"]["labels"])

    def everything(self) -> dict[str, Any]:
        """All that the agent keeps there, without what the server counts."""
        kinds = ("networkpolicies", "resourcequotas", "limitranges", "rolebindings", "serviceaccounts")
        kept = [item for kind in kinds for item in self.cluster.list(kind, namespace=self.namespace, selector="egs.io/slice")]
        kept += self.cluster.list("serviceaccounts", namespace=cluster_names.ACCOUNTS, selector=f"egs.io/slice={self.workspace.id}")
        parts = ("spec", "roleRef", "subjects")
        return {
            f"{item['kind']}/{item['metadata']['name']}": (item["metadata"]["labels"], [item.get(part) for part in parts]) for item in kept
        }

    def has_account(self, account: Account) -> bool:
        return self.cluster.get("serviceaccount", f"egs-{account.id}", namespace=cluster_names.ACCOUNTS) is not None

    def let_in(self, role: AccessRole, *, token_s: int = 3600) -> Account:
        account = Account(id=str(uuid4()), role=role, namespace=self.namespace, token_s=token_s)
        self.change(accounts=(*self.workspace.accounts, account))
        return account

    def token_of(self, account: Account) -> IssuedToken:
        (token,) = [token for token in self.found().tokens if token.account == account.id]
        assert not token.failure
        return token


def used(house: House) -> dict[str, str]:
    quota = house.get("resourcequota", "egs-slice")
    return dict(quota["status"].get("used", {})) if quota else {}


def guests_of(workspace: Workspace) -> dict[str, Any]:
    """Namespaces that an administrator of the cluster lets into all workspaces, or into this one, and that are no workspace's."""
    may_enter = {"key": "egs.io/may-enter", "operator": "In", "values": ["true", workspace.id]}
    return {"namespaceSelector": {"matchExpressions": [may_enter, {"key": "egs.io/slice", "operator": "DoesNotExist"}]}}


def a_workspace(**changes: Any) -> Workspace:
    id_ = str(uuid4())
    return Workspace(**{"id": id_, "name": f"w-{id_[:8]}", "bindings": (Binding(namespace=f"ns-{id_[:8]}"),), **changes})


@pytest.fixture
def house(cluster: Cluster) -> Iterator[House]:
    made = House(cluster, a_workspace())
    yield made
    made.leave()


def as_holder(cluster: Cluster, tmp_path: Path, house: House, token: IssuedToken) -> Callable[..., str]:
    """kubectl with the kubeconfig that the hub makes of the token."""
    path = tmp_path / f"{token.account}.yaml"
    text = kubeconfig_text(
        cluster="aurora", user="holder", server=token.server, ca=token.ca, token=token.token, namespaces=[house.namespace]
    )
    path.write_text(text)

    def run(*arguments: str) -> str:
        command = [str(cluster.programs / "kubectl"), "--kubeconfig", str(path), "--request-timeout=30s", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise KubeError(done.stderr)
        return done.stdout

    def soon() -> str:
        """A new RoleBinding holds a moment later."""
        try:
            return run("get", "configmaps", "--output=name")
        except KubeError:
            return ""

    wait_for("the kubeconfig works", soon, within_s=SOON_S)
    return run


def test_a_namespace_is_made_shut_off_and_bounded_and_a_second_look_changes_nothing(house: House) -> None:
    house.let_in(AccessRole.USER, token_s=0)

    house.make()

    assert {key: value for key, value in house.labels().items() if key != "kubernetes.io/metadata.name"} == {
        "egs.io/slice": house.workspace.id,
        "egs.io/bound-to": house.workspace.id,
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/audit": "restricted",
        "pod-security.kubernetes.io/warn": "restricted",
    }
    policy, quota = house.get("networkpolicy", "egs-slice"), house.get("resourcequota", "egs-slice")
    assert policy is not None
    assert quota is not None
    same_slice = {"namespaceSelector": {"matchLabels": {"egs.io/slice": house.workspace.id}}}
    assert policy["spec"]["podSelector"] == {}
    assert policy["spec"]["ingress"] == [{"from": [same_slice, guests_of(house.workspace)]}]
    assert policy["spec"]["egress"][0] == {"to": [same_slice]}
    assert {port["port"] for port in policy["spec"]["egress"][1]["ports"]} == {53}
    assert quota["spec"]["hard"]["pods"] == "1k"
    kinds = ("networkpolicies", "rolebindings", "serviceaccounts")
    before = [house.cluster.list(kind, namespace=house.namespace) for kind in kinds]
    house.make()
    assert [house.cluster.list(kind, namespace=house.namespace) for kind in kinds] == before
    assert house.notes == []


def test_pods_that_come_are_no_reason_to_write_the_quota_again_and_a_changed_one_is_still_mended(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.make()
    house.cluster.apply(pod("train", metadata={"namespace": house.namespace}))
    wait_for("the pod is counted", lambda: used(house).get("pods") == "1", within_s=SOON_S)
    apply = Mock(wraps=house.apis[-1].apply)
    monkeypatch.setattr(house.apis[-1], "apply", apply)

    house.make()

    assert apply.call_count == 0
    house.cluster.patch("resourcequota", "egs-slice", {"spec": {"hard": {"pods": "2k"}}}, namespace=house.namespace)
    assert house.settle() == house.seen(BindingState.READY, "", "quota")
    assert apply.call_count == 1


def test_an_agent_that_starts_again_finds_all_as_it_is(house: House) -> None:
    house.let_in(AccessRole.VIEWER, token_s=0)
    house.make()

    house.start()

    house.make()
    assert house.notes == []


def test_a_pod_that_is_not_restricted_is_refused_in_it(house: House) -> None:
    house.make()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "root", "namespace": house.namespace},
        "spec": {"containers": [{"name": "main", "image": "none", "securityContext": {"privileged": True}}]},
    }

    with pytest.raises(KubeError, match="PodSecurity"):
        house.cluster.apply(pod)


DAMAGES: dict[str, tuple[list[str], str]] = {
    "the network policy deleted": (["delete", "networkpolicy", "egs-slice"], "network policy"),
    "the network policy opened": (
        ["patch", "networkpolicy", "egs-slice", "--type=merge", '--patch={"spec":{"ingress":[{}]}}'],
        "network policy",
    ),
    "the network policy's label off": (["label", "networkpolicy", "egs-slice", "egs.io/slice-"], "network policy"),
    "the quota raised": (["patch", "resourcequota", "egs-slice", "--type=merge", '--patch={"spec":{"hard":{"pods":"100k"}}}'], "quota"),
    "the quota deleted": (["delete", "resourcequota", "egs-slice"], "quota"),
    "the account deleted": (["delete", "serviceaccount", "{account}", "--namespace", cluster_names.ACCOUNTS], "account"),
    "the role deleted": (["delete", "rolebinding", "-l", "egs.io/account"], "role"),
    "another in the role": (
        ["patch", "rolebinding", "{account}", "--type=json", '--patch=[{"op":"replace","path":"/subjects/0/name","value":"default"}]'],
        "role",
    ),
}


def do_damage(house: House, damage: str, account: Account) -> str:
    """Returns what of the workspace is told then."""
    command, what = DAMAGES[damage]
    words = [word.format(account=f"egs-{account.id}") if word.startswith("{a") else word for word in command]
    house.cluster.kubectl("--namespace", house.namespace, *words)
    return what


def test_what_is_changed_by_hand_is_mended_and_told(house: House) -> None:
    account = house.let_in(AccessRole.USER, token_s=0)
    house.make()
    as_it_shall_be = house.everything()

    for damage in DAMAGES:
        what = do_damage(house, damage, account)

        assert house.settle() == house.seen(BindingState.READY, "", what), damage
        assert house.everything() == as_it_shall_be, damage
        house.make()


@pytest.mark.parametrize("restarts", [False, True], ids=["same agent", "agent started again"])
def test_where_the_policy_says_so_what_is_changed_by_hand_is_told_and_left(restarts: bool, house: House) -> None:
    account = house.let_in(AccessRole.USER, token_s=0)
    house.make()
    for damage in ("the network policy opened", "the quota raised", "another in the role"):
        what = do_damage(house, damage, account)
        damaged = house.everything()
        house.repairs = False
        if restarts:
            house.start()

        for _ in range(2):
            assert house.settle() == house.left(what), damage
        assert house.everything() == damaged

        house.repairs = True
        house.settle()
        assert house.everything() != damaged, damage


def test_where_the_policy_says_so_what_is_deleted_by_hand_stays_deleted(house: House) -> None:
    house.make()
    house.repairs = False
    house.cluster.kubectl("--namespace", house.namespace, "delete", "resourcequota", "egs-slice")
    house.cluster.label("namespace", house.namespace, "pod-security.kubernetes.io/enforce-")

    assert house.settle() == house.left("label", "quota")
    assert house.get("resourcequota", "egs-slice") is None
    assert "pod-security.kubernetes.io/enforce" not in house.labels()


def test_a_new_limit_of_the_hub_holds_also_where_the_policy_says_to_repair_nothing(house: House) -> None:
    house.repairs = False
    house.make()
    house.start()

    house.change(pods_max=7)

    house.make()
    quota = house.get("resourcequota", "egs-slice")
    assert quota is not None
    assert quota["spec"]["hard"]["pods"] == "7"


# --- what somebody added


def policy_of(house: House, name: str, **spec: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": house.namespace}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": about, "spec": {"podSelector": {}, **spec}}


def added_drifts(house: House) -> list[Drift]:
    return [drift for drift in house.found().drifts if drift.is_added and drift.what.endswith(f" in namespace {house.namespace}")]


OPENINGS: dict[str, dict[str, Any]] = {
    "all in": {"ingress": [{}]},
    "all out": {"policyTypes": ["Egress"], "egress": [{}]},
    "one address in": {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
}


@pytest.mark.parametrize("opening", OPENINGS)
def test_a_network_policy_that_opens_the_fence_is_seen_and_taken_away_by_the_next_look(opening: str, described: House) -> None:
    described.make()
    described.cluster.apply(policy_of(described, "sneak", **OPENINGS[opening]))

    (drift,) = added_drifts(described)

    assert (drift.what, drift.is_repaired) == (f"network policies in namespace {described.namespace}", True)
    assert drift.detail == "1 that EGS does not keep and that let traffic through: sneak."
    assert described.get("networkpolicy", "sneak") is None
    assert described.get("networkpolicy", "egs-slice") is not None
    ((event, kept),) = described.notes
    assert (event, str(kept["object"]).rpartition("/")[2]) == ("network_policy_deleted", "sneak")
    assert OPENINGS[opening].items() <= json.loads(str(kept["spec"])).items()
    assert added_drifts(described) == []


@pytest.mark.parametrize("label", ["", "egs.io/slice"])
def test_where_the_policy_says_so_a_network_policy_that_opens_the_fence_is_told_and_left(label: str, house: House) -> None:
    """This holds also for one that has our label."""
    house.make()
    house.repairs = False
    house.cluster.apply(policy_of(house, "sneak", ingress=[{}]))
    if label:
        house.cluster.label("networkpolicy", "sneak", f"{label}={house.workspace.id}", namespace=house.namespace)

    first, second = added_drifts(house), added_drifts(house)

    assert [drift.is_repaired for drift in first] == [False]
    assert first == second
    assert house.get("networkpolicy", "sneak") is not None


def test_an_agent_that_lacks_the_right_to_take_it_away_tells_it_and_keeps_the_namespace_ready(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That happens when the agent is upgraded before the install script has run again."""
    house.make()
    house.cluster.apply(policy_of(house, "sneak", ingress=[{}]))

    def forbidden(*_: object, **__: object) -> None:
        raise Forbidden("403")

    monkeypatch.setattr(Api, "delete", forbidden)
    monkeypatch.setattr(Api, "patch", forbidden)

    found = house.found()

    assert found.bindings == (house.seen(BindingState.READY),)
    assert [drift.is_repaired for drift in found.drifts if house.namespace in drift.what] == [False]


def test_a_network_policy_that_a_finalizer_holds_lets_nothing_through_any_more(described: House) -> None:
    described.make()
    held = policy_of(described, "held", ingress=[{}])
    held["metadata"]["finalizers"] = ["egs.test/held"]
    described.cluster.apply(held)

    (drift,) = added_drifts(described)

    assert drift.is_repaired
    there = described.get("networkpolicy", "held")
    assert there is not None
    assert "ingress" not in there["spec"]
    assert added_drifts(described) == []
    described.cluster.patch("networkpolicy", "held", {"metadata": {"finalizers": None}}, namespace=described.namespace)


def test_a_network_policy_that_an_administrator_marked_stays(described: House) -> None:
    described.make()
    store = policy_of(described, "to-store", policyTypes=["Egress"], egress=[{"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}]}])
    store["metadata"]["labels"] = {"egs.io/keep": "true"}
    described.cluster.apply(store)

    assert added_drifts(described) == []
    assert described.get("networkpolicy", "to-store") is not None


def test_the_fence_is_watched_also_where_something_else_of_the_namespace_fails(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.make()
    house.let_in(AccessRole.USER, token_s=0)
    house.cluster.apply(policy_of(house, "sneak", ingress=[{}]))
    apply = Api.apply

    def failing(self: Api, path: str, *words: Any, **more: Any) -> Any:
        if "/rolebindings/" in path:
            raise Forbidden("403")
        return apply(self, path, *words, **more)

    monkeypatch.setattr(Api, "apply", failing)

    found = house.found()

    assert [seen.state for seen in found.bindings] == [BindingState.WAITING]
    assert house.get("networkpolicy", "sneak") is None


def test_a_network_policy_that_only_closes_is_nobodys_business(house: House) -> None:
    house.make()
    house.cluster.apply(policy_of(house, "closer", policyTypes=["Ingress", "Egress"]))

    assert added_drifts(house) == []
    assert house.get("networkpolicy", "closer") is not None


@pytest.mark.parametrize("repairs", [True, False])
def test_a_role_that_somebody_gives_in_a_workspaces_namespace_is_told_and_left(repairs: bool, house: House) -> None:
    house.let_in(AccessRole.USER, token_s=0)
    house.make()
    house.repairs = repairs
    house.cluster.kubectl("create", "rolebinding", "team", "-n", house.namespace, "--clusterrole=view", "--user=alice", "--group=devs")

    (drift,) = added_drifts(house)

    assert drift == Drift(
        what=f"role bindings in namespace {house.namespace}",
        detail="1 that EGS does not keep: team (ClusterRole view to Group devs, User alice).",
        is_added=True,
    )
    assert house.get("rolebinding", "team") is not None


def test_a_role_that_passes_for_one_of_ours_is_told(house: House) -> None:
    """It has the labels of an account that there is."""
    account = house.let_in(AccessRole.VIEWER, token_s=0)
    house.make()
    house.cluster.kubectl("create", "rolebinding", "sneak", "-n", house.namespace, "--clusterrole=admin", "--user=eve")
    house.cluster.kubectl(
        "label", "rolebinding", "sneak", "-n", house.namespace, f"egs.io/slice={house.workspace.id}", f"egs.io/account={account.id}"
    )

    assert [drift.detail for drift in added_drifts(house)] == ["1 that EGS does not keep: sneak (ClusterRole admin to User eve)."]


def test_a_role_binding_with_an_odd_name_takes_no_other_with_it(house: House) -> None:
    """It looks like one of ours that is to go."""
    account = house.let_in(AccessRole.USER, token_s=0)
    house.make()
    odd = role_binding(house.workspace, msgspec.structs.replace(account, id="gone"), house.namespace)
    odd["metadata"]["name"] = f"egs-{account.id}?gone"
    house.cluster.apply(odd)

    house.found()

    assert house.get("rolebinding", f"egs-{account.id}") is not None
    left = [binding["metadata"]["name"] for binding in house.cluster.list("rolebindings", namespace=house.namespace)]
    assert left == [f"egs-{account.id}"]


def test_what_is_added_in_namespaces_of_no_workspace_is_nobodys_business(house: House) -> None:
    house.make()
    house.change(bindings=(Binding(namespace=house.namespace, desired=Desired.ABSENT),))
    house.found()
    house.cluster.apply(policy_of(house, "own", ingress=[{}]))

    assert added_drifts(house) == []
    assert house.get("networkpolicy", "own") is not None


def test_a_role_that_was_exchanged_is_put_back_though_a_role_cannot_be_changed(house: House) -> None:
    account = house.let_in(AccessRole.VIEWER, token_s=0)
    house.make()
    name = f"egs-{account.id}"
    house.cluster.kubectl("delete", "rolebinding", name, "--namespace", house.namespace)
    house.cluster.kubectl(
        "create", "rolebinding", name, "--namespace", house.namespace, "--clusterrole=admin", f"--serviceaccount={house.namespace}:{name}"
    )

    assert house.settle() == house.seen(BindingState.READY)

    binding = house.get("rolebinding", name)
    assert binding is not None
    assert binding["roleRef"]["name"] == "egs-slice-viewer"


def test_a_new_limit_of_the_hub_holds_and_is_no_repair(house: House) -> None:
    house.make()

    house.change(pods_max=7, may_reach_out=True)

    house.make()
    quota, policy = house.get("resourcequota", "egs-slice"), house.get("networkpolicy", "egs-slice")
    assert quota is not None
    assert policy is not None
    assert quota["spec"]["hard"]["pods"] == "7"
    assert policy["spec"]["egress"][2]["to"][0] == {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}


def test_a_namespace_that_was_there_before_is_left_alone_until_an_administrator_lets_it_be_adopted(house: House) -> None:
    house.cluster.make_namespace(house.namespace)
    before = house.labels()

    refused = house.settle()

    assert (refused.state, house.labels()) == (BindingState.CONFLICT, before)
    assert "adopt" in refused.detail
    assert house.everything() == {}
    house.change(bindings=(Binding(namespace=house.namespace, may_adopt=True),))
    house.cluster.label("namespace", house.namespace, "egs.io/may-adopt=true")
    wait_for("the adopted namespace", lambda: house.settle().state is BindingState.READY, within_s=SOON_S)
    assert house.labels()["egs.io/slice"] == house.workspace.id


@pytest.mark.parametrize(("label", "words"), [("egs.io/slice=somebody", "another workspace"), ("egs.io/exempt=true", "exempt")])
def test_what_is_another_s_or_exempt_is_not_even_adopted(label: str, words: str, house: House) -> None:
    house.cluster.make_namespace(house.namespace)
    house.cluster.label("namespace", house.namespace, label)
    house.change(bindings=(Binding(namespace=house.namespace, may_adopt=True),))

    refused = house.settle()

    assert refused.state is BindingState.CONFLICT
    assert words in refused.detail
    assert "somebody" not in refused.detail
    assert house.everything() == {}


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "egs-system"])
def test_those_of_the_cluster_are_never_taken(name: str, cluster: Cluster) -> None:
    house = House(cluster, a_workspace(bindings=(Binding(namespace=name, may_adopt=True),)))

    refused = house.settle()

    house.change(bindings=())
    house.leave()
    assert refused.state is BindingState.CONFLICT


def test_one_that_is_being_deleted_is_waited_for_and_then_made_anew(house: House) -> None:
    house.make()
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": house.namespace, "finalizers": ["egs.test/held"]},
    }
    house.cluster.apply(config)
    house.cluster.delete("namespace", house.namespace)

    waiting = house.settle()

    assert waiting.state is BindingState.WAITING
    assert "being deleted" in waiting.detail
    house.cluster.patch("configmap", "held", {"metadata": {"finalizers": None}}, namespace=house.namespace)
    wait_for("the namespace is gone", lambda: house.cluster.get("namespace", house.namespace) is None, within_s=SOON_S)
    assert house.settle() == house.seen(BindingState.READY, "", "namespace")
    house.make()


def test_it_is_unbound_when_its_box_is_out_and_keeps_what_is_in_it(house: House) -> None:
    house.let_in(AccessRole.USER, token_s=0)
    house.make()
    house.cluster.kubectl("create", "configmap", "work", "--namespace", house.namespace, "--from-literal=epoch=3")
    house.change(bindings=(Binding(namespace=house.namespace, desired=Desired.ABSENT),), accounts=())

    for in_use in (house.workspace.id, house.workspace.name, house.namespace):
        waiting = house.settle(in_use=frozenset({in_use}))
        assert (waiting.state, house.labels()["egs.io/slice"]) == (BindingState.WAITING, house.workspace.id)

    assert house.settle() == house.seen(BindingState.UNBOUND)
    assert not {"egs.io/slice", "egs.io/bound-to"} & house.labels().keys()
    assert house.labels()["pod-security.kubernetes.io/enforce"] == "restricted"
    assert list(house.everything()) == ["NetworkPolicy/egs-slice"]
    assert house.get("configmap", "work") is not None
    assert house.settle() == house.seen(BindingState.UNBOUND)


def test_what_one_gives_up_another_gets_only_with_an_administrator_s_word(house: House) -> None:
    house.make()
    namespace = house.namespace
    house.change(bindings=(Binding(namespace=namespace, desired=Desired.ABSENT),))
    heir = a_workspace(bindings=(Binding(namespace=namespace),))

    first, second = house.found(heir).bindings

    assert (first.state, second.state) == (BindingState.UNBOUND, BindingState.CONFLICT)
    heir = msgspec.structs.replace(heir, bindings=(Binding(namespace=namespace, may_adopt=True),))
    house.cluster.label("namespace", namespace, "egs.io/may-adopt=true")
    assert [seen.state for seen in house.found(heir).bindings] == [BindingState.UNBOUND, BindingState.READY]
    assert house.labels()["egs.io/slice"] == heir.id
    policy = house.get("networkpolicy", "egs-slice")
    assert policy is not None
    same_slice = {"namespaceSelector": {"matchLabels": {"egs.io/slice": heir.id}}}
    assert policy["spec"]["ingress"] == [{"from": [same_slice, guests_of(heir)]}]


def test_a_workspace_that_the_list_misses_is_left_as_it_is(house: House) -> None:
    house.let_in(AccessRole.USER, token_s=0)
    house.make()
    before = (house.labels(), house.everything())

    house.tenancy.reconcile((a_workspace(bindings=()),), in_use=NOBODY, has_token=NOBODY, repairs=True)
    house.tenancy.reconcile((), in_use=NOBODY, has_token=NOBODY, repairs=True)

    assert (house.labels(), house.everything()) == before


def test_a_word_of_a_newer_hub_changes_nothing_and_is_told(house: House) -> None:
    house.make()
    before = house.everything()
    house.change(bindings=(Binding(namespace=house.namespace, desired="FROZEN"),))

    assert "FROZEN" in house.settle().detail
    assert house.everything() == before


def test_a_kubeconfig_is_good_for_its_namespaces_and_role_and_for_no_other(house: House, tmp_path: Path) -> None:
    editor, viewer = house.let_in(AccessRole.USER), house.let_in(AccessRole.VIEWER)
    tokens = {token.account: token for token in house.found().tokens}
    works, looks = (as_holder(house.cluster, tmp_path, house, tokens[account.id]) for account in (editor, viewer))

    works("create", "configmap", "work", "--from-literal=epoch=3")

    assert "work" in looks("get", "configmaps")
    for run, command in (
        (looks, "create configmap mine --from-literal=a=b"),
        (works, "get configmaps --namespace default"),
        (works, "get nodes"),
        (works, "get serviceaccounts"),
        (works, f"delete rolebinding egs-{viewer.id}"),
    ):
        with pytest.raises(KubeError, match=r"(?i)forbidden"):
            run(*command.split())


def test_one_kubeconfig_is_good_in_all_namespaces_of_the_workspace(house: House, tmp_path: Path) -> None:
    second = f"{house.namespace}-b"
    house.change(bindings=(*house.workspace.bindings, Binding(namespace=second)))
    token = house.token_of(house.let_in(AccessRole.USER))

    as_holder(house.cluster, tmp_path, house, token)("create", "configmap", "there", "--namespace", second)

    assert house.cluster.get("configmap", "there", namespace=second) is not None


def test_a_kubeconfig_ends_when_the_hub_lists_it_no_more_and_the_others_go_on(house: House, tmp_path: Path) -> None:
    lost, kept = house.let_in(AccessRole.USER), house.let_in(AccessRole.USER)
    tokens = {token.account: token for token in house.found().tokens}
    of_lost, of_kept = (as_holder(house.cluster, tmp_path, house, tokens[account.id]) for account in (lost, kept))
    of_lost("get", "configmaps")

    house.change(accounts=(kept,))
    house.found(has_token=frozenset({kept.id}))

    with pytest.raises(KubeError, match=r"(?i)forbidden|unauthorized|logged in"):
        of_lost("get", "configmaps")
    assert not house.has_account(lost)
    of_kept("get", "configmaps")


def left_in(house: House) -> frozenset[str]:
    """Others may be there, of workspaces that are not listed here."""
    left = house.found().accounts_left
    assert left is not None
    return frozenset(left)


def test_accounts_that_are_left_are_told_until_they_are_gone(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = house.let_in(AccessRole.USER)
    assert lost.id not in left_in(house)

    def throttled(self: Api, path: str) -> None:
        raise Throttled

    house.change(accounts=())
    with monkeypatch.context() as faulty:
        faulty.setattr(Api, "delete", throttled)
        assert lost.id in left_in(house)

    assert lost.id not in left_in(house)


def test_the_account_of_a_workspace_that_is_not_listed_is_left_and_told(house: House) -> None:
    account = house.let_in(AccessRole.USER)
    house.found()

    found = house.tenancy.reconcile((), in_use=NOBODY, has_token=NOBODY, repairs=True)

    assert account.id in (found.accounts_left or ())
    assert house.has_account(account)


def test_a_change_of_role_changes_what_the_same_kubeconfig_may_do(house: House, tmp_path: Path) -> None:
    account = house.let_in(AccessRole.USER)
    holder = as_holder(house.cluster, tmp_path, house, house.token_of(account))
    holder("create", "configmap", "first")

    house.change(accounts=(msgspec.structs.replace(account, role=AccessRole.VIEWER, token_s=0),))
    house.make()

    with pytest.raises(KubeError, match=r"(?i)forbidden"):
        holder("create", "configmap", "second")
    assert "first" in holder("get", "configmaps")


def test_a_token_is_made_once_and_says_itself_how_long_it_lives(house: House) -> None:
    account = house.let_in(AccessRole.USER, token_s=600)

    token = house.token_of(account)

    assert token.token
    assert token.token not in repr(token)
    assert token.server.startswith("https://")
    assert "BEGIN CERTIFICATE" in token.ca
    assert house.found(has_token=frozenset({account.id})).tokens == ()
    house.change(accounts=(msgspec.structs.replace(account, token_s=60),))
    (refused,) = house.found().tokens
    assert (refused.token, "10 minutes" in refused.failure) == ("", True)


def test_no_token_is_made_while_its_namespace_is_not_ready(house: House) -> None:
    house.cluster.make_namespace(house.namespace)
    house.let_in(AccessRole.USER)

    assert house.found().tokens == ()


def test_a_cluster_that_does_not_answer_is_no_news(house: House) -> None:
    house.make()
    house.looks_at_installation, access = True, access_as_agent(house.cluster)
    house.start_at(msgspec.structs.replace(access, url="https://127.0.0.1:9"))

    assert house.found() == TenancyResult()
    assert [event for event, _ in house.notes] == ["installation_unseen", "priority_classes_unseen", "tenancy_unseen"]


# --- the object that says what a namespace is


@pytest.fixture
def described(cluster: Cluster) -> Iterator[House]:
    """The kinds are installed here. The agent has only its own rights."""
    made = House(cluster, a_workspace(name="Vision & Speech"))
    yield made
    made.leave()


def about(house: House) -> dict[str, Any]:
    (item,) = house.cluster.list("workspaces", namespace=house.namespace)
    return item


def test_members_read_in_their_namespace_what_their_workspace_is(described: House) -> None:
    described.make()

    found = about(described)

    assert found["metadata"]["name"] == "vision-speech"
    assert found["spec"] == {"id": described.workspace.id, "podsMax": 1000, "mayReachOut": False}
    assert found["status"]["namespaces"] == [described.namespace]
    assert [(each["type"], each["status"]) for each in found["status"]["conditions"]] == [("Ready", "True")]
    described.make()
    described.start()
    described.make()
    assert about(described)["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


def test_it_follows_what_the_hub_says_and_goes_when_the_namespace_is_given_up(described: House) -> None:
    described.make()
    before = about(described)

    described.change(name="audio", pods_max=7)
    described.make()

    after = about(described)
    assert (after["metadata"]["name"], after["spec"]["podsMax"]) == ("audio", 7)
    assert before["spec"]["podsMax"] == 1000
    described.change(bindings=(Binding(namespace=described.namespace, desired=Desired.ABSENT),))
    assert described.settle().state is BindingState.UNBOUND
    assert described.cluster.list("workspaces", namespace=described.namespace) == []


def test_what_somebody_wrote_into_it_is_put_right(described: House) -> None:
    described.make()

    described.cluster.patch("workspace", "vision-speech", {"spec": {"podsMax": 9}}, namespace=described.namespace)

    assert described.settle() == described.seen(BindingState.READY, "", "workspace object")
    assert about(described)["spec"]["podsMax"] == 1000


# --- what it may not have


def test_a_name_that_rights_wait_for_is_not_taken_with_the_rights_that_the_agent_has(
    described: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(referenced_names, "REFUSED_AGAIN_S", 0.0)
    name = f"waits-{described.namespace}"
    described.cluster.kubectl(
        "create", "clusterrolebinding", name, "--clusterrole=view", f"--group=system:serviceaccounts:{described.namespace}"
    )

    refused = described.settle()
    there = described.cluster.get("namespace", described.namespace)
    described.cluster.kubectl("delete", "clusterrolebinding", name)

    assert (refused.state, there) == (BindingState.CONFLICT, None)
    assert name not in refused.detail
    described.make()


def test_a_container_that_asks_for_nothing_is_given_requests_so_that_it_may_be_let_in_beside_others(described: House) -> None:
    described.make()

    described.cluster.apply(pod("silent", metadata={"namespace": described.namespace}))

    made = described.get("pod", "silent")
    assert made is not None
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "100m", "memory": "256Mi"}


def test_members_open_no_ports_of_nodes_and_make_no_more_of_anything_than_the_quota_says(described: House) -> None:
    described.make()
    wait_for("the quota", lambda: "services.nodeports" in used(described), within_s=SOON_S)

    for kind in ("nodeport", "loadbalancer"):
        with pytest.raises(KubeError, match="exceeded quota"):
            described.cluster.kubectl("create", "service", kind, "door", "--tcp=80", "-n", described.namespace)
    described.cluster.kubectl("create", "service", "clusterip", "door", "--tcp=80", "-n", described.namespace)
    quota = described.get("resourcequota", "egs-slice")
    assert quota is not None
    unknown = set() if described.cluster.has(CLAIMS) else {key for key in quota["spec"]["hard"] if "resourceclaim" in key}
    assert quota["spec"]["hard"].keys() == used(described).keys() | unknown  # Kubernetes counts all that it knows
