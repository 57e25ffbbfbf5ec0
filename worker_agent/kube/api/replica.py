"""The local copy of all objects of one path: as of one version, and on top of it what our own writes answered since.

Lives here: which of two states of an object is the newer one. Must not live here: any call, any thread.

The version is the API server's resourceVersion, a number that rises with each write to anything of that kind. Whatever happened up to the
copy's version is in it, deletes as well: an answer of ours that is not beyond it says nothing new, and may be about an object that is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from worker_agent.kube.api.objects import HasMeta

T = TypeVar("T", bound=HasMeta)
Key = tuple[str, str]  # namespace, "" where the kind has none, and name


class Rewound(Exception):
    """The server told of an older version than the replica has: it was restored from a backup. Read all anew."""


def version_of(resource_version: str) -> int:
    """0 where it is no number: older than anything."""
    return int(resource_version) if resource_version.isdecimal() else 0


def key_of(obj: HasMeta) -> Key:
    return obj.metadata.namespace, obj.metadata.name


def _version(obj: HasMeta) -> int:
    return version_of(obj.metadata.resourceVersion)


class Replica(Generic[T]):
    """One thread tells it what the server says (put, drop, reach, replace); any may read it and learn()."""

    def __init__(self) -> None:
        self.version = 0
        self.serial = 0
        self._lock = threading.Lock()
        self._told: dict[Key, T] = {}
        self._learned: dict[Key, T] = {}  # beyond `version`
        self._snapshot: Mapping[Key, T] | None = None

    def objects(self) -> Mapping[Key, T]:
        """The same mapping until something changes."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = MappingProxyType(self._told | self._learned)
            return self._snapshot

    def put(self, obj: T) -> None:
        """It was added or changed. Raises Rewound."""
        with self._lock:
            self._move(_version(obj))
            self._told[key_of(obj)] = obj
            self._forget(key_of(obj))
            self._changed()

    def drop(self, obj: HasMeta) -> None:
        """It was deleted, at its version. Raises Rewound."""
        with self._lock:
            self._move(_version(obj))
            self._told.pop(key_of(obj), None)
            self._forget(key_of(obj))
            self._changed()

    def reach(self, version: int) -> None:
        """Nothing else has happened up to this version. Raises Rewound."""
        with self._lock:
            self._move(version)
            self._forget_all()

    def replace(self, objects: Mapping[Key, T], version: int) -> None:
        """All there is at this version, older than the copy's or not: what is not among them is gone."""
        with self._lock:
            if version < self.version:
                self._learned = {}  # of a time that never was
            self.version = version
            self._told = dict(objects)
            self._forget_all()
            self._changed()

    def learn(self, obj: T) -> None:
        """What one of our own writes answered. No effect where the copy knows as much or more."""
        with self._lock:
            known = self._learned.get(key_of(obj))
            if _version(obj) > max(self.version, _version(known) if known else 0):
                self._learned[key_of(obj)] = obj
                self._changed()

    def _move(self, version: int) -> None:
        if version < self.version:
            raise Rewound(f"version {version} came after {self.version}")
        self.version = version

    def _forget_all(self) -> None:
        self._forget(*self._learned)

    def _forget(self, *keys: Key) -> None:
        """What was learned, where the server has told of it by now."""
        for key in keys:
            learned = self._learned.get(key)
            if learned is not None and _version(learned) <= self.version:
                del self._learned[key]
                self._changed()

    def _changed(self) -> None:
        self._snapshot = None
        self.serial += 1
