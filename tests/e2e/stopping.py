"""Stops a process in the middle of its work without touching its code: the test holds the lock that the process needs next."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from tests.e2e.processes import START_S, wait_for

# Each is a statement that takes the lock, and what the statements that wait for it hold.
NODES = ("SELECT 1 FROM inventory_node FOR UPDATE", "inventory_node")  # a start locks these after it has moved the GPR
PLAN = (f"SELECT pg_advisory_xact_lock({zlib.crc32(b'plan')})", "pg_advisory_xact_lock")  # each plan and each submit takes it


@contextmanager
def held_up(database_url: str, lock: tuple[str, str]) -> Iterator[Callable[[int], None]]:
    """Hold the lock until the block ends. Gives a function that waits until so many wait for it."""
    statement, part = lock
    with psycopg.connect(database_url) as holder, psycopg.connect(database_url, autocommit=True) as watcher:
        holder.execute(statement.encode())

        def waiting_count() -> int:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE %s"
            )
            row = watcher.execute(query, [f"%{part}%"]).fetchone()
            return row[0] if row else 0

        def wait(count: int) -> None:
            wait_for(f"{count} who wait for {part}", lambda: waiting_count() >= count, within_s=START_S)

        yield wait
        holder.rollback()
