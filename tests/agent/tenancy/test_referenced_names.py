"""No workspace gets a namespace whose name something in the cluster counts on: it would get what waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import cluster_names
from protocol.tenancy.workspaces import Binding, BindingSeen, BindingState, Workspace
from tests.agent.fake_kube import Object
from tests.agent.tenancy.test_revoking import TenancyApi, look_at
from worker_agent.kube.api.client import Forbidden
from worker_agent.kube.tenancy import referenced_names
from worker_agent.kube.tenancy.workspaces import KubernetesTenancy

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
RED = "/api/v1/namespaces/red"
SERVICE = {"service": {"name": "hook", "namespace": "red"}}
BY_NAME = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["other", "red"]}

WAITING: dict[str, Object] = {
    f"{RBAC}/clusterrolebindings/x": {"subjects": [{"kind": "Group", "name": "system:serviceaccounts:red"}]},
    f"{RBAC}/clusterrolebindings/y": {"subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "red"}]},
    f"{RBAC}/clusterrolebindings/z": {"subjects": [{"kind": "User", "name": "system:serviceaccount:red:operator"}]},
    f"{RBAC}/rolebindings/x": {"subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": "red"}]},
    f"{ADMISSION}/validatingwebhookconfigurations/x": {"webhooks": [{"clientConfig": {"url": "https://x"}}, {"clientConfig": SERVICE}]},
    f"{ADMISSION}/mutatingwebhookconfigurations/x": {"webhooks": [{"clientConfig": SERVICE}]},
    "/apis/apiregistration.k8s.io/v1/apiservices/x": {"spec": SERVICE},
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x": {"spec": {"conversion": {"webhook": {"clientConfig": SERVICE}}}},
    "/api/v1/persistentvolumes/x": {"spec": {"claimRef": {"name": "data", "namespace": "red"}}},
    "/apis/networking.k8s.io/v1/networkpolicies/x": {
        "spec": {"ingress": [{}, {"from": [{"podSelector": {}}, {"namespaceSelector": {"matchExpressions": [BY_NAME]}}]}]}
    },
}


def asking(api: TenancyApi, *, may_adopt: bool = False) -> tuple[KubernetesTenancy, Workspace, list[Any]]:
    notes: list[Any] = []
    tenancy = KubernetesTenancy(api=api, server="s", ca="c", note=lambda event, fields: notes.append((event, fields)))  # type: ignore[arg-type]
    return tenancy, Workspace(id="s1", name="red", bindings=(Binding(namespace="red", may_adopt=may_adopt),)), notes


def put(api: TenancyApi, path: str, body: Object, *, inside: str = "elsewhere") -> None:
    api.objects[path] = {**body, "metadata": {"name": path.rpartition("/")[2], "namespace": inside}}


def seen(tenancy: KubernetesTenancy, workspace: Workspace) -> BindingSeen:
    return look_at(tenancy, workspace).bindings[0]


@pytest.mark.parametrize("path", WAITING)
def test_a_name_that_something_waits_for_is_neither_made_nor_adopted_and_the_owner_learns_nothing_of_it(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = TenancyApi()
    put(api, path, WAITING[path])
    tenancy, workspace, notes = asking(api)

    found = seen(tenancy, workspace)

    assert (found.state, RED in api.objects) == (BindingState.CONFLICT, False)
    assert found.detail == "Something in the cluster counts on a namespace of this name already. Bind another one."
    assert [(event, path.rpartition("/")[2] in fields["by"]) for event, fields in notes if event == "namespace_awaited"] == [
        ("namespace_awaited", True)
    ]

    api.put(RED, {"metadata": {"name": "red", "labels": {}}})
    adopting, willing, _ = asking(api, may_adopt=True)
    assert seen(adopting, willing).state is BindingState.CONFLICT
    assert cluster_names.SLICE not in api.objects[RED]["metadata"]["labels"]

    del api.objects[path], api.objects[RED]
    listed = len(api.lists)
    assert seen(tenancy, workspace).state is BindingState.CONFLICT
    assert not [each for each in api.lists[listed:] if each == f"{RBAC}/clusterrolebindings"]  # not read again at each look
    monkeypatch.setattr(referenced_names, "REFUSED_AGAIN_S", 0.0)
    assert seen(tenancy, workspace).state is BindingState.READY


def test_what_is_in_the_namespace_itself_or_in_others_of_the_workspace_waits_for_nothing_that_it_has_not() -> None:
    api = TenancyApi()
    path = f"{RBAC}/rolebindings/x"
    put(api, path, WAITING[path], inside="red-data")
    api.put("/api/v1/namespaces/red-data", {"metadata": {"name": "red-data", "labels": {cluster_names.SLICE: "s1"}}})
    tenancy, workspace, _ = asking(api)

    assert seen(tenancy, workspace).state is BindingState.READY


def test_a_namespace_that_is_bound_stays_so_whatever_is_bound_to_its_accounts_later() -> None:
    api = TenancyApi()
    tenancy, workspace, _ = asking(api)
    assert seen(tenancy, workspace).state is BindingState.READY
    path = f"{RBAC}/clusterrolebindings/x"
    put(api, path, WAITING[path])

    assert seen(asking(api)[0], workspace).state is BindingState.READY


def test_where_the_agent_may_not_look_nothing_is_bound() -> None:
    api = TenancyApi()
    api.faults[f"{RBAC}/clusterrolebindings"] = Forbidden("403")
    tenancy, workspace, _ = asking(api)

    assert (seen(tenancy, workspace).state, RED in api.objects) == (BindingState.WAITING, False)


def test_a_namespace_that_is_there_is_refused_in_the_same_words_whoever_has_it() -> None:
    details = set()
    for labels in ({}, {cluster_names.SLICE: "s2"}, {cluster_names.EXEMPT: "true"}):
        api = TenancyApi()
        api.put(RED, {"metadata": {"name": "red", "labels": labels}})
        found = seen(*asking(api)[:2])
        assert found.state is BindingState.CONFLICT
        details.add(found.detail)

    assert len(details) == 1
