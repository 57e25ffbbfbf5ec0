"""Times of PostgreSQL, read by the parser that Python has in C: a plan reads tens of thousands, and psycopg's own is written in Python.

Django's loader is no subclass of the compiled one of psycopg, which cannot have any.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

ZERO_OFFSET = "+00"


def read_times_fast(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """For the signal `connection_created`."""
    if connection.vendor == "postgresql":
        connection.connection.adapters.register_loader("timestamptz", _loader())


@lru_cache(maxsize=1)
def _loader() -> type:
    """psycopg is imported where PostgreSQL is used only: that takes a moment."""
    from django.db.backends.postgresql.psycopg_any import BaseTzLoader

    class UtcLoader(BaseTzLoader):
        timezone = UTC

        def load(self, data: Any) -> datetime:
            """What is no time of a calendar, or not in UTC, is Django's to read, or to refuse."""
            text = str(data, "ascii")
            try:
                return datetime.fromisoformat(text) if text.endswith(ZERO_OFFSET) else super().load(data)
            except ValueError:
                return super().load(data)

    return UtcLoader
