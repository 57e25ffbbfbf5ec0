"""Locks things between processes; a lock ends when its holder dies."""

from __future__ import annotations

import fcntl
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from threading import Semaphore
from typing import Final

from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

# So many threads of a process may want a transaction's lock at once, each with its connection: one holds it, the next waits for it.
TURNS: Final = 2
_turns: Final[dict[str, Semaphore]] = {}
_guards: Final[list[BaseDatabaseWrapper]] = []  # nobody uses them now


@contextmanager
def single_runner(name: str) -> Iterator[bool]:
    """Give True to the one caller that has the lock."""
    holder = _advisory_lock if connection.vendor == "postgresql" else _file_lock
    with holder(name) as mine:
        yield mine


def transaction_lock(name: str) -> None:
    """Wait for the lock, and hold it until the transaction ends; those who wait get it in turn. SQLite has one writer anyway."""
    if not connection.in_atomic_block:
        raise TransactionManagementError(f"The lock {name} is held within a transaction only.")
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_number(name)])


@contextmanager
def in_turn(name: str) -> Iterator[None]:
    """Wait here before a transaction that will take the lock: without a connection, so that others of this process have some left."""
    if connection.in_atomic_block:  # somebody may wait for what it holds, so it must not wait for others here
        yield
        return
    turn = _turns.setdefault(name, Semaphore(TURNS))
    if not turn.acquire(blocking=False):
        connection.close()
        turn.acquire()
    try:
        yield
    finally:
        turn.release()


@contextmanager
def _advisory_lock(name: str) -> Iterator[bool]:
    # A separate connection holds the lock in its own transaction, so the work may commit. Unlike a session's lock, it is safe behind a
    # pooler. The next runner takes it, as long as it is good: to connect costs several milliseconds.
    guard = _guards.pop() if _guards else _guard_made()
    guard.close_if_unusable_or_obsolete()
    guard.set_autocommit(False)
    try:
        with guard.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_number(name)])
            (mine,) = cursor.fetchone()
        yield mine
    finally:
        with suppress(DatabaseError):  # then it is not good any more
            guard.rollback()
            guard.set_autocommit(True)
            _guards.append(guard)


def _guard_made() -> BaseDatabaseWrapper:
    guard = connections.create_connection(DEFAULT_DB_ALIAS)
    guard.inc_thread_sharing()  # the next runner may be another thread
    return guard


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
