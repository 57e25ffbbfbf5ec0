"""A thread of its own serves the agent's /healthz, /readyz and /metrics.

/healthz fails only if this process hangs: a restart does not help when the hub or the API server is away.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from worker_agent.cluster.base import Note
from worker_agent.metrics import REGISTRY

STUCK_S: Final = 120.0  # in one pass; a replica that holds the Lease ends itself sooner
SILENT_MOST_S: Final = 10.0  # timeout of a silent client


@dataclass(slots=True)
class Health:
    checks: dict[str, Callable[[], str]] = field(default_factory=dict)  # by name; each returns why the agent is not ready, or ""
    idle_s: Callable[[], float] = lambda: 0.0  # since the last pass began

    def answer(self, path: str) -> tuple[int, str, bytes]:
        match path:
            case "/healthz":
                idle_s = self.idle_s()
                why = f"the last pass began {idle_s:.0f} s ago" if idle_s > STUCK_S else ""
                return _told("ok", "stuck", {"passes": why})
            case "/readyz":
                return _told("ready", "not ready", {name: check() for name, check in list(self.checks.items())})
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(REGISTRY)
            case _:
                return 404, "text/plain", b"/healthz, /readyz or /metrics\n"


def _told(good: str, bad: str, checks: Mapping[str, str]) -> tuple[int, str, bytes]:
    is_good = not any(checks.values())
    body = {"status": good if is_good else bad, "checks": {name: why or "ok" for name, why in checks.items()}}
    return 200 if is_good else 503, "application/json", json.dumps(body).encode()


def serve(health: Health, *, host: str, port: int, note: Note) -> None:
    """A port in use is only logged: the agent must go on to end boxes in time."""
    try:
        server = ThreadingHTTPServer((host, port), _handler(health))
    except OSError as error:
        note("health_not_served", {"address": f"{host}:{port}", "why": str(error), "to_do": "give the agent another --health-port"})
        return
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="egs-health", daemon=True).start()


def _handler(health: Health) -> type[BaseHTTPRequestHandler]:
    class HealthHandler(BaseHTTPRequestHandler):
        timeout = SILENT_MOST_S

        def do_GET(self) -> None:
            status, kind, body = health.answer(self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes are frequent."""

    return HealthHandler
