"""Locks between processes, free the moment their holder dies: one that is never waited for, and a gate before a crowd."""

from __future__ import annotations

import fcntl
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections

GATE_MOST_S: Final = 5.0
GATE_LOOK_S: Final = 0.02


@contextmanager
def single_runner(name: str) -> Iterator[bool]:
    """Give True to the one caller that has the lock, False to all others."""
    holder = _advisory_lock if connection.vendor == "postgresql" else _file_lock
    with holder(name) as mine:
        yield mine


def gate_pass(name: str) -> None:
    """Wait while the gate is shut, though not for ever; whoever shuts it then waits until this transaction ends.

    It keeps order in a crowd, and is no safety. It is held by one session for another, so a circle of waiting through it would not be
    found by the server: hence the end, and take it before any other lock.
    """
    if connection.vendor != "postgresql":
        return
    until_s = time.monotonic() + GATE_MOST_S
    with connection.cursor() as cursor:
        while time.monotonic() < until_s:
            cursor.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", [_number(name)])
            if cursor.fetchone()[0]:
                return
            time.sleep(GATE_LOOK_S)


@contextmanager
def gate_shut(name: str) -> Iterator[None]:
    """Nobody passes meanwhile; not for long. Within a transaction it stays open, for that may itself have passed."""
    if connection.vendor != "postgresql" or connection.in_atomic_block:  # on SQLite one writes at a time anyway
        yield
        return
    with _asked("SELECT pg_advisory_xact_lock(%s)", name):
        yield


@contextmanager
def _advisory_lock(name: str) -> Iterator[bool]:
    with _asked("SELECT pg_try_advisory_xact_lock(%s)", name) as mine:
        yield mine


@contextmanager
def _asked(lock: str, name: str) -> Iterator[bool]:
    # A connection of its own holds the lock in a transaction of its own: the work commits as often as it likes, and a
    # transaction lock, unlike a session's, is safe behind a pooler.
    guard = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        guard.set_autocommit(False)
        with guard.cursor() as cursor:
            cursor.execute(lock, [_number(name)])
            (mine,) = cursor.fetchone()
        yield mine
    finally:
        # Not by closing alone: the server ends a session when it gets to it, and the next tick would find the lock taken.
        with suppress(DatabaseError):
            guard.rollback()
        guard.close()


def _number(name: str) -> int:
    return zlib.crc32(name.encode())


@contextmanager
def _file_lock(name: str) -> Iterator[bool]:
    with _lock_path(name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _lock_path(name: str) -> Path:
    """Beside the database file; a database in memory is one process's own, so any place that no other uses will do."""
    database = str(connection.settings_dict["NAME"])
    if "memory" in database or not database:
        return Path(gettempdir()) / f"egs-{id(connections)}-{name}.lock"
    return Path(f"{database}.{name}.lock")
