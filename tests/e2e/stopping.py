"""How a test stops a process in the middle of something, without touching its code: it locks the rows that the process needs next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests.e2e.processes import START_S, wait_for

NODES = "inventory_node"  # a start locks these after it has moved the GPR
PLAN_TABLE = "gpr_planrecord"  # each plan and each submit locks its row


@contextmanager
def held_up(database_url: str, table: str) -> Iterator[Callable[[int], None]]:
    """Hold the table's rows until the block ends. Gives a function that waits until so many wait for them."""
    with psycopg.connect(database_url) as holder, psycopg.connect(database_url, autocommit=True) as watcher:
        holder.execute(sql.SQL("SELECT 1 FROM {} FOR UPDATE").format(sql.Identifier(table)))

        def waiting_count() -> int:
            query = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE %s"
            )
            row = watcher.execute(query, [f"%{table}%"]).fetchone()
            return row[0] if row else 0

        def wait(count: int) -> None:
            wait_for(f"{count} who wait for {table}", lambda: waiting_count() >= count, within_s=START_S)

        yield wait
        holder.rollback()
