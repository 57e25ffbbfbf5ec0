"""Holds the Kubernetes Lease that decides which replica of the agent works.

It avoids double work; the tests in every write are what prevents harm.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from protocol import cluster_names
from worker_agent.cluster.base import ClusterError, Note, WriteConflict
from worker_agent.kube.api.client import Api

PATH: Final = f"/apis/coordination.k8s.io/v1/namespaces/{cluster_names.NAMESPACE}/leases/{cluster_names.AGENT}"
DURATION_S: Final = 10.0
RENEW_EVERY_S: Final = 2.0
RENEW_WITHIN_S: Final = 7.0  # after so long without a renewal the holder stops, before another begins
IDLE_MOST_S: Final = 60.0  # a holder that hangs in a pass for so long gives up the lease
LOOK_EVERY_S: Final = 1.0


class _LeaseSpec(msgspec.Struct, frozen=True, kw_only=True):
    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int | None = None


class _LeaseMeta(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    namespace: str
    resourceVersion: str


class _Lease(msgspec.Struct, frozen=True, kw_only=True):
    metadata: _LeaseMeta
    spec: _LeaseSpec = _LeaseSpec()
    apiVersion: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class Leadership:
    def __init__(self, api: Api, *, identity: str, note: Note) -> None:
        self._api, self._identity, self._note = api, identity, note  # each start has an identity of its own
        self._seen: tuple[str, float] = ("", float("-inf"))  # its resourceVersion, and when our clock first saw it
        self._renewed_mono = float("-inf")
        self._is_over = threading.Event()
        self.is_lost = False

    def acquire(self, stop: threading.Event) -> bool:
        """Returns False when `stop` was set first."""
        while not stop.is_set():
            try:
                if self._take():
                    self._note("leading", {"identity": self._identity})
                    return True
            except ClusterError as error:
                self._note("lease_unanswered", {"error": str(error)})
            stop.wait(LOOK_EVERY_S)
        return False

    def keep(self, on_loss: threading.Event, idle_s: Callable[[], float]) -> None:
        """Runs in a thread of its own. Sets `on_loss` when the lease is lost."""
        while not self._is_over.wait(RENEW_EVERY_S):
            try:
                held = idle_s() < IDLE_MOST_S and self._take()
            except ClusterError as error:
                self._note("lease_not_renewed", {"error": str(error)})
                held = time.monotonic() - self._renewed_mono < RENEW_WITHIN_S
            if not held:
                self.is_lost = True
                on_loss.set()
                return

    def give_up(self) -> None:
        self._is_over.set()
        if self.is_lost:
            return
        try:
            lease = self._api.get(PATH, _Lease)
            if lease.spec.holderIdentity == self._identity:
                self._write(lease, msgspec.structs.replace(lease.spec, holderIdentity=""))
        except ClusterError as error:
            self._note("lease_not_given_up", {"error": str(error)})

    def _take(self) -> bool:
        """Returns False when another replica has it."""
        lease, now = self._api.get(PATH, _Lease), time.monotonic()
        # Clocks need not agree: the lease has ended when nobody was seen to renew it for its duration by our own clock.
        if lease.metadata.resourceVersion != self._seen[0]:
            self._seen = (lease.metadata.resourceVersion, now)
        holder = lease.spec.holderIdentity or ""
        duration_s = lease.spec.leaseDurationSeconds or DURATION_S
        if holder not in ("", self._identity) and now - self._seen[1] < duration_s:
            return False
        stamp = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        is_new = holder != self._identity
        spec = _LeaseSpec(
            holderIdentity=self._identity,
            leaseDurationSeconds=int(DURATION_S),
            acquireTime=stamp if is_new else lease.spec.acquireTime,
            renewTime=stamp,
            leaseTransitions=(lease.spec.leaseTransitions or 0) + is_new,
        )
        try:
            self._write(lease, spec)
        except WriteConflict:
            return False
        self._renewed_mono = now
        return True

    def _write(self, lease: _Lease, spec: _LeaseSpec) -> None:
        self._api.replace(PATH, msgspec.structs.replace(lease, spec=spec), _Lease)
