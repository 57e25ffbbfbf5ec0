"""Writes log lines on standard error, one per event. A repeated line is suppressed for REPEAT_S."""

from __future__ import annotations

import logging
import sys
import threading

import structlog

from worker_agent.clock import Clock

REPEAT_S = 30.0
# Events of normal operation.
INFO = frozenset(
    {
        "join_token_found",
        "leading",
        "node_let_go",
        "node_taken_in",
        "request_given_back",
        "request_made",
        "requests_deleted",
        "step",
        "watch_begins_anew",
    }
)
# Faults of EGS or of its installation, which do not go away by themselves. All other events are warnings: refusals and passing failures.
ERROR = frozenset({"broke", "guard_missing", "lifts_broke", "object_unreadable", "state_not_saved", "superseded"})


def configure() -> None:
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def level_of(event: str) -> int:
    if event in INFO:
        return logging.INFO
    return logging.ERROR if event in ERROR else logging.WARNING


class Log:
    """It is thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logger = structlog.get_logger()
        self._said: dict[str, float] = {}
        self._lock = threading.Lock()

    def __call__(self, event: str, fields: dict[str, object]) -> None:
        if self._is_new(f"{event} {fields}", self._clock.mono()):
            self._logger.log(level_of(event), event, **fields)

    def _is_new(self, key: str, now: float) -> bool:
        with self._lock:
            self._said = {line: mono for line, mono in self._said.items() if now - mono < REPEAT_S}
            is_new = key not in self._said
            self._said.setdefault(key, now)
            return is_new

    def broke(self, what: str) -> None:
        self._logger.exception("unexpected", where=what)
