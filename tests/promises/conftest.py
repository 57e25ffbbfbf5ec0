from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tests.migrated import copy_to_file, postgres_database


@pytest.fixture
def own_database(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yields the environment of a process with its own migrated, empty database and drops the database afterwards."""
    if connection.vendor == "sqlite":
        path = tmp_path / "own.sqlite3"
        copy_to_file(path)
        yield {**os.environ, "EGS_DATABASE_URL": f"sqlite:///{path}"}
        return
    with postgres_database() as url:
        yield {**os.environ, "EGS_DATABASE_URL": url}
