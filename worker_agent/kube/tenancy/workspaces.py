"""Keeps workspaces on Kubernetes: each pass reads their namespaces, compares them with what the hub wants, and repairs differences.

A namespace from before is a conflict unless an administrator allowed its adoption. Unbinding removes access and the label; the namespace,
its data and its NetworkPolicy stay. Labels that tenants can write are not believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from protocol.assignments import Desired
from protocol.cluster_names import (
    ACCOUNTS,
    BOUND_TO,
    EXEMPT,
    ISOLATION,
    MAY_ADOPT,
    OF_CLUSTER,
    SLICE,
    pointer,
)
from protocol.tenancy.workspaces import Binding, BindingSeen, BindingState, IssuedToken, Workspace
from worker_agent.cluster.base import ClusterError, Note
from worker_agent.hub.workspaces import TenancyResult
from worker_agent.kube.api.client import Api, Forbidden, Missing
from worker_agent.kube.api.custom import JOB_KIND, REQUEST_KIND, Definition
from worker_agent.kube.api.installed import Installed
from worker_agent.kube.tenancy.access import ACCESS, WorkspaceAccess, sentence_of
from worker_agent.kube.tenancy.audit import NamespaceAudit
from worker_agent.kube.tenancy.contents import AppliedObject, NamespaceContents, TenancyObject
from worker_agent.kube.tenancy.isolation import (
    KINDS_COUNTED_S,
    QUOTA,
    about_status,
    about_workspace,
    default_requests,
    namespace_labels,
    network_policy,
    quota_of,
)
from worker_agent.kube.tenancy.kept_objects import KeptObjects
from worker_agent.kube.tenancy.referenced_names import ReferencedNames
from worker_agent.kube.tenancy.survey import ABOUT, DEFAULTS, NAMESPACES, Survey, path_of
from worker_agent.metrics import DRIFT_REPAIRS

ACCOUNT_RECREATED: Final = "Its account in the cluster was replaced, so it is no longer valid. Ask for a new one."


class Refused(Exception):
    """This namespace cannot be bound now; the message is for people."""

    def __init__(self, state: BindingState, detail: str) -> None:
        super().__init__(detail)
        self.state, self.detail = state, detail


class KubernetesTenancy:
    """One thread uses it. `server` and `ca` (PEM) go into kubeconfigs. `limits`: the quota of a namespace."""

    def __init__(self, *, api: Api, server: str, ca: str, note: Note, limits: Mapping[str, str] = QUOTA) -> None:
        self._api, self._note, self._limits = api, note, limits
        self._bound: dict[str, tuple[str, str]] = {}  # UID and workspace by name of each namespace that the agent bound
        self._were_counted = False
        self._survey = Survey(api)
        self._kept = KeptObjects(api, survey=self._survey, note=note)
        self._access = WorkspaceAccess(api, kept=self._kept, bound_slice=self._bound_slice, server=server, ca=ca, note=note)
        self._installed = Installed(api, note=note)
        self._audit = NamespaceAudit(api, note=note)
        self._referenced = ReferencedNames(api, note)

    def bound_to(self, namespace: str, uid: str) -> str:
        """Returns the workspace of this very namespace, or "". Any thread may ask."""
        known_uid, slice_ = self._bound.get(namespace, ("", ""))
        return slice_ if uid and uid == known_uid else ""

    def _bound_slice(self, namespace: str) -> str:
        return self._bound.get(namespace, ("", ""))[1]

    def reconcile(
        self, workspaces: Sequence[Workspace], *, in_use: frozenset[str], has_token: frozenset[str], repairs: bool
    ) -> TenancyResult:
        drifts = self._installed.look()
        try:
            contents = self._look(workspaces, repairs=repairs, in_use=in_use)
        except ClusterError as error:
            self._note("tenancy_unseen", {"why": str(error)})
            return TenancyResult(drifts=drifts + self._audit.remaining)
        left = self._access.revoke(workspaces, contents)
        # Unbinding goes first, so that another workspace may take the namespace in the same pass.
        listed = [
            (workspace, each) for workspace in workspaces for each in workspace.bindings if not contents.is_unreported(each.namespace)
        ]
        listed.sort(key=lambda pair: pair[1].desired != Desired.ABSENT)
        seen = [self._settle(workspace, binding, contents) for workspace, binding in listed]
        ready = {(each.slice, each.namespace) for each in seen if each.state is BindingState.READY}
        tokens = [
            self._access.issue(account, contents.home_of(account))
            for workspace in workspaces
            for account in workspace.accounts
            if account.token_s > 0 and account.id not in has_token and (workspace.id, account.namespace) in ready
        ]
        issued = tuple(token for token in tokens if token is not None)
        issued += tuple(IssuedToken(account=id_, failure=ACCOUNT_RECREATED) for id_ in contents.recreated)
        drifts += self._audit.look(contents.isolated, repairs=repairs)
        return TenancyResult(
            accounts_left=left if not contents.unseen else None,
            bindings=tuple(seen),
            tokens=issued,
            drifts=drifts,
            is_unfinished=self._audit.is_unfinished,
        )

    # -- look ----------------------------------------------------------------------------------------------------------

    def _look(self, workspaces: Sequence[Workspace], *, repairs: bool, in_use: frozenset[str]) -> NamespaceContents:
        namespaces = {obj.metadata.name: obj for obj in self._survey.list(NAMESPACES, labelSelector=SLICE)}
        unlabeled = {obj.metadata.name: obj for obj in self._survey.list(NAMESPACES, labelSelector=f"{BOUND_TO},!{SLICE}")}
        has_accounts = self._namespace(ACCOUNTS) is not None
        contents = NamespaceContents(
            namespaces, unlabeled, {}, repairs, in_use, counts_kinds=self._counts_kinds(), has_accounts=has_accounts
        )
        self._referenced.begin_pass()
        told = {binding.namespace for workspace in workspaces for binding in workspace.bindings if not _is_of_cluster(binding.namespace)}
        for name, seen in self._survey.look(
            sorted({*namespaces, *unlabeled, *self._bound, *told, *([ACCOUNTS] if has_accounts else [])}), known=self._kept.written
        ):
            if isinstance(seen, ClusterError):
                contents.unseen[name] = seen
                self._note("namespace_unseen", {"namespace": name, "why": str(seen)})
                continue
            contents.has_about = contents.has_about and seen.has_about
            contents.objects |= seen.objects
        return contents

    def _counts_kinds(self) -> bool:
        try:
            made = [made_at for kind in (REQUEST_KIND, JOB_KIND) if (made_at := self._made_at(kind)) is not None]
            self._were_counted = bool(made) and (datetime.now(UTC) - max(made)).total_seconds() >= KINDS_COUNTED_S
        except ClusterError as error:
            self._note("kinds_unseen", {"why": str(error)})
        return self._were_counted

    def _made_at(self, kind: str) -> datetime | None:
        """Returns None if an older installation lacks the kind. Raises ClusterError."""
        try:
            return self._api.get(kind, Definition).metadata.creationTimestamp
        except Missing:
            return None

    # -- one namespace -------------------------------------------------------------------------------------------------

    def _settle(self, workspace: Workspace, binding: Binding, contents: NamespaceContents) -> BindingSeen:
        state, detail = BindingState.READY, ""
        try:
            if unseen := contents.unseen.get(binding.namespace):
                raise unseen
            match binding.desired:
                case Desired.ABSENT:
                    self._unbind(workspace, binding.namespace, contents)
                    state = BindingState.UNBOUND
                case Desired.PRESENT:
                    self._bind(workspace, binding, contents)
                case unknown:
                    raise Refused(BindingState.WAITING, f"The agent does not know what {unknown} means. Upgrade it.")
        except Refused as refusal:
            state, detail = refusal.state, refusal.detail
        except ClusterError as error:
            self._note("namespace_unfinished", {"namespace": binding.namespace, "why": str(error)})
            state, detail = BindingState.WAITING, sentence_of(error)
        if contents.has_about and state is not BindingState.UNBOUND and self._is_ours(workspace, binding.namespace, contents):
            self._describe(workspace, binding.namespace, contents, detail)
        repaired, left = (tuple(dict.fromkeys(by.get(binding.namespace, ()))) for by in (contents.repaired, contents.left))
        DRIFT_REPAIRS.inc(len(repaired))
        for event, what in (("namespace_repaired", repaired), ("namespace_changed", left)):
            if what:
                self._note(event, {"namespace": binding.namespace, "what": ", ".join(what)})
        return BindingSeen(slice=workspace.id, namespace=binding.namespace, state=state, detail=detail, repaired=repaired, left=left)

    def _bind(self, workspace: Workspace, binding: Binding, contents: NamespaceContents) -> None:
        name = binding.namespace
        self._take(workspace, binding, contents)
        self._kept.keep(("networkpolicies", name, ISOLATION), network_policy(workspace, name), contents)
        contents.isolated[name] = workspace
        self._kept.keep(("resourcequotas", name, ISOLATION), self._quota(workspace, name, contents), contents)
        self._keep_defaults(workspace, name, contents)
        for account in workspace.accounts:
            self._access.admit(workspace, account, name, contents)

    def _keep_defaults(self, workspace: Workspace, name: str, contents: NamespaceContents) -> None:
        try:
            self._kept.keep((DEFAULTS, name, ISOLATION), default_requests(workspace, name), contents)
        except Forbidden as error:
            # An older role does not allow it, and neither access nor a box depends on it.
            self._note("default_requests_unwritten", {"namespace": name, "why": str(error)})

    def _quota(self, workspace: Workspace, name: str, contents: NamespaceContents) -> dict[str, Any]:
        return quota_of(workspace, name, limits=self._limits, counts_kinds=contents.counts_kinds)

    def _take(self, workspace: Workspace, binding: Binding, contents: NamespaceContents) -> None:
        """Labels the namespace, or creates it. Raises Refused where it is not ours."""
        name = binding.namespace
        if _is_of_cluster(name):
            raise Refused(BindingState.CONFLICT, "This namespace belongs to the cluster itself. Bind another one.")
        there = contents.namespaces.get(name) or self._namespace(name)
        if there is None:
            there = self._make(workspace, name, contents)
        elif there.is_going:
            raise Refused(BindingState.WAITING, "It is being deleted in the cluster. The agent creates it again after that.")
        else:
            self._check_ours(workspace, binding, there, contents)
            if wanted := {key: value for key, value in namespace_labels(workspace).items() if there.metadata.label(key) != value}:
                self._label_ours(workspace, there, wanted, contents)
        self._bound[name] = (there.metadata.uid, workspace.id)

    def _label_ours(self, workspace: Workspace, there: TenancyObject, wanted: dict[str, str], contents: NamespaceContents) -> None:
        name, was_ours = there.metadata.name, self._is_known(workspace, there)
        # Without the label the pods of an open box can be neither admitted nor removed.
        if was_ours and not contents.repairs and not (SLICE in wanted and contents.is_in_use(workspace, name)):
            contents.add_left("label", name)
            return
        try:
            self._label(there, wanted)
        except Forbidden as error:
            if there.metadata.label(SLICE) == workspace.id:
                raise
            raise Refused(BindingState.CONFLICT, _what_to_do(workspace, name, was_ours=was_ours)) from error
        if was_ours:
            contents.add_repaired("label", name)

    def _refuse_referenced(self, workspace: Workspace, name: str, contents: NamespaceContents) -> None:
        if self._referenced.is_referenced(name, own=contents.namespaces_of(workspace.id)):
            raise Refused(BindingState.CONFLICT, "Something in the cluster counts on a namespace of this name already. Bind another one.")

    def _make(self, workspace: Workspace, name: str, contents: NamespaceContents) -> TenancyObject:
        was_ours = self._is_ours(workspace, name, contents)
        if not was_ours:
            self._refuse_referenced(workspace, name, contents)
        if was_ours and not contents.repairs:
            contents.add_left("namespace", name)
            raise Refused(BindingState.WAITING, "Somebody deleted it in the cluster, whose policy says that it stays so.")
        made = self._api.create(NAMESPACES, _namespace_object(workspace, name), TenancyObject)
        if was_ours:
            contents.add_repaired("namespace", name)
            self._kept.forget(name)  # all objects in it are new, which is no repair
        return made

    def _namespace(self, name: str) -> TenancyObject | None:
        try:
            return self._api.get(f"{NAMESPACES}/{name}", TenancyObject)
        except Missing:
            return None

    def _check_ours(self, workspace: Workspace, binding: Binding, there: TenancyObject, contents: NamespaceContents) -> None:
        meta = there.metadata
        is_ours = self._is_known(workspace, there) or meta.label(SLICE) == workspace.id
        if not is_ours and not binding.may_adopt:  # the text does not tell whose it is
            raise Refused(
                BindingState.CONFLICT,
                "There was a namespace of this name before. An administrator may let this workspace adopt it; or bind another name.",
            )
        if meta.label(EXEMPT) == "true":
            raise Refused(BindingState.CONFLICT, "This namespace is exempt from EGS (label egs.io/exempt). Bind another one.")
        if is_ours:
            return
        if meta.label(SLICE):
            raise Refused(BindingState.CONFLICT, "In the cluster this namespace is bound to another workspace.")
        self._refuse_referenced(workspace, meta.name, contents)

    def _is_ours(self, workspace: Workspace, namespace: str, contents: NamespaceContents) -> bool:
        return self._bound_slice(namespace) == workspace.id

    def _describe(self, workspace: Workspace, namespace: str, contents: NamespaceContents, detail: str) -> None:
        wanted = about_workspace(workspace, namespace)
        place = (ABOUT, namespace, wanted["metadata"]["name"])
        try:
            for other in [each for each in contents.objects if each[:2] == place[:2] and each != place]:
                self._kept.delete(other, contents)  # the workspace was renamed
            self._kept.keep(place, wanted, contents)
            there = contents.objects.get(place)
            status = about_status(workspace, there.status if there else {}, detail, now=datetime.now(UTC))
            if there is None or there.status != status:
                body = {key: wanted[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": place[2]}, "status": status}
                left = self._api.apply(f"{path_of(place)}/status", body, TenancyObject)
                self._kept.written[place] = AppliedObject.of(wanted, left)
        except Missing:
            contents.has_about = False  # a pass over no namespaces does not notice it
        except ClusterError as error:
            self._note("workspace_undescribed", {"namespace": namespace, "why": str(error)})

    def _is_known(self, workspace: Workspace, there: TenancyObject) -> bool:
        """Tell whether the agent bound it, even if its label is gone."""
        # Only the agent and administrators can write this mark.
        is_marked = there.metadata.label(BOUND_TO) == workspace.id
        return is_marked or self._bound.get(there.metadata.name) == (there.metadata.uid, workspace.id)

    def _label(self, there: TenancyObject, labels: dict[str, str]) -> None:
        ops = [{"op": "test", "path": "/metadata/uid", "value": there.metadata.uid}]
        # An `add` needs an existing map of labels: each namespace has at least kubernetes.io/metadata.name.
        ops += [{"op": "add", "path": pointer("metadata", "labels", key), "value": value} for key, value in labels.items()]
        self._api.patch(f"{NAMESPACES}/{there.metadata.name}", ops, TenancyObject)

    # -- unbind --------------------------------------------------------------------------------------------------------

    def _unbind(self, workspace: Workspace, name: str, contents: NamespaceContents) -> None:
        if contents.is_in_use(workspace, name):
            raise Refused(BindingState.WAITING, "A GPR of the workspace still has nodes here. It is unbound when that has recreated.")
        self._bound.pop(name, None)
        if contents.slice_of(name) != workspace.id:
            if not contents.slice_of(name) and self._access.is_open_to_anybody(name, contents):
                raise Refused(BindingState.WAITING, f"People may still enter it. {_put_back(workspace, name)}")
            return
        if unlabeled := contents.unlabeled.get(name):
            self._label(unlabeled, namespace_labels(workspace))  # without it the agent may delete nothing there
        for kind in (*ACCESS, "resourcequotas", DEFAULTS, ABOUT):
            for place in [place for place in contents.objects if place[:2] == (kind, name)]:
                self._kept.remove(place, contents)
        is_marked = unlabeled is not None or bool(contents.namespaces[name].metadata.label(BOUND_TO))
        label = pointer("metadata", "labels", SLICE)
        ops = [{"op": "test", "path": label, "value": workspace.id}, {"op": "remove", "path": label}]
        ops += [{"op": "remove", "path": pointer("metadata", "labels", BOUND_TO)}] if is_marked else []
        self._api.patch(f"{NAMESPACES}/{name}", ops, TenancyObject)
        for seen in (contents.namespaces, contents.unlabeled):
            seen.pop(name, None)
        self._kept.forget(name)


def _is_of_cluster(namespace: str) -> bool:
    return namespace in OF_CLUSTER or namespace.startswith("kube-")


def _namespace_object(workspace: Workspace, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": namespace_labels(workspace)}}


def _what_to_do(workspace: Workspace, name: str, *, was_ours: bool) -> str:
    if was_ours:
        return _put_back(workspace, name)
    return f"The cluster does not let its agent bind this namespace: kubectl label namespace {name} {MAY_ADOPT}=true"


def _put_back(workspace: Workspace, name: str) -> str:
    return (
        "Somebody took its label egs.io/slice off, and the cluster does not let its agent put it back: "
        f"kubectl label namespace {name} {SLICE}={workspace.id} --overwrite"
    )
