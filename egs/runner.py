"""Runs the web server alone (production) or with the allocator and the notices in threads (embedded).

All state is in the database, so the process may be killed at any moment.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog
import uvicorn
from django.conf import settings
from django.core.signals import request_finished
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connection, connections

from core.clock import db_now
from gpr.allocation.allocator import tick
from journal.hints import TICK, listen
from journal.notices.periodic import notices_step
from journal.wakeups import wakeups
from observability.alerts.evaluation import alerts_step
from observability.remediation.services import remediation_step
from observability.services import readings_step
from observability.workloads.measuring import workloads_step

log = structlog.get_logger(__name__)

GRACE_S = 5
# Two web servers leave room within PostgreSQL's usual 100 connections. While PostgreSQL is away, requests must be told soon, and each new
# one tries to connect again.
POOL: Final = {"min_size": 2, "max_size": 40, "timeout": 2.0, "reconnect_timeout": 1.0}


class AllocatorThread(threading.Thread):
    """Runs a tick each second and on every TICK hint."""

    def __init__(self) -> None:
        super().__init__(name="egs-allocator", daemon=True)
        self._kicked = threading.Event()
        self._is_stopping = False
        listen(self._on_hint)

    def run(self) -> None:
        was_kicked = True
        while not self._is_stopping:
            self._kicked.clear()
            close_old_connections()
            try:
                tick(may_rest=not was_kicked, may_hurry=was_kicked)
            except Exception:
                log.exception("tick_failed")
            was_kicked = self._kicked.wait(settings.EGS_TICK_S)

    def stop(self) -> None:
        self._is_stopping = True
        self._kicked.set()
        self.join(GRACE_S)

    def _on_hint(self, topic: str) -> None:
        if topic == TICK:
            self._kicked.set()


class PeriodicThread(threading.Thread):
    def __init__(self, name: str, step: Callable[[], None], every_s: float) -> None:
        super().__init__(name=f"egs-{name}", daemon=True)
        self._name, self._step, self._every_s = name, step, every_s
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(self._every_s):
            close_old_connections()
            try:
                self._step()
            except Exception:
                log.exception(f"{self._name}_failed")

    def stop(self) -> None:
        self._stopping.set()
        self.join(GRACE_S)


class HubServer(uvicorn.Server):
    """Runs the web server; it wakes parked requests when it stops."""

    def __init__(self, *, host: str, port: int, on_start: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                "egs.asgi:application",
                host=host,
                port=port,
                log_config=None,  # as settings have it
                proxy_headers=bool(settings.EGS_TRUSTED_PROXIES),
                forwarded_allow_ips=settings.EGS_TRUSTED_PROXIES or None,
                log_level="warning",
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._on_start = on_start

    async def startup(self, sockets: Sequence[object] | None = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            self._on_start()

    async def shutdown(self, sockets: Sequence[object] | None = None) -> None:
        wakeups.close()
        await super().shutdown(sockets)  # type: ignore[arg-type]


def serve(*, host: str, port: int, on_start: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM, finish open requests, exit with 0. `on_start` runs once the port is open."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Uvicorn raises the signal again after a graceful stop.
        signal.signal(number, lambda *_: sys.exit(0))
    request_finished.connect(_close_connections)
    share_connections()
    try:
        HubServer(host=host, port=port, on_start=on_start).run()
    finally:
        close_pool()


def pooled(database: dict[str, Any]) -> dict[str, Any]:
    """Returns settings of a database whose connections go back to a pool when they are closed."""
    return {**database, "CONN_MAX_AGE": 0, "OPTIONS": {**database["OPTIONS"], "pool": POOL}}


def share_connections() -> None:
    """A connection to PostgreSQL takes longer than most requests."""
    if connection.vendor == "postgresql":
        connections.close_all()
        database = connections.settings[DEFAULT_DB_ALIAS]
        database.update(pooled(database))


def close_pool() -> None:
    if connection.vendor == "postgresql":
        connections.close_all()
        connection.close_pool()  # type: ignore[attr-defined]  # of the wrapper for PostgreSQL


def _close_connections(**_: object) -> None:
    """Under ASGI each request runs in a thread of its own, whose database connection would stay open."""
    connections.close_all()


def serve_all(*, host: str, port: int, on_start: Callable[[], None]) -> None:
    share_connections()
    threads = (
        AllocatorThread(),
        PeriodicThread("notices", notices_step, settings.EGS_NOTICES_S),
        PeriodicThread("remediation", lambda: remediation_step(now=db_now()), settings.EGS_REMEDIATION_S),
        PeriodicThread("telemetry", lambda: readings_step(now=db_now()), settings.EGS_TELEMETRY_S),
        PeriodicThread("workloads", lambda: workloads_step(now=db_now()), settings.EGS_WORKLOADS_S),
        PeriodicThread("alerts", lambda: alerts_step(now=db_now()), settings.EGS_ALERTS_S),
    )
    for thread in threads:
        thread.start()
    try:
        serve(host=host, port=port, on_start=on_start)
    finally:
        for thread in threads:
            thread.stop()
