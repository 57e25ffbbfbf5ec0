"""Switches PostgreSQL's compiler off: it took several times as long to compile a list of 10,000 GPUs as it takes to read it."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakSet

from django.db.backends.base.base import BaseDatabaseWrapper

_switched: Final[WeakSet[Any]] = WeakSet()  # a pool lends the same connection again and again


def switch_jit_off(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Switch it off by a statement, since poolers refuse the setting among the parameters of a connection."""
    if connection.vendor == "postgresql" and connection.connection not in _switched:
        connection.connection.execute("SET jit = off")
        _switched.add(connection.connection)
