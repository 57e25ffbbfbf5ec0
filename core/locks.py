"""Locks between processes, which end when their holder dies."""

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

SHARED_WAIT_MOST_S: Final = 5.0
RETRY_S: Final = 0.02


@contextmanager
def single_runner(name: str) -> Iterator[bool]:
    """Give True to the one caller that has the lock."""
    holder = _advisory_lock if connection.vendor == "postgresql" else _file_lock
    with holder(name) as mine:
        yield mine


def take_shared_lock(name: str) -> None:
    """Make `exclusive_lock` wait until this transaction ends. Wait at most SHARED_WAIT_MOST_S for one that is held, then go on without.

    Take it before any other lock: PostgreSQL does not detect a deadlock that involves it.
    """
    if connection.vendor != "postgresql":
        return
    until_s = time.monotonic() + SHARED_WAIT_MOST_S
    with connection.cursor() as cursor:
        while time.monotonic() < until_s:
            cursor.execute("SELECT pg_try_advisory_xact_lock_shared(%s)", [_number(name)])
            if cursor.fetchone()[0]:
                return
            time.sleep(RETRY_S)


@contextmanager
def exclusive_lock(name: str) -> Iterator[None]:
    """Hold off those that call `take_shared_lock`. Does nothing within a transaction, which may itself hold the shared lock."""
    if connection.vendor != "postgresql" or connection.in_atomic_block:  # SQLite has one writer at a time
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
    # A separate connection holds the lock in its own transaction, so the work may commit. Unlike a session's lock, it is safe behind a
    # pooler.
    guard = connections.create_connection(DEFAULT_DB_ALIAS)
    try:
        guard.set_autocommit(False)
        with guard.cursor() as cursor:
            cursor.execute(lock, [_number(name)])
            (mine,) = cursor.fetchone()
        yield mine
    finally:
        # Closing alone is not enough: the server ends a session later, and the next caller would find the lock taken.
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
    # Beside the database file. A database in memory belongs to one process, so any unique path will do.
    database = str(connection.settings_dict["NAME"])
    if "memory" in database or not database:
        return Path(gettempdir()) / f"egs-{id(connections)}-{name}.lock"
    return Path(f"{database}.{name}.lock")
