"""Access that the hub took away is gone, and told as gone once it is seen so, whatever somebody did to the objects in his namespace."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from protocol.assignments import Desired
from protocol.tenancy.workspaces import AccessRole, Account, Binding, BindingState, Workspace
from tests.agent.fake_kube import Object
from worker_agent.cluster.base import Unavailable, WriteConflict
from worker_agent.hub.workspaces import TenancyResult
from worker_agent.kube.api.client import Forbidden, Missing
from worker_agent.kube.api.custom import JOB_KIND, REQUEST_KIND
from worker_agent.kube.tenancy import survey
from worker_agent.kube.tenancy.isolation import role_binding
from worker_agent.kube.tenancy.kept_objects import with_digest
from worker_agent.kube.tenancy.survey import NAMESPACES
from worker_agent.kube.tenancy.workspaces import KubernetesTenancy

NOBODY: frozenset[str] = frozenset()
ID = "11111111-aaaa-4aaa-8aaa-000000000001"
BINDING = f"/apis/rbac.authorization.k8s.io/v1/namespaces/red/rolebindings/egs-{ID}"
SERVICE_ACCOUNT = f"/api/v1/namespaces/egs-accounts/serviceaccounts/egs-{ID}"
OLD_ACCOUNT = f"/api/v1/namespaces/red/serviceaccounts/egs-{ID}"  # where they were once
ACCOUNTS = "/api/v1/namespaces/egs-accounts"


class TenancyApi:
    """It answers by path. An object with finalizers stays when it is deleted. `lists` has what was listed."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.lists: list[str] = []
        self.faults: dict[str, Exception] = {}
        self.kind: Object | None = None  # the definition of requests
        self._version = 10
        self.put(ACCOUNTS, {"metadata": {"name": "egs-accounts"}})

    def put(self, path: str, body: Object) -> Object:
        self._version += 1
        before = self.objects.get(path)
        meta = {"namespace": path.split("/namespaces/")[1].split("/", maxsplit=1)[0]} | body["metadata"]
        uid = before["metadata"]["uid"] if before else f"uid-{self._version}"
        self.objects[path] = {**deepcopy(body), "metadata": {**meta, "uid": uid, "resourceVersion": str(self._version)}}
        return self.objects[path]

    def touch(self, path: str, **meta: Any) -> None:
        there = self.objects[path]
        self.put(path, {**there, "metadata": {**there["metadata"], **meta}})

    def get(self, path: str, type_: Any, **params: Any) -> Any:
        if fault := self.faults.get(path):
            raise fault
        if path in {REQUEST_KIND, JOB_KIND}:
            if not self.kind:
                raise Missing(path)
            return msgspec.convert(self.kind, type_)
        if "limit" not in params:
            if "/namespaces" in path and path in self.objects:
                return msgspec.convert(self.objects[path], type_)
            if path.count("/") > 4 or path.startswith("/api/v1/namespaces/"):
                raise Missing(path)
            return msgspec.convert({"items": []}, type_)
        self.lists.append(path)
        found = list(self._selected(path, **params))
        begin = int(params.get("continue", 0))
        more = {"continue": str(begin + params["limit"])} if len(found) > begin + params["limit"] else {}
        return msgspec.convert({"items": found[begin : begin + params["limit"]], "metadata": more}, type_)

    def _selected(self, folder: str, *, labelSelector: str = "", fieldSelector: str = "", **_: Any) -> Iterable[Object]:  # as on the wire
        for path, each in self.objects.items():
            meta, named = each["metadata"], fieldSelector.removeprefix("metadata.name=")
            is_named = not named or meta["name"] == named
            if path.rpartition("/")[0] == folder and is_named and (not labelSelector or labelSelector in meta.get("labels", {})):
                yield each

    def create(self, path: str, body: Object, type_: Any) -> Any:
        return msgspec.convert(self.put(f"{path}/{body['metadata']['name']}", body), type_)

    def apply(self, path: str, body: Object, type_: Any, **params: Any) -> Any:
        path = path.removesuffix("/status")
        before = self.objects.get(path, {})
        if "roleRef" in body and before.get("roleRef", body["roleRef"]) != body["roleRef"]:
            raise WriteConflict("422 cannot change roleRef")
        if params.get("dryRun"):
            return msgspec.convert({**before, **body}, type_)
        return msgspec.convert(self.put(path, {**before, **body, "metadata": {**before.get("metadata", {}), **body["metadata"]}}), type_)

    def patch(self, path: str, ops: list[Object], type_: Any) -> None:
        assert ops[0] == {"op": "test", "path": "/metadata/uid", "value": self.objects[path]["metadata"]["uid"]}
        assert ops[1:] == [{"op": "remove", "path": "/metadata/finalizers"}]
        del self.objects[path]

    def delete(self, path: str) -> None:
        if path not in self.objects:
            raise Missing(path)
        if self.objects[path]["metadata"].get("finalizers"):
            self.touch(path, deletionTimestamp="2026-11-25T08:00:00Z")
        else:
            del self.objects[path]

    def access(self) -> list[str]:
        return sorted(path for path in self.objects if path.endswith(f"/egs-{ID}"))


def tenancy_at(api: TenancyApi) -> KubernetesTenancy:
    return KubernetesTenancy(api=api, server="s", ca="c", note=lambda *_: None)  # type: ignore[arg-type]


def red(role: AccessRole | None) -> Workspace:
    """Returns a workspace with an account of this role, or with none."""
    accounts = (Account(id=ID, role=role, namespace="red", token_s=0),) if role else ()
    return Workspace(id="s1", name="red", bindings=(Binding(namespace="red"),), accounts=accounts)


def look(tenancy: KubernetesTenancy, role: AccessRole | None, *, repairs: bool = True) -> TenancyResult:
    return look_at(tenancy, red(role), repairs=repairs)


def look_at(tenancy: KubernetesTenancy, workspace: Workspace, *, repairs: bool = True) -> TenancyResult:
    return tenancy.reconcile((workspace,), in_use=NOBODY, has_token=NOBODY, repairs=repairs)


def given() -> tuple[TenancyApi, KubernetesTenancy]:
    api = TenancyApi()
    tenancy = tenancy_at(api)
    look(tenancy, AccessRole.USER)
    assert api.access() == sorted([BINDING, SERVICE_ACCOUNT])
    return api, tenancy


@pytest.mark.parametrize("repairs", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("labels", [{}, {"egs.io/slice": "s2"}, {"egs.io/slice": "s1", "egs.io/account": "another"}])
def test_an_account_whose_labels_somebody_changed_is_revoked_by_its_name(labels: dict[str, str], restarts: bool, repairs: bool) -> None:
    api, tenancy = given()
    api.put(OLD_ACCOUNT, {"metadata": {"name": f"egs-{ID}"}})
    for path in (BINDING, OLD_ACCOUNT):
        api.touch(path, labels=labels)
    tenancy = tenancy_at(api) if restarts else tenancy

    found = look(tenancy, None, repairs=repairs)

    assert (api.access(), found.accounts_left) == ([], ())


def test_access_that_a_finalizer_holds_is_taken_away_all_the_same() -> None:
    """An object that is being deleted grants its rights until it is gone."""
    api, tenancy = given()
    api.touch(BINDING, finalizers=["a.b/held"])

    found = look(tenancy, None)

    assert (api.access(), found.accounts_left) == ([], ())


def test_an_account_that_is_still_seen_is_not_told_as_gone() -> None:
    api, tenancy = given()
    api.touch(BINDING, finalizers=["a.b/held"])
    api.patch = lambda *_: None  # type: ignore[method-assign]

    assert look(tenancy, None).accounts_left == (ID,)


@pytest.mark.parametrize("fault", [Unavailable("504"), None])
def test_what_could_not_be_looked_at_is_not_told_as_gone(fault: Exception | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may have made too many objects there."""
    api, tenancy = given()
    if fault:
        api.faults[BINDING.rpartition("/")[0]] = fault
    else:
        monkeypatch.setattr(survey, "OBJECTS_MAX", 0)

    found = look(tenancy_at(api), None)

    assert found.accounts_left is None
    assert [seen.state for seen in found.bindings] == ([] if fault else [BindingState.WAITING])
    assert look(tenancy, None).accounts_left is None
    assert api.access() == []


GIVEN_UP = Workspace(id="s1", name="red", bindings=(Binding(namespace="red", desired=Desired.ABSENT),))


def without_labels() -> tuple[TenancyApi, KubernetesTenancy]:
    """Somebody took both off the namespace, so the policies let the agent write nothing there."""
    api, tenancy = given()
    api.touch("/api/v1/namespaces/red", labels={})

    def refuse(path: str, *_: object) -> None:
        raise Forbidden(path)

    api.delete = refuse  # type: ignore[method-assign]
    api.patch = refuse  # type: ignore[assignment]
    return api, tenancy


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("workspace", [red(None), GIVEN_UP], ids=["revoked", "unbound"])
def test_access_to_a_namespace_that_lost_both_labels_is_told_as_left_until_it_is_gone(workspace: Workspace, restarts: bool) -> None:
    api, tenancy = without_labels()
    tenancy = tenancy_at(api) if restarts else tenancy

    for _ in range(3):
        assert look_at(tenancy, workspace).accounts_left == (ID,)
    for path in api.access():
        del api.objects[path]

    assert look_at(tenancy, workspace).accounts_left == ()


@pytest.mark.parametrize("restarts", [True, False])
def test_a_namespace_that_lost_both_labels_is_unbound_once_nobody_may_enter_and_until_then_told_with_what_to_do(restarts: bool) -> None:
    api, tenancy = without_labels()
    tenancy = tenancy_at(api) if restarts else tenancy

    for _ in range(3):
        (seen,) = look_at(tenancy, GIVEN_UP).bindings
        assert (seen.state, "kubectl label namespace red egs.io/slice=s1" in seen.detail) == (BindingState.WAITING, True)
    for path in api.access():
        del api.objects[path]

    assert [seen.state for seen in look_at(tenancy, GIVEN_UP).bindings] == [BindingState.UNBOUND]


def test_who_may_still_enter_a_namespace_that_lost_both_labels_is_not_told_as_left() -> None:
    api, _ = without_labels()

    found = look(tenancy_at(api), AccessRole.USER)

    assert (found.accounts_left, [seen.state for seen in found.bindings]) == ((), [BindingState.CONFLICT])


@pytest.mark.parametrize("name", ["default", "kube-public"])
def test_namespaces_of_the_cluster_itself_are_not_looked_at_though_somebody_bound_them(name: str) -> None:
    api = TenancyApi()

    (seen,) = look_at(tenancy_at(api), Workspace(id="s1", name="red", bindings=(Binding(namespace=name),))).bindings

    assert (seen.state, api.lists) == (BindingState.CONFLICT, [NAMESPACES, NAMESPACES, f"{ACCOUNTS}/serviceaccounts"])


def test_an_object_with_our_labels_in_a_namespace_of_no_workspace_is_nothing_to_us() -> None:
    """Neither does it keep an account from being told as gone, nor is it even read."""
    api, tenancy = given()
    elsewhere = "/apis/rbac.authorization.k8s.io/v1/namespaces/elsewhere/rolebindings/mine"
    labels = {"egs.io/slice": "s9", "egs.io/account": ID}
    api.put(elsewhere, {"metadata": {"name": "mine", "labels": labels}, "roleRef": {}, "subjects": []})

    found = look(tenancy, None)

    assert found.accounts_left == ()
    assert elsewhere in api.objects
    assert not any("elsewhere" in path for path in api.lists)


def test_objects_of_others_in_a_bound_namespace_stay() -> None:
    api, tenancy = given()
    others = [BINDING.replace(f"egs-{ID}", name) for name in ("ci", "egs-admins")]
    for path in others:
        api.put(path, {"metadata": {"name": path.rpartition("/")[2]}, "roleRef": {}, "subjects": []})

    look(tenancy, None)

    assert all(path in api.objects for path in others)


@pytest.mark.parametrize("restarts", [True, False])
def test_a_member_made_a_viewer_is_one_at_once_whatever_is_written_into_the_binding(restarts: bool) -> None:
    """This holds also where the cluster repairs nothing: the mark is what the agent would say, but somebody else wrote it."""
    api, tenancy = given()
    viewer = red(AccessRole.VIEWER)
    mark = with_digest(role_binding(viewer, viewer.accounts[0], "red"))["metadata"]["annotations"]
    api.touch(BINDING, annotations=mark)
    tenancy = tenancy_at(api) if restarts else tenancy

    look(tenancy, AccessRole.VIEWER, repairs=False)

    assert api.objects[BINDING]["roleRef"]["name"] == "egs-slice-viewer"


def test_accounts_move_to_where_no_workspace_names_the_place_and_the_old_ones_and_their_tokens_end() -> None:
    api = TenancyApi()
    accounts = api.objects.pop(ACCOUNTS)
    look(tenancy_at(api), AccessRole.USER)
    assert api.access() == sorted([BINDING, OLD_ACCOUNT])  # by an installation from before, and not for lack of the place nobody at all

    api.objects[ACCOUNTS] = accounts
    found = look(tenancy := tenancy_at(api), AccessRole.USER)

    assert (api.access(), found.accounts_left) == (sorted([BINDING, SERVICE_ACCOUNT]), ())
    assert api.objects[BINDING]["subjects"] == [{"kind": "ServiceAccount", "name": f"egs-{ID}", "namespace": "egs-accounts"}]
    assert [(token.account, "was replaced" in token.failure) for token in found.tokens] == [(ID, True)]
    assert look(tenancy, AccessRole.USER).tokens == ()


def test_the_accounts_of_a_workspace_go_with_the_last_of_it_and_those_of_one_that_is_only_not_listed_stay() -> None:
    api, tenancy = given()

    assert tenancy.reconcile((), in_use=NOBODY, has_token=NOBODY, repairs=True).accounts_left == (ID,)
    assert api.access() == sorted([BINDING, SERVICE_ACCOUNT])

    del api.objects["/api/v1/namespaces/red"], api.objects[BINDING]
    assert tenancy_at(api).reconcile((), in_use=NOBODY, has_token=NOBODY, repairs=True).accounts_left == ()
    assert api.access() == []
