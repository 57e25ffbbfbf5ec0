"""Sends Kubernetes events for `kubectl describe`, once and in the background.

An event that cannot be sent is lost unless its caller sends it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from datetime import UTC, datetime
from threading import BoundedSemaphore
from typing import Any, Final, Literal
from uuid import uuid4

import msgspec

from protocol import cluster_names
from worker_agent.cluster.base import ClusterError
from worker_agent.kube.api.client import Api
from worker_agent.kube.api.objects import Meta, Pod
from worker_agent.kube.requests.messages import EventText

MESSAGE_MAX: Final = 1024  # the API server refuses longer ones
WAITING_MAX: Final = 500  # events in the queue; further ones are dropped
NEW_AT_ONCE: Final = 50  # pods in one pass; the others follow in the next
Kind = Literal["Pod", "Node", "Namespace", "GPUProvisioningRequest", "GPUJob"]
GROUPS: Final = {"GPUProvisioningRequest": "egs.io/v1alpha1", "GPUJob": "egs.io/v1alpha1"}  # API versions of kinds outside v1


class EventRecorder:
    def __init__(self, api: Api, pool: Executor) -> None:
        self._api, self._pool = api, pool
        self._queue_places = BoundedSemaphore(WAITING_MAX)
        self._last_messages: dict[str, str] = {}  # by UID of a waiting pod

    def record(self, kind: Kind, about: Meta, reason: str, message: str, *, is_bad: bool = False) -> None:
        if self._queue_places.acquire(blocking=False):
            sent = self._pool.submit(self._write, kind, about, EventText(reason, message, is_bad))
            sent.add_done_callback(lambda _: self._queue_places.release())

    def record_once(self, kind: Kind, about: Meta, text: EventText, *, key: str, at: datetime) -> Future[None]:
        """A repeat of the same `key` for the same object is a WriteConflict. The future may raise any ClusterError."""
        name = hashlib.sha256(f"{key}/{about.uid}".encode()).hexdigest()[:16]
        return self._pool.submit(self._create, kind, about, _body(kind, about, text, name=name, at=at))

    def record_waiting(self, waiting: Iterable[Pod], why: Callable[[Pod], str], *, is_refused: Callable[[Pod], bool]) -> None:
        """Records the reason once for each pod, and again when it changes."""
        recorded: dict[str, str] = {}
        new = 0
        for pod in waiting:
            message, about = why(pod), pod.metadata
            if self._last_messages.get(about.uid) == message:
                recorded[about.uid] = message
            elif new < NEW_AT_ONCE:
                new += 1
                recorded[about.uid] = message
                reason, is_bad = ("LiftRefused", True) if is_refused(pod) else ("WaitsForGpus", False)
                self.record("Pod", about, reason, message, is_bad=is_bad)
        self._last_messages = recorded

    def _write(self, kind: Kind, about: Meta, text: EventText) -> None:
        try:
            self._create(kind, about, _body(kind, about, text, name=uuid4().hex[:16], at=datetime.now(UTC)))
        except ClusterError:
            return  # lost: its namespace is being deleted, or there are too many

    def _create(self, kind: Kind, about: Meta, body: dict[str, Any]) -> None:
        self._api.create(f"/api/v1/namespaces/{_place(kind, about) or 'default'}/events", body, msgspec.Raw)


def _place(kind: Kind, about: Meta) -> str:
    # kubectl looks for events of a node in `default`. Those of a namespace go into it, where its users may read them.
    return about.namespace or (about.name if kind == "Namespace" else "")


def _body(kind: Kind, about: Meta, text: EventText, *, name: str, at: datetime) -> dict[str, Any]:
    place = _place(kind, about)
    uid = about.name if kind == "Node" else about.uid  # kubelets do the same, and `kubectl describe node` selects by it
    involved = {"apiVersion": GROUPS.get(kind, "v1"), "kind": kind, "name": about.name, "uid": uid}
    if place:
        involved["namespace"] = place
    stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{about.name[:200]}.{name}", "namespace": place or "default"},
        "involvedObject": involved,
        "reason": text.reason,
        "message": text.message[:MESSAGE_MAX],
        "type": "Warning" if text.is_bad else "Normal",
        "count": 1,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "source": {"component": cluster_names.AGENT},
        "reportingComponent": "egs.io/agent",
        "reportingInstance": cluster_names.AGENT,
    }
