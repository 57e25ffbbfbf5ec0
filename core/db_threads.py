"""Database work of async code, in a small pool of threads.

Django's `sync_to_async` would keep a thread and its connection for each waiting request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.db import close_old_connections

Result = TypeVar("Result")

DB_THREADS = 4
_pool = ThreadPoolExecutor(max_workers=DB_THREADS, thread_name_prefix="egs-db")


async def in_db_thread(work: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(_pool, _with_connection, work)


def _with_connection(work: Callable[[], Result]) -> Result:
    close_old_connections()
    try:
        return work()
    finally:
        close_old_connections()
