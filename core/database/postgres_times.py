"""Reads PostgreSQL's times with Python's C parser, since a plan reads tens of thousands of them.

psycopg's compiled loader has no subclasses, and Django's loader is written in Python.
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
    if connection.vendor == "postgresql":
        connection.connection.adapters.register_loader("timestamptz", _loader())


@lru_cache(maxsize=1)
def _loader() -> type[Loader]:
    # Imported only where PostgreSQL is used, because it is slow.
    from psycopg.types.datetime import TimestamptzLoader

    class UtcLoader(TimestamptzLoader):
        timezone = UTC  # Django compares it with its own

        def load(self, data: Any) -> datetime:
            """psycopg reads or refuses other times."""
            text = str(data, "ascii")
            try:
                return datetime.fromisoformat(text) if text.endswith(ZERO_OFFSET) else super().load(data)
            except ValueError:
                return super().load(data)

    return UtcLoader
