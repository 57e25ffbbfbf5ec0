"""Counts the agent's Prometheus metrics in a registry of their own, since the agent may share a process with the hub."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY: Final = CollectorRegistry()
DRAIN_BUCKETS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
LIFT_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)

_drains = "Time from the close of a box on a node until no pod of it was left there."
_lifts = "Time from the moment the agent saw a waiting pod until its gate was off."
_repairs = "Changes that others made to EGS's objects and the agent repaired."
_sync_age = "Time since the hub's last answer that counts; +Inf before the first, NaN in a replica that is not at work."
_dropped = "Readings of GPUs that the agent dropped: too many, or without an answer of the hub."
_writes = "Writes to the API server that wait for their turn or for an answer."
DRAIN_S: Final = Histogram("egs_agent_drain_seconds", _drains, buckets=DRAIN_BUCKETS_S, registry=REGISTRY)
LIFT_S: Final = Histogram("egs_agent_lift_seconds", _lifts, buckets=LIFT_BUCKETS_S, registry=REGISTRY)
LIFTS_REFUSED: Final = Counter("egs_agent_lifts_refused", "Lifts that the API server refused; each try counts.", registry=REGISTRY)
DRIFT_REPAIRS: Final = Counter("egs_agent_drift_repairs", _repairs, registry=REGISTRY)
SYNC_AGE_S: Final = Gauge("egs_agent_sync_age_seconds", _sync_age, registry=REGISTRY)
LEADING: Final = Gauge("egs_agent_leading", "1 in the replica that is at work, 0 in one that waits for its turn.", registry=REGISTRY)
READINGS_DROPPED: Final = Counter("egs_agent_readings_dropped", _dropped, registry=REGISTRY)
WRITES_QUEUED: Final = Gauge("egs_agent_writes_queued", _writes, ["kind"], registry=REGISTRY)
SYNC_AGE_S.set(float("nan"))


class WritePool(ThreadPoolExecutor):
    def __init__(self, kind: str, thread_count: int) -> None:
        super().__init__(thread_count, thread_name_prefix=f"egs-{kind}")
        self._queued = WRITES_QUEUED.labels(kind)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self._queued.inc()
        try:
            call = super().submit(*args, **kwargs)
        except RuntimeError:  # after its shutdown
            self._queued.dec()
            raise
        call.add_done_callback(lambda _: self._queued.dec())
        return call
