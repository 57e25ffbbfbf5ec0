"""What of ours is in the namespaces of workspaces, as the API server has it: each namespace by itself, a few at once, page by page.

Whoever administers a namespace may make objects there as many and as large as he likes, with any label. Must not live here: any write.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from protocol.cluster_names import ACCOUNT, ACCOUNTS, ISOLATION, SLICE, account_of
from worker_agent.cluster.base import ClusterError
from worker_agent.kube.api.client import Api, Forbidden, Missing
from worker_agent.kube.api.paging import Page, listed
from worker_agent.kube.tenancy.contents import Place, Thing

ABOUT: Final = "workspaces"  # a kind of ours, which an older install has not
DEFAULTS: Final = "limitranges"  # of which an older install gives no rights
# Where objects of each kind are, and what it is called when somebody had changed one.
KINDS: Final = {
    "networkpolicies": ("/apis/networking.k8s.io/v1", "network policy"),
    "resourcequotas": ("/api/v1", "quota"),
    DEFAULTS: ("/api/v1", "default requests"),
    "serviceaccounts": ("/api/v1", "account"),
    "rolebindings": ("/apis/rbac.authorization.k8s.io/v1", "role"),
    ABOUT: ("/apis/egs.io/v1alpha1", "workspace object"),
}
# Of the others the names say which are ours, or else the labels.
SELECTORS: Final[dict[str, dict[str, str]]] = {
    "networkpolicies": {"fieldSelector": f"metadata.name={ISOLATION}"},
    "resourcequotas": {"fieldSelector": f"metadata.name={ISOLATION}"},
    DEFAULTS: {"fieldSelector": f"metadata.name={ISOLATION}"},
    ABOUT: {"labelSelector": SLICE},
}
ACCOUNT_NAME: Final = re.compile(account_of("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"))  # ids of the hub are UUIDs
LOOKS_AT_ONCE: Final = 4  # namespaces
PAGE_COUNT: Final = 20  # each may be as large as an object can be
OBJECTS_MAX: Final = 2_000  # of a kind in one namespace
ACCOUNTS_MAX: Final = 100_000  # in the one of all kubeconfigs, where nobody else writes
ACCOUNTS_PAGE: Final = 500


@dataclass(slots=True)
class Inside:
    """One namespace. `has_about`: the kind ABOUT is installed."""

    objects: dict[Place, Thing] = field(default_factory=dict)
    has_about: bool = True


class Survey:
    def __init__(self, api: Api) -> None:
        self._api = api

    def look(self, namespaces: Sequence[str], *, known: Container[Place]) -> Iterator[tuple[str, Inside | ClusterError]]:
        """By namespace what is ours in it, or why it could not be seen. `known`: what we have written."""
        with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="egs-tenancy") as pool:
            yield from zip(namespaces, pool.map(lambda name: self._try_look_at(name, known), namespaces), strict=True)

    def named(self, place: Place) -> list[Thing]:
        """The one there, if it is."""
        kind, namespace, name = place
        escaped = re.sub(r"([\\,=])", r"\\\1", name)
        return list(self.list(_folder(kind, namespace), fieldSelector=f"metadata.name={escaped}"))

    def list(self, path: str, **selector: str) -> Iterator[Thing]:
        return listed(self._api, path, Page[Thing], page_count=PAGE_COUNT, **selector)

    def _try_look_at(self, namespace: str, known: Container[Place]) -> Inside | ClusterError:
        inside = Inside()
        try:
            for kind in ("serviceaccounts",) if namespace == ACCOUNTS else KINDS:
                self._look_at(kind, namespace, known, inside)
        except ClusterError as error:
            return error
        return inside

    def _look_at(self, kind: str, namespace: str, known: Container[Place], inside: Inside) -> None:
        try:
            most, page = (ACCOUNTS_MAX, ACCOUNTS_PAGE) if namespace == ACCOUNTS else (OBJECTS_MAX, PAGE_COUNT)
            things = listed(self._api, _folder(kind, namespace), Page[Thing], page_count=page, **SELECTORS.get(kind, {}))
            for count, thing in enumerate(things):
                if count >= most:
                    raise ClusterError(f"there are more than {most} {kind} in namespace {namespace}")
                place = (kind, namespace, thing.metadata.name)
                if kind in SELECTORS or place in known or _is_of_account(thing):
                    inside.objects[place] = thing
        except Missing:
            if kind != ABOUT:
                raise
            inside.has_about = False
        except Forbidden:
            if kind != DEFAULTS:
                raise


def path_of(place: Place) -> str:
    kind, namespace, name = place
    # The name of a RoleBinding may have a question mark, and would then speak of another one.
    return f"{_folder(kind, namespace)}/{quote(name)}"


def _folder(kind: str, namespace: str) -> str:
    return f"{KINDS[kind][0]}/namespaces/{namespace}/{kind}"


def _is_of_account(thing: Thing) -> bool:
    labels = thing.metadata.labels or {}
    return ACCOUNT_NAME.fullmatch(thing.metadata.name) is not None or SLICE in labels or ACCOUNT in labels
