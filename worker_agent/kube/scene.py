"""Namespaces of workspaces and what is in them, as one pass of tenancy finds it. Must not live here: any call."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from worker_agent.kube.objects import Meta


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
    def is_going(self) -> bool:
        return bool(self.metadata.deletionTimestamp) or self.status.get("phase") == "Terminating"


class Things(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[Thing, ...] = ()


class TokenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    class Status(msgspec.Struct, frozen=True, kw_only=True):
        token: str
        expirationTimestamp: datetime

    status: Status


Place = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True, slots=True)
class Written:
    """An object as we left it: what we said, and what the server made of it."""

    wanted: dict[str, Any]
    uid: str
    version: str

    def is_still(self, there: Thing | None, wanted: dict[str, Any]) -> bool:
        return (
            there is not None and (there.metadata.uid, there.metadata.resourceVersion) == (self.uid, self.version) and wanted == self.wanted
        )


@dataclass(slots=True)
class Scene:
    """The cluster as one pass found it, and, by namespace, what of it somebody else had changed. Not `repairs`: it stays so."""

    namespaces: dict[str, Thing]
    objects: dict[Place, Thing]
    repairs: bool
    changed: dict[str, list[str]] = field(default_factory=dict)
    has_about: bool = True  # the kind ABOUT is installed
