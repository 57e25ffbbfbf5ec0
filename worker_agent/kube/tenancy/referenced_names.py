"""Finds names of namespaces that something in the cluster refers to already. No workspace may take such a name.

Its owner would get what waits for it: rights of service accounts, calls to a webhook or an API, a volume, or passage through a
NetworkPolicy.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from worker_agent.cluster.base import Note
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.paging import ObjectPage, listed

REFUSED_AGAIN_S: Final = 300.0  # for so long a refused name is not looked up again
PAGE_COUNT: Final = 20  # custom resource definitions may be as large as objects can be
BY_NAME: Final = "kubernetes.io/metadata.name"  # Kubernetes sets this label on each namespace
ACCOUNTS_OF, ACCOUNT_IN = "system:serviceaccounts:", "system:serviceaccount:"

T = TypeVar("T")


# Any field may be missing, and any list may be null.


class _Meta(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str = ""


class _Ref(msgspec.Struct, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _Binding(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta
    subjects: tuple[_Ref, ...] | None = None


class _Client(msgspec.Struct, frozen=True, kw_only=True):
    service: _Ref | None = None


class _Hook(msgspec.Struct, frozen=True, kw_only=True):
    clientConfig: _Client = _Client()


class _Hooks(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta
    webhooks: tuple[_Hook, ...] | None = None


class _ServiceSpec(msgspec.Struct, frozen=True, kw_only=True):
    service: _Ref | None = None


class _ApiService(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta
    spec: _ServiceSpec = _ServiceSpec()


class _Conversion(msgspec.Struct, frozen=True, kw_only=True):
    webhook: _Hook | None = None


class _CustomKindSpec(msgspec.Struct, frozen=True, kw_only=True):
    conversion: _Conversion | None = None


class _CustomKind(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta
    spec: _CustomKindSpec = _CustomKindSpec()


class _VolumeSpec(msgspec.Struct, frozen=True, kw_only=True):
    claimRef: _Ref | None = None


class _Volume(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta
    spec: _VolumeSpec = _VolumeSpec()


class _Fence(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _Meta
    spec: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Reference:
    what: str
    inside: str  # its namespace, or "" for cluster-scoped kinds


@dataclass(slots=True)
class ReferencedNames:
    """One thread uses it."""

    api: Api
    note: Note
    _found: dict[str, list[_Reference]] | None = None
    _refused_mono: dict[str, float] = field(default_factory=dict)

    def begin_pass(self) -> None:
        self._found = None

    def is_referenced(self, name: str, *, own: Iterable[str]) -> bool:
        """References from `own`, other namespaces of the workspace, do not count. Raises ClusterError."""
        now_mono = time.monotonic()
        if now_mono - self._refused_mono.get(name, float("-inf")) < REFUSED_AGAIN_S:
            return True
        if self._found is None:
            self._found = self._look()
        own = {name, *own}  # references from inside the namespace itself do not count either
        references = [each.what for each in self._found.get(name, ()) if each.inside not in own]
        self._refused_mono.pop(name, None)
        if references:
            self._refused_mono[name] = now_mono
            # Only the log says what refers to it: users must learn nothing of each other.
            self.note("namespace_awaited", {"namespace": name, "by": ", ".join(references[:5])})
        return bool(references)

    def _look(self) -> dict[str, list[_Reference]]:
        found: dict[str, list[_Reference]] = defaultdict(list)
        for name, what, inside in self._all():
            found[name].append(_Reference(what, inside))
        return found

    def _all(self) -> Iterator[tuple[str, str, str]]:
        """Yields the name, what refers to it, and the namespace of that."""
        for kind, folder in (("RoleBinding", "rolebindings"), ("ClusterRoleBinding", "clusterrolebindings")):
            for binding in self._list(f"/apis/rbac.authorization.k8s.io/v1/{folder}", ObjectPage[_Binding]):
                names = {_of_subject(subject) for subject in binding.subjects or ()} - {""}
                yield from ((name, _described(kind, binding.metadata), binding.metadata.namespace) for name in names)
        for kind, folder in (("Validating", "validatingwebhookconfigurations"), ("Mutating", "mutatingwebhookconfigurations")):
            for hooks in self._list(f"/apis/admissionregistration.k8s.io/v1/{folder}", ObjectPage[_Hooks]):
                what = _described(f"{kind}WebhookConfiguration", hooks.metadata)
                yield from ((hook.clientConfig.service.namespace, what, "") for hook in hooks.webhooks or () if hook.clientConfig.service)
        for api in self._list("/apis/apiregistration.k8s.io/v1/apiservices", ObjectPage[_ApiService]):
            if api.spec.service:
                yield api.spec.service.namespace, _described("APIService", api.metadata), ""
        for made in self._list("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", ObjectPage[_CustomKind], page_count=PAGE_COUNT):
            hook = made.spec.conversion.webhook if made.spec.conversion else None
            if hook and hook.clientConfig.service:
                yield hook.clientConfig.service.namespace, _described("CustomResourceDefinition", made.metadata), ""
        for volume in self._list("/api/v1/persistentvolumes", ObjectPage[_Volume]):
            if volume.spec.claimRef:
                yield volume.spec.claimRef.namespace, _described("PersistentVolume", volume.metadata), ""
        for fence in self._list("/apis/networking.k8s.io/v1/networkpolicies", ObjectPage[_Fence]):
            what = _described("NetworkPolicy", fence.metadata)
            yield from ((name, what, fence.metadata.namespace) for name in _let_through(fence.spec or {}))

    def _list(self, path: str, page_type: type[ObjectPage[T]], *, page_count: int = 100) -> Iterator[T]:
        return listed(self.api, path, page_type, page_count=page_count)


def _of_subject(subject: _Ref) -> str:
    """Returns the namespace whose service accounts the subject names, or ""."""
    match subject.kind:
        case "ServiceAccount":
            return subject.namespace
        case "Group" if subject.name.startswith(ACCOUNTS_OF):
            return subject.name.removeprefix(ACCOUNTS_OF)
        case "User" if subject.name.startswith(ACCOUNT_IN):
            return subject.name.removeprefix(ACCOUNT_IN).partition(":")[0]
        case _:
            return ""


def _let_through(spec: dict[str, Any]) -> set[str]:
    """Returns namespaces that a NetworkPolicy selects by name."""
    rules = [(rule or {}).get(way) or [] for rules, way in (("ingress", "from"), ("egress", "to")) for rule in spec.get(rules) or []]
    selectors = [(peer or {}).get("namespaceSelector") or {} for peers in rules for peer in peers]
    named = {(each.get("matchLabels") or {}).get(BY_NAME, "") for each in selectors}
    wanted = [term for each in selectors for term in each.get("matchExpressions") or [] if term.get("key") == BY_NAME]
    return {name for name in (*named, *(value for term in wanted if term.get("operator") == "In" for value in term["values"])) if name}


def _described(kind: str, about: _Meta) -> str:
    return f"{kind} {about.namespace + '/' if about.namespace else ''}{about.name}"
