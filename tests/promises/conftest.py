from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from django.db import connection


@pytest.fixture
def own_database(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a process with a database of its own, empty, dropped afterwards."""
    if connection.vendor == "sqlite":
        yield {**os.environ, "EGS_DATABASE_URL": f"sqlite:///{tmp_path}/own.sqlite3"}
        return
    given = urlsplit(os.environ["EGS_DATABASE_URL"])._replace(path="/postgres")
    name = f"egs_own_{uuid4().hex[:12]}"
    with psycopg.connect(given.geturl(), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        try:
            yield {**os.environ, "EGS_DATABASE_URL": given._replace(path=f"/{name}").geturl()}
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")
