from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.databases import postgres_database


@pytest.fixture
def own_database(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a process with a database of its own, empty, dropped afterwards."""
    if connection.vendor == "sqlite":
        yield {**os.environ, "EGS_DATABASE_URL": f"sqlite:///{tmp_path}/own.sqlite3"}
        return
    with postgres_database() as url:
        yield {**os.environ, "EGS_DATABASE_URL": url}
