"""Configures the logs of all hub processes: JSON lines in production, readable lines otherwise."""

from __future__ import annotations

from typing import Any

import structlog
from structlog.types import Processor

QUIET = {
    # No line for each tick: /metrics shows whether they run.
    "celery.app.trace": "WARNING",
    "celery.worker.strategy": "WARNING",
    "celery.beat": "WARNING",
    "django.request": "ERROR",
    "httpx": "WARNING",
}
# Without local variables, which may hold passwords.
_TRACEBACK = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
_BEFORE: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def logging_configure(*, is_json: bool, level: str) -> dict[str, Any]:
    """Configures structlog and returns Django's LOGGING."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_BEFORE,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": structlog.stdlib.ProcessorFormatter, "processors": _last(is_json), "foreign_pre_chain": _BEFORE}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
        "root": {"handlers": ["console"], "level": level},
        "loggers": {name: {"level": at} for name, at in QUIET.items()},
    }


def _last(is_json: bool) -> list[Processor]:
    bare = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if is_json:
        return [bare, structlog.processors.ExceptionRenderer(_TRACEBACK), structlog.processors.JSONRenderer()]
    return [bare, structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)]
