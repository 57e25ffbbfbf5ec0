"""Drops databases, finds rows that a test left in the shared one, sees who waits for a lock, and moves the clock of all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace

import psycopg
import pytest
import time_machine
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from core import clock, db_threads
from core.db_threads import DB_THREADS

# Django fills these when it migrates.
KEPT = {"auth_permission", "django_content_type"}
MEETING_MOST_S = 30.0


def drop(server: psycopg.Connection, name: str) -> None:
    """End our connections to this database and drop it.

    WITH (FORCE) would be refused while autovacuum, a superuser's process, looks at the database; a plain DROP ends that process.
    """
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = current_user", [name])
    server.execute(f"DROP DATABASE {name}")


def db_threads_let_go() -> None:
    """Close the connections of core/db_threads.py: the test database can only be dropped when nobody is connected."""
    from observability.telemetry import agent_views as telemetry_views  # needs loaded apps

    everybody = threading.Barrier(DB_THREADS)

    def close() -> None:
        everybody.wait(timeout=10)
        connection.close()

    for closing in [db_threads._pool.submit(close) for _ in range(DB_THREADS)]:
        closing.result()
    telemetry_views.thread._pool.submit(lambda: connection.close()).result()  # noqa: PLW0108  # the connection of that thread


@contextmanager
def travel(to: datetime, *, tick: bool = True) -> Iterator[time_machine.Traveller]:
    """Let this process live at another time. PostgreSQL's clock stays where it is, so the hub asks the clock of the process instead."""
    with pytest.MonkeyPatch.context() as patch, time_machine.travel(to, tick=tick) as traveller:
        patch.setattr(clock, "connection", SimpleNamespace(vendor="a clock that travels"))
        yield traveller


def lock_waiter_count() -> int:
    """Counts the connections to this database that wait for a lock, on PostgreSQL."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # within a transaction it would show the connections of the first look
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
        return int(cursor.fetchone()[0])


def wait_until(look: Callable[[], bool]) -> None:
    until = time.monotonic() + MEETING_MOST_S
    while not look():
        assert time.monotonic() < until, "the others did not come so far"
        time.sleep(0.01)


def delete_all_rows() -> None:
    """Empty each table that has rows."""
    tables = sorted(set(connection.introspection.django_table_names()) - KEPT)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in tables))  # noqa: S608
        filled = {table for (table,) in cursor.fetchall()}
        if "journal_event" in filled:
            filled.remove("journal_event")
            _empty_journal(cursor)
        for table in filled:
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608


def _empty_journal(cursor: CursorWrapper) -> None:
    """It refuses DELETE, as it should."""
    if connection.vendor == "postgresql":
        cursor.execute("TRUNCATE journal_event CASCADE")  # what people are told of it goes with it
        return
    cursor.execute("SELECT sql FROM sqlite_master WHERE name = 'journal_event_no_delete'")
    (trigger,) = cursor.fetchone()
    cursor.execute("DROP TRIGGER journal_event_no_delete")
    cursor.execute("DELETE FROM journal_event")
    cursor.execute(trigger)
