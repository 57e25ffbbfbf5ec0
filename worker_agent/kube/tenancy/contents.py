"""Describes namespaces of workspaces and their objects, as one pass finds them. It makes no calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

import msgspec

from protocol.cluster_names import ACCOUNTS, BOUND_TO, SAID, SLICE
from protocol.tenancy.workspaces import Account, Workspace
from worker_agent.cluster.base import ClusterError, Throttled, Unavailable
from worker_agent.kube.api.objects import Meta


class TenancyObject(msgspec.Struct, frozen=True, kw_only=True):
    metadata: Meta
    spec: Any = None
    roleRef: Any = None
    subjects: Any = None
    status: dict[str, Any] = {}

    @property
    def content(self) -> tuple[Any, ...]:
        return (self.metadata.labels or {}, self.spec, self.roleRef, self.subjects)

    @property
    def content_with_digest(self) -> tuple[Any, ...]:
        """Returns the content with the digest of what the agent applied."""
        return *self.content, self.metadata.annotation(SAID)

    @property
    def is_going(self) -> bool:
        return bool(self.metadata.deletionTimestamp) or self.status.get("phase") == "Terminating"


class TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    class Status(msgspec.Struct, frozen=True, kw_only=True):
        token: str
        expirationTimestamp: datetime

    status: Status


ObjectKey = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True, slots=True)
class AppliedObject:
    """Holds an object as the agent last wrote it."""

    wanted: dict[str, Any]
    uid: str
    version: str
    content_with_digest: tuple[Any, ...] | None = None  # only of a quota: the server writes its usage, so a new version is no change

    @classmethod
    def of(cls, wanted: dict[str, Any], left: TenancyObject) -> Self:
        content_with_digest = left.content_with_digest if wanted["kind"] == "ResourceQuota" else None
        return cls(wanted, left.metadata.uid, left.metadata.resourceVersion, content_with_digest)

    def is_unchanged(self, there: TenancyObject | None, wanted: dict[str, Any]) -> bool:
        if there is None or there.metadata.uid != self.uid or wanted != self.wanted:
            return False
        return there.metadata.resourceVersion == self.version or there.content_with_digest == self.content_with_digest


@dataclass(slots=True)
class NamespaceContents:
    """Holds the namespaces and objects that one pass found, and the repairs that it made."""

    namespaces: dict[str, TenancyObject]  # with the label of a workspace
    unlabeled: dict[str, TenancyObject]  # with only the mark of one (BOUND_TO)
    objects: dict[ObjectKey, TenancyObject]
    repairs: bool  # False: what others changed stays as it is
    in_use: frozenset[str]  # as in TenancyDriver.reconcile
    isolated: dict[str, Workspace] = field(default_factory=dict)  # whose NetworkPolicy is in place, by namespace
    repaired: dict[str, list[str]] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)
    has_about: bool = True  # the kind ABOUT is installed
    counts_kinds: bool = False  # quotas count the custom resources of EGS
    has_accounts: bool = True  # the namespace of accounts is installed
    recreated: list[str] = field(default_factory=list)  # accounts that were made again, so that earlier tokens are invalid
    unseen: dict[str, ClusterError] = field(default_factory=dict)  # namespaces that could not be read

    def slice_of(self, namespace: str) -> str:
        """Returns the workspace in the namespace's labels, or ""."""
        if there := self.namespaces.get(namespace):
            return there.metadata.label(SLICE)
        there = self.unlabeled.get(namespace)
        return there.metadata.label(BOUND_TO) if there else ""

    def home_of(self, account: Account) -> str:
        """Returns the namespace of its ServiceAccount."""
        # No workspace has this namespace, so that nothing gives the account rights by where it is.
        return ACCOUNTS if self.has_accounts else account.namespace

    def owner_of(self, place: ObjectKey) -> str:
        if place[1] != ACCOUNTS:
            return self.slice_of(place[1])
        there = self.objects.get(place)  # in the namespace of accounts only the agent writes labels
        return there.metadata.label(SLICE) if there else ""

    def namespaces_of(self, slice_: str) -> list[str]:
        return [name for name in (*self.namespaces, *self.unlabeled) if self.slice_of(name) == slice_]

    def is_in_use(self, workspace: Workspace, namespace: str) -> bool:
        return bool(self.in_use & {workspace.id, workspace.name, namespace})

    def add_repaired(self, what: str, namespace: str) -> None:
        self.repaired.setdefault(namespace, []).append(what)

    def add_left(self, what: str, namespace: str) -> None:
        self.left.setdefault(namespace, []).append(what)

    def is_unreported(self, namespace: str) -> bool:
        """Tell whether the API server's trouble kept the namespace from being read."""
        return isinstance(self.unseen.get(namespace), Unavailable | Throttled)
