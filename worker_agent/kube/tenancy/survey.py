"""Reads the objects of EGS in the namespaces of workspaces, a few namespaces in parallel. It writes nothing.

Others may create many large objects there, with any label.
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
from worker_agent.kube.api.paging import ObjectPage, listed
from worker_agent.kube.tenancy.contents import ObjectKey, TenancyObject

NAMESPACES: Final = "/api/v1/namespaces"
ABOUT: Final = "workspaces"  # a kind of EGS, missing in older installations
DEFAULTS: Final = "limitranges"  # older installations give no rights to it
# By kind: its API path, and its name in reports of changes.
KINDS: Final = {
    "networkpolicies": ("/apis/networking.k8s.io/v1", "network policy"),
    "resourcequotas": ("/api/v1", "quota"),
    DEFAULTS: ("/api/v1", "default requests"),
    "serviceaccounts": ("/api/v1", "account"),
    "rolebindings": ("/apis/rbac.authorization.k8s.io/v1", "role"),
    ABOUT: ("/apis/egs.io/v1alpha1", "workspace object"),
}
# Objects of the other kinds are known by their names, or else by their labels.
SELECTORS: Final[dict[str, dict[str, str]]] = {
    "networkpolicies": {"fieldSelector": f"metadata.name={ISOLATION}"},
    "resourcequotas": {"fieldSelector": f"metadata.name={ISOLATION}"},
    DEFAULTS: {"fieldSelector": f"metadata.name={ISOLATION}"},
    ABOUT: {"labelSelector": SLICE},
}
ACCOUNT_NAME: Final = re.compile(account_of("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"))  # ids of the hub are UUIDs
LOOKS_AT_ONCE: Final = 4  # namespaces in parallel
PAGE_COUNT: Final = 20  # each may be as large as an object can be
OBJECTS_MAX: Final = 2_000  # of a kind in one namespace
ACCOUNTS_MAX: Final = 100_000  # in the namespace of accounts, where nobody else writes
ACCOUNTS_PAGE: Final = 500


@dataclass(slots=True)
class NamespaceObjects:
    objects: dict[ObjectKey, TenancyObject] = field(default_factory=dict)
    has_about: bool = True  # the kind ABOUT is installed


class Survey:
    def __init__(self, api: Api) -> None:
        self._api = api

    def look(self, namespaces: Sequence[str], *, known: Container[ObjectKey]) -> Iterator[tuple[str, NamespaceObjects | ClusterError]]:
        """Yields what is in each namespace, or why it could not be read. `known`: objects that the agent wrote."""
        with ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="egs-tenancy") as pool:
            yield from zip(namespaces, pool.map(lambda name: self._try_look_at(name, known), namespaces), strict=True)

    def named(self, place: ObjectKey) -> list[TenancyObject]:
        kind, namespace, name = place
        escaped = re.sub(r"([\\,=])", r"\\\1", name)
        return list(self.list(_folder(kind, namespace), fieldSelector=f"metadata.name={escaped}"))

    def list(self, path: str, **selector: str) -> Iterator[TenancyObject]:
        return listed(self._api, path, ObjectPage[TenancyObject], page_count=PAGE_COUNT, **selector)

    def _try_look_at(self, namespace: str, known: Container[ObjectKey]) -> NamespaceObjects | ClusterError:
        inside = NamespaceObjects()
        try:
            for kind in ("serviceaccounts",) if namespace == ACCOUNTS else KINDS:
                self._look_at(kind, namespace, known, inside)
        except ClusterError as error:
            return error
        return inside

    def _look_at(self, kind: str, namespace: str, known: Container[ObjectKey], inside: NamespaceObjects) -> None:
        try:
            most, page = (ACCOUNTS_MAX, ACCOUNTS_PAGE) if namespace == ACCOUNTS else (OBJECTS_MAX, PAGE_COUNT)
            objects = listed(self._api, _folder(kind, namespace), ObjectPage[TenancyObject], page_count=page, **SELECTORS.get(kind, {}))
            for count, obj in enumerate(objects):
                if count >= most:
                    raise ClusterError(f"there are more than {most} {kind} in namespace {namespace}")
                place = (kind, namespace, obj.metadata.name)
                if kind in SELECTORS or place in known or _is_of_account(obj):
                    inside.objects[place] = obj
        except Missing:
            if kind != ABOUT:
                raise
            inside.has_about = False
        except Forbidden:
            if kind != DEFAULTS:
                raise


def path_of(place: ObjectKey) -> str:
    kind, namespace, name = place
    # A RoleBinding's name may have a question mark, which would end the path.
    return f"{_folder(kind, namespace)}/{quote(name)}"


def _folder(kind: str, namespace: str) -> str:
    return f"{KINDS[kind][0]}/namespaces/{namespace}/{kind}"


def _is_of_account(obj: TenancyObject) -> bool:
    labels = obj.metadata.labels or {}
    return ACCOUNT_NAME.fullmatch(obj.metadata.name) is not None or SLICE in labels or ACCOUNT in labels
