"""Times of PostgreSQL, read by the parser that Python has in C: a plan reads tens of thousands, and psycopg's own is written in Python.

Django's loader is no subclass of the compiled one of psycopg, which cannot have any.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    from psycopg.abc import Loader

ZERO_OFFSET = "+00"


def read_times_fast(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """For the signal `connection_created`."""
    if connection.vendor == "postgresql":
        connection.connection.adapters.register_loader("timestamptz", _loader())


@lru_cache(maxsize=1)
def _loader() -> type[Loader]:
    """psycopg is imported where PostgreSQL is used only: that takes a moment."""
    from psycopg.types.datetime import TimestamptzLoader

    class UtcLoader(TimestamptzLoader):
        timezone = UTC  # Django asks whether it is its own

        def load(self, data: Any) -> datetime:
            """What is no time of a calendar, or not in UTC, is psycopg's to read, or to refuse."""
            text = str(data, "ascii")
            try:
                return datetime.fromisoformat(text) if text.endswith(ZERO_OFFSET) else super().load(data)
            except ValueError:
                return super().load(data)

    return UtcLoader
