"""Does the database work of async code in small pools of threads.

Django's `sync_to_async` would keep a thread and its connection for each waiting request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import close_old_connections

Result = TypeVar("Result")

DB_THREADS = 4
LOAD_S = 60.0
_pool = ThreadPoolExecutor(max_workers=DB_THREADS, thread_name_prefix="egs-db")


async def in_db_thread(work: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(_pool, _with_connection, work)


class LossyThread:
    """Runs one thread for work that may be refused, so that it never holds up the work of `in_db_thread`."""

    def __init__(self, name: str, *, waiting_max: int, wait_max_s: float) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting_max, self._wait_max_s, self._waiting = waiting_max, wait_max_s, 0
        self._busy_s, self._since_s = 0.0, time.monotonic()

    async def run(self, work: Callable[[], Result]) -> Result | None:
        """Returns None where too much waits already, or where the turn came too late: whoever asked has given up."""
        if self._waiting >= self._waiting_max:
            return None
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._timed, work, time.monotonic())
        finally:
            self._waiting -= 1

    def load(self) -> float:
        """Returns the share of the last minute or so in which it worked."""
        passed_s = time.monotonic() - self._since_s
        load = self._busy_s / max(passed_s, LOAD_S / 2)
        if passed_s > LOAD_S:
            self._busy_s, self._since_s = self._busy_s / 2, self._since_s + passed_s / 2
        return load

    def _timed(self, work: Callable[[], Result], asked_s: float) -> Result | None:
        began_s = time.monotonic()
        if began_s - asked_s > self._wait_max_s:
            return None
        try:
            return _with_connection(work)
        finally:
            self._busy_s += time.monotonic() - began_s


def _with_connection(work: Callable[[], Result]) -> Result:
    close_old_connections()
    try:
        return work()
    finally:
        close_old_connections()
