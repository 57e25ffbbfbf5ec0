"""Gives access to the namespaces of workspaces by RoleBindings, ServiceAccounts and tokens of the accounts that the hub names.

Must not live here: the namespaces themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from protocol.cluster_names import ACCOUNT, ACCOUNTS, account_of, role_of
from protocol.tenancy.workspaces import AccessRole, Account, IssuedToken, Workspace
from worker_agent.cluster.base import ClusterError, Note, Throttled, Unavailable, WriteConflict
from worker_agent.kube.api.client import Api, Forbidden, Missing
from worker_agent.kube.tenancy.contents import NamespaceContents, ObjectKey, TenancyObject, TokenAnswer
from worker_agent.kube.tenancy.isolation import role_binding, service_account
from worker_agent.kube.tenancy.kept_objects import KeptObjects
from worker_agent.kube.tenancy.survey import ACCOUNT_NAME, NAMESPACES

ACCESS: Final = ("rolebindings", "serviceaccounts")  # kinds that give access, in the order of their removal
LEAST_ROLE: Final = role_of(AccessRole.VIEWER)
DETAIL_MAX_CHARS: Final = 300


class WorkspaceAccess:
    """One thread uses it. `bound_slice` returns the workspace to which the agent bound a namespace, or ""."""

    def __init__(self, api: Api, *, kept: KeptObjects, bound_slice: Callable[[str], str], server: str, ca: str, note: Note) -> None:
        self._api, self._kept, self._bound_slice, self._note = api, kept, bound_slice, note
        self._server, self._ca = server, ca  # for kubeconfigs; the CA is PEM

    def revoke(self, workspaces: Sequence[Workspace], contents: NamespaceContents) -> tuple[str, ...]:
        """Returns the accounts that are left."""
        accounts = {workspace.id: {account.id: account for account in workspace.accounts} for workspace in workspaces}
        # For places where no label names the workspace:
        accounts[""] = {id_: account for of_one in accounts.values() for id_, account in of_one.items()}
        # These stay: accounts of unlisted workspaces, accounts in namespaces without labels, and objects that the cluster did not delete.
        left = set()
        places = [*contents.objects, *(place for place in self._kept.written if place[1] in contents.unseen)]
        # The end of a RoleBinding takes effect within a millisecond, that of a ServiceAccount after ten seconds.
        for kind in ACCESS:
            for place in places:
                id_ = self._account_in(place, contents)
                if place[0] != kind or not id_:
                    continue
                slice_ = contents.owner_of(place) or self._bound_slice(place[1])
                account = accounts.get(slice_, {}).get(id_)
                if account is not None and (kind == "rolebindings" or contents.home_of(account) == place[1]):
                    continue
                is_known = slice_ in accounts or (place[1] == ACCOUNTS and not contents.namespaces_of(slice_))
                if not is_known or not slice_ or not self._kept.try_remove(place, contents):
                    left.add(id_)
        return tuple(sorted(left))

    def _account_in(self, place: ObjectKey, contents: NamespaceContents) -> str:
        if place in self._kept.written or ACCOUNT_NAME.fullmatch(place[2]):
            return place[2].removeprefix(account_of(""))  # its label may be wrong or gone
        there = contents.objects.get(place)
        return there.metadata.label(ACCOUNT) if there else ""

    def is_open_to_anybody(self, namespace: str, contents: NamespaceContents) -> bool:
        return any(place[0] in ACCESS and place[1] == namespace and self._account_in(place, contents) for place in contents.objects)

    def admit(self, workspace: Workspace, account: Account, namespace: str, contents: NamespaceContents) -> None:
        name = account_of(account.id)
        home = contents.home_of(account)
        if account.namespace == namespace:
            self._keep_account(workspace, account, ("serviceaccounts", home, name), contents)
        place, wanted = ("rolebindings", namespace, name), role_binding(workspace, account, namespace, home=home)
        there = contents.objects.get(place)
        if there is not None and not contents.repairs and _gives_more(there, wanted):
            self._kept.remove(place, contents)
        try:
            self._kept.keep(place, wanted, contents)
        except WriteConflict:  # the role of a RoleBinding cannot be changed
            self._kept.remove(place, contents)
            self._kept.keep(place, wanted, contents)

    def _keep_account(self, workspace: Workspace, account: Account, place: ObjectKey, contents: NamespaceContents) -> None:
        is_new = place not in contents.objects  # a new one has another UID, so tokens from before are invalid
        self._kept.keep(place, service_account(workspace, account, place[1]), contents, about=account.namespace)
        if is_new and account.token_s == 0 and place in self._kept.written:
            contents.recreated.append(account.id)

    def issue(self, account: Account, home: str) -> IssuedToken | None:
        """Asks for a token; returns None if the next pass has to try again."""
        path = f"{NAMESPACES}/{home}/serviceaccounts/{account_of(account.id)}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": account.token_s}}
        try:
            answer = self._api.create(path, body, TokenAnswer)
        except (Unavailable, Throttled, Missing, Forbidden) as error:  # also 403: an API server that has just started may answer so
            self._note("token_delayed", {"account": account.id, "why": str(error)})
            return None
        except ClusterError as error:
            self._note("token_refused", {"account": account.id, "why": str(error)})
            return IssuedToken(account=account.id, failure=sentence_of(error))
        return IssuedToken(
            account=account.id,
            token=answer.status.token,
            expires_s=answer.status.expirationTimestamp.timestamp(),
            server=self._server,
            ca=self._ca,
        )


def _gives_more(there: TenancyObject, wanted: dict[str, Any]) -> bool:
    # The hub does not want this role any more, and it is not the least one.
    return bool(there.roleRef != wanted["roleRef"] and there.roleRef.get("name") != LEAST_ROLE)


def sentence_of(error: ClusterError) -> str:
    match error:
        case Forbidden():
            said = "The agent lacks a right in the cluster"
        case WriteConflict():
            said = "The cluster refused it"
        case _:
            said = "The cluster did not do it; it is tried again"
    return f"{said}: {error}"[:DETAIL_MAX_CHARS]
