"""Learns from exporters which GPUs a pod has. One thread writes it, and any thread may read it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

PodKey = tuple[str, str]  # namespace and name


class PodDevices:
    def __init__(self) -> None:
        self._known: dict[PodKey, frozenset[str]] = {}
        self._new: dict[PodKey, set[str]] = defaultdict(set)
        self._read_at = datetime.min.replace(tzinfo=UTC)

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Everything that `take` gets within it replaces the former knowledge."""
        self._new = defaultdict(set)
        began_at = datetime.now(UTC)
        yield
        self._known, self._read_at = {key: frozenset(gpus) for key, gpus in self._new.items()}, began_at

    def take(self, namespace: str, pod: str, gpu: str) -> None:
        self._new[namespace, pod].add(gpu)

    def of(self, namespace: str, pod: str, *, since: datetime | None) -> frozenset[str]:
        """Returns nothing where it is not known. Words from before `since` are about an earlier pod of the same name."""
        return self._known.get((namespace, pod), frozenset()) if since and since <= self._read_at else frozenset()
