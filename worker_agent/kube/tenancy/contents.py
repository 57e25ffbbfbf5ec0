"""Namespaces of workspaces and what is in them, as one pass of tenancy finds it. Must not live here: any call."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

import msgspec

from protocol.cluster_names import ACCOUNTS, BOUND_TO, SAID, SLICE
from protocol.workspaces import Account, Workspace
from worker_agent.cluster.base import ClusterError, Throttled, Unavailable
from worker_agent.kube.api.objects import Meta


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """Any of our objects."""

    metadata: Meta
    spec: Any = None
    roleRef: Any = None
    subjects: Any = None
    status: dict[str, Any] = {}

    @property
    def content(self) -> tuple[Any, ...]:
        return (self.metadata.labels or {}, self.spec, self.roleRef, self.subjects)

    @property
    def word(self) -> tuple[Any, ...]:
        """Its content with our mark of what we said."""
        return *self.content, self.metadata.annotation(SAID)

    @property
    def is_going(self) -> bool:
        return bool(self.metadata.deletionTimestamp) or self.status.get("phase") == "Terminating"


class TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    class Status(msgspec.Struct, frozen=True, kw_only=True):
        token: str
        expirationTimestamp: datetime

    status: Status


Place = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True, slots=True)
class Written:
    """An object as we left it: what we said, and what the server made of it.

    `word`: what of a quota may be ours, for the server writes into it at each pod how much of it is used. None: each new version counts.
    """

    wanted: dict[str, Any]
    uid: str
    version: str
    word: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, wanted: dict[str, Any], left: Thing) -> Self:
        word = left.word if wanted["kind"] == "ResourceQuota" else None
        return cls(wanted, left.metadata.uid, left.metadata.resourceVersion, word)

    def is_still(self, there: Thing | None, wanted: dict[str, Any]) -> bool:
        if there is None or there.metadata.uid != self.uid or wanted != self.wanted:
            return False
        return there.metadata.resourceVersion == self.version or there.word == self.word


@dataclass(slots=True)
class Scene:
    """The cluster as one pass found it, and, by namespace, what of ours somebody else had changed. Not `repairs`: it stays so.

    `namespaces`: with the label of a workspace. `unlabeled`: with the mark of one alone. `in_use`: see Tenancy.
    """

    namespaces: dict[str, Thing]
    unlabeled: dict[str, Thing]
    objects: dict[Place, Thing]
    repairs: bool
    in_use: frozenset[str]
    fenced: dict[str, Workspace] = field(default_factory=dict)  # by namespace: whose NetworkPolicy was kept there in this pass
    repaired: dict[str, list[str]] = field(default_factory=dict)
    left: dict[str, list[str]] = field(default_factory=dict)
    has_about: bool = True  # the kind ABOUT is installed
    counts_kinds: bool = False  # the quota does
    has_accounts: bool = True  # the namespace of accounts is installed
    ended: list[str] = field(default_factory=list)  # accounts that were made anew: no token from before is good any more
    unseen: dict[str, ClusterError] = field(default_factory=dict)  # namespaces that could not be looked at

    def slice_of(self, namespace: str) -> str:
        """Whose it is by what stands on it; "" nobody's."""
        if there := self.namespaces.get(namespace):
            return there.metadata.label(SLICE)
        there = self.unlabeled.get(namespace)
        return there.metadata.label(BOUND_TO) if there else ""

    def home_of(self, account: Account) -> str:
        """Where its ServiceAccount lives: where no workspace does, so that nothing in the cluster gives it rights by its namespace."""
        return ACCOUNTS if self.has_accounts else account.namespace

    def owner_of(self, place: Place) -> str:
        """The workspace that an object is of. In the namespace of accounts labels are the agent's word."""
        if place[1] != ACCOUNTS:
            return self.slice_of(place[1])
        there = self.objects.get(place)
        return there.metadata.label(SLICE) if there else ""

    def namespaces_of(self, slice_: str) -> list[str]:
        return [name for name in (*self.namespaces, *self.unlabeled) if self.slice_of(name) == slice_]

    def is_in_use(self, workspace: Workspace, namespace: str) -> bool:
        return bool(self.in_use & {workspace.id, workspace.name, namespace})

    def repair(self, what: str, namespace: str) -> None:
        """It was put right."""
        self.repaired.setdefault(namespace, []).append(what)

    def leave(self, what: str, namespace: str) -> None:
        self.left.setdefault(namespace, []).append(what)

    def is_silent(self, namespace: str) -> bool:
        """Nothing is said of it: the API server has trouble, which is no word on the namespace."""
        return isinstance(self.unseen.get(namespace), Unavailable | Throttled)
