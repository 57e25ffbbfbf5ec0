"""Databases of their own for tests that start processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg


@contextmanager
def postgres_database() -> Iterator[str]:
    """The URL of an empty database on the profile's server, dropped afterwards."""
    given = urlsplit(os.environ["EGS_DATABASE_URL"])._replace(path="/postgres")
    name = f"egs_own_{uuid4().hex[:12]}"
    with psycopg.connect(given.geturl(), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield given._replace(path=f"/{name}").geturl()
        finally:
            # Not WITH (FORCE): that is refused while autovacuum, a superuser's process, looks at the database; a plain DROP ends it.
            server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = current_user", [name])
            server.execute(f"DROP DATABASE {name}")
