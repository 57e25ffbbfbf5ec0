"""Keeps a copy of all objects as of one version, with newer answers to the agent's own writes. It makes no calls and has no threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from worker_agent.kube.api.objects import HasMeta

T = TypeVar("T", bound=HasMeta)
Key = tuple[str, str]  # namespace, "" where the kind has none, and name


class Rewound(Exception):
    """The server is behind the replica, so it was restored from a backup."""


def version_of(resource_version: str) -> int:
    """Returns 0 for text that is no number."""
    return int(resource_version) if resource_version.isdecimal() else 0


def key_of(obj: HasMeta) -> Key:
    return obj.metadata.namespace, obj.metadata.name


def _version(obj: HasMeta) -> int:
    return version_of(obj.metadata.resourceVersion)


class Replica(Generic[T]):
    """One thread calls put, drop, reach and replace. Any thread may call objects and learn."""

    def __init__(self) -> None:
        self.version = 0  # the API server's resourceVersion, which rises with each write to any object of the kind
        self.serial = 0
        self._lock = threading.Lock()
        self._from_server: dict[Key, T] = {}
        self._from_writes: dict[Key, T] = {}  # answers to own writes, newer than `version`
        self._snapshot: Mapping[Key, T] | None = None

    def objects(self) -> Mapping[Key, T]:
        """Returns the same mapping until something changes."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = MappingProxyType(self._from_server | self._from_writes)
            return self._snapshot

    def put(self, obj: T) -> None:
        """Raises Rewound."""
        with self._lock:
            self._advance(_version(obj))
            self._from_server[key_of(obj)] = obj
            self._forget(key_of(obj))
            self._changed()

    def drop(self, obj: HasMeta) -> None:
        """Raises Rewound."""
        with self._lock:
            self._advance(_version(obj))
            self._from_server.pop(key_of(obj), None)
            self._forget(key_of(obj))
            self._changed()

    def reach(self, version: int) -> None:
        """Records that the copy is complete up to this version. Raises Rewound."""
        with self._lock:
            self._advance(version)
            self._forget_all()

    def replace(self, objects: Mapping[Key, T], version: int) -> None:
        """The new state may be older than the copy's."""
        with self._lock:
            if version < self.version:
                self._from_writes = {}  # answers from before the restore count no more
            self.version = version
            self._from_server = dict(objects)
            self._forget_all()
            self._changed()

    def learn(self, obj: T) -> None:
        with self._lock:
            known = self._from_writes.get(key_of(obj))
            # The copy includes all changes up to its version, deletions too: the object of an older answer may be gone.
            if _version(obj) > max(self.version, _version(known) if known else 0):
                self._from_writes[key_of(obj)] = obj
                self._changed()

    def _advance(self, version: int) -> None:
        if version < self.version:
            raise Rewound(f"version {version} came after {self.version}")
        self.version = version

    def _forget_all(self) -> None:
        self._forget(*self._from_writes)

    def _forget(self, *keys: Key) -> None:
        for key in keys:
            learned = self._from_writes.get(key)
            if learned is not None and _version(learned) <= self.version:  # the server's state includes it now
                del self._from_writes[key]
                self._changed()

    def _changed(self) -> None:
        self._snapshot = None
        self.serial += 1
