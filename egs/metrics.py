"""Writes metrics for Prometheus.

Numbers from the database are equal in every web process. Numbers that a process counts have the label `process`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.db.models import Avg, Count, Exists, Max, Min, OuterRef, Sum
from django.urls import Resolver404, resolve
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from core.clock import db_now
from core.rest.held import may_be_held
from gpr.models import AllocatorRecord, Gpr, GprState, PromiseMove
from inventory.models import AgentSession, Gpu, ReservationState, ReservedGpu, agent_is_live
from inventory.selectors import node_counts
from observability.alerts.models import Alert, AlertState
from observability.models import LatestReading
from protocol.agents.sync import SYNC_PATH
from protocol.gpus.telemetry import STALE_S

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
PROCESS = f"{socket.gethostname()}:{os.getpid()}"
# Only these values become labels, so that clients cannot create new series.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"
HUNG_UP, FAILED = 499, 500  # the status that is counted when no response was sent
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

_requests = Counter("egs_http_requests", "Requests answered.", ["process", "route", "method", "status"], registry=REGISTRY)
_durations = Histogram(
    "egs_http_request_duration_seconds", "From request to answer.", ["process", "route", "method"], buckets=BUCKETS_S, registry=REGISTRY
)
# Counted apart: an agent's sync waits for changes on purpose, so its duration is no measure of speed, nor is that of a held request.
_syncs = Counter("egs_agent_syncs", "Syncs of agents answered.", ["process", "status"], registry=REGISTRY)
_held = Gauge("egs_http_requests_held", "Requests that may wait for news here, now.", ["process"], registry=REGISTRY).labels(PROCESS)
_parked = Gauge("egs_agent_syncs_parked", "Syncs that wait for news here, now.", ["process"], registry=REGISTRY).labels(PROCESS)


def scrape() -> bytes:
    return generate_latest(REGISTRY)


async def measure(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    began_s, status = time.perf_counter(), HUNG_UP
    is_sync, is_held = scope["path"] == SYNC_PATH, may_be_held(scope)
    waiting = _parked if is_sync else _held if is_held else None

    async def watch(message: Mapping[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        await send(message)

    try:
        with waiting.track_inprogress() if waiting else nullcontext():
            await app(scope, receive, watch)
    except Exception:
        status = FAILED
        raise
    finally:
        if is_sync:
            _syncs.labels(PROCESS, status).inc()
        else:
            _count(scope, status, None if is_held else time.perf_counter() - began_s)


def _count(scope: Scope, status: int, duration_s: float | None) -> None:
    method = scope["method"] if scope["method"] in METHODS else OTHER
    route = _route(scope["path"])
    _requests.labels(PROCESS, route, method, status).inc()
    if duration_s is not None:
        _durations.labels(PROCESS, route, method).observe(duration_s)


def _route(path: str) -> str:
    """Returns the route's name. The path would make one series per id."""
    try:
        return resolve(path).view_name
    except Resolver404:
        return OTHER


class FromDatabase(Collector):
    """Reads with a few queries, whatever the fleet's size. Without a database it yields only `egs_database_up` 0."""

    def collect(self) -> Iterator[Metric]:
        families: list[Metric] = []
        try:
            families = [family for read in _READERS for family in read(db_now())]
        except (OperationalError, InterfaceError):
            # A part of the numbers would look like an empty platform.
            families = []
        yield GaugeMetricFamily("egs_database_up", "1 when the database answered this scrape.", value=bool(families))
        yield from families


def _gprs(now: datetime) -> Iterator[Metric]:
    counts = dict(Gpr.objects.order_by().values_list("state").annotate(n=Count("pk")))
    yield _gauge("egs_gprs", "GPRs by state.", "state", {state: counts.get(state, 0) for state in GprState.values})
    yield GaugeMetricFamily("egs_queue_length", "GPRs that wait for nodes.", value=counts.get(GprState.QUEUED, 0))
    oldest_at = Gpr.objects.filter(state=GprState.QUEUED).aggregate(at=Min("queued_at"))["at"]
    wait_s = (now - oldest_at).total_seconds() if oldest_at else 0.0
    yield GaugeMetricFamily("egs_queue_oldest_wait_seconds", "How long the oldest of them has waited.", value=wait_s)


def _inventory(now: datetime) -> Iterator[Metric]:
    yield _gauge("egs_nodes", "Nodes by availability.", "availability", node_counts(now=now))
    live = [agent_is_live(agent, now, within_s=settings.EGS_AGENT_STALE_S) for agent in AgentSession.objects.all()]
    yield _gauge("egs_agents", "Agents by whether they were heard lately.", "state", {"heard": sum(live), "silent": live.count(False)})


def _gpus(now: datetime) -> Iterator[Metric]:
    total = Gpu.objects.filter(gone_at=None, node__gone_at=None).count()
    held_count = ReservedGpu.objects.filter(state=ReservationState.HELD).count()
    yield _gauge("egs_gpus", "GPUs by whether a box holds them.", "state", {"held": held_count, "not_held": max(0, total - held_count)})
    fresh = LatestReading.objects.filter(gpu__gone_at=None, at__gt=now - timedelta(seconds=STALE_S))
    held = Exists(ReservedGpu.objects.filter(gpu=OuterRef("gpu"), state=ReservationState.HELD))
    read = fresh.aggregate(n=Count("pk"), power_w=Sum("power_w"), most_c=Max("temperature_c"))
    used = fresh.filter(held).aggregate(percent=Avg("utilization_percent"))["percent"]
    yield GaugeMetricFamily("egs_gpus_read", "GPUs with a reading of the last minute.", value=read["n"])
    yield GaugeMetricFamily("egs_gpu_power_watts", "Their power together.", value=read["power_w"] or 0)
    if read["most_c"] is not None:
        yield GaugeMetricFamily("egs_gpu_hottest_celsius", "The hottest of them.", value=read["most_c"])
    if used is not None:
        yield GaugeMetricFamily("egs_gpu_held_utilization_percent", "Mean use of the GPUs that boxes hold.", value=float(used))


def _allocator(now: datetime) -> Iterator[Metric]:
    record = AllocatorRecord.objects.first() or AllocatorRecord()
    yield CounterMetricFamily("egs_ticks", "Whole ticks of the allocator.", value=record.tick_count)
    if record.last_tick_at is not None:
        age_s = (now - record.last_tick_at).total_seconds()
        yield GaugeMetricFamily("egs_last_tick_age_seconds", "Since the last whole tick began.", value=age_s)
        yield GaugeMetricFamily("egs_last_tick_duration_seconds", "How long it took.", value=record.last_duration_s)
    yield _counter(
        "egs_promises", "Starts by whether the promise was kept.", "outcome", {"kept": record.kept_count, "late": record.late_count}
    )
    moves = dict(PromiseMove.objects.order_by().values_list("cause").annotate(n=Count("pk")))
    yield _counter("egs_promises_moved", "Promises moved, by cause.", "cause", moves)


def _alerts(now: datetime) -> Iterator[Metric]:
    open_alerts = Alert.objects.filter(slice=None).exclude(state=AlertState.RESOLVED)
    counts = dict(open_alerts.order_by().values_list("state").annotate(n=Count("pk")))
    states = [state for state in AlertState.values if state != AlertState.RESOLVED]
    yield _gauge("egs_alerts", "Alerts for administrators by state.", "state", {state: counts.get(state, 0) for state in states})


_READERS: tuple[Callable[[datetime], Iterator[Metric]], ...] = (_gprs, _inventory, _gpus, _allocator, _alerts)


def _gauge(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    return _labeled(GaugeMetricFamily(name, text, labels=[label]), values)


def _counter(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    return _labeled(CounterMetricFamily(name, text, labels=[label]), values)


def _labeled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, int]) -> Metric:
    for value, count in values.items():
        family.add_metric([value], count)
    return family


REGISTRY.register(FromDatabase())
