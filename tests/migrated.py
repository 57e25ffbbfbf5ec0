"""An empty, migrated database for each test process, copied from one that is made once for each state of the code.

Migrating takes ten seconds of a core, and a run of the suite starts some ten processes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

from tests.databases import drop

ROOT = Path(__file__).parent.parent
CODE = (
    "core",
    "egs",
    "planner",
    "protocol",
    "accounts",
    "journal",
    "inventory",
    "slices",
    "gpr",
    "observability",
    "inference",
    "requirements",
)


def state_of_code() -> str:
    """A digest of all files that migrations may depend on."""
    digest = hashlib.sha256()
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix in {".py", ".sql", ".lock"}:
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _locked_folder() -> Iterator[Path]:
    """A folder of this checkout's templates; one process at a time works in it."""
    key = hashlib.sha256(f"{os.getuid()}:{ROOT}".encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"egs-migrated-{key}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _migrate(url: str) -> None:
    command = [sys.executable, str(ROOT / "manage.py"), "migrate", "--verbosity", "0"]
    subprocess.run(command, env={**os.environ, "EGS_DATABASE_URL": url}, check=True)


def copy_to_file(path: Path) -> None:
    """Write a migrated SQLite database to this path."""
    with _locked_folder() as folder:
        template = folder / f"{state_of_code()}.sqlite3"
        if not template.exists():
            for old in folder.glob("*.sqlite3*"):
                old.unlink()
            part = folder / "part.sqlite3"
            _migrate(f"sqlite:///{part}")
            part.rename(template)
        shutil.copyfile(template, path)


@contextmanager
def postgres_copy(name: str, server_url: str) -> Iterator[None]:
    """Make a migrated database of this name on the server, and drop it afterwards."""
    url = urlsplit(server_url)
    with psycopg.connect(url._replace(path="/postgres").geturl(), autocommit=True) as server:
        with _locked_folder():
            template = f"egs_migrated_{state_of_code()}"
            if not server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [template]).fetchone():
                _drop_templates(server)
                server.execute(f"CREATE DATABASE {template}_part")
                _migrate(url._replace(path=f"/{template}_part").geturl())
                server.execute(f"ALTER DATABASE {template}_part RENAME TO {template}")
            server.execute(f"DROP DATABASE IF EXISTS {name}")
            server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield
        finally:
            drop(server, name)


@contextmanager
def postgres_database() -> Iterator[str]:
    """The URL of a migrated database of a test's own on the profile's server, dropped afterwards."""
    given, name = os.environ["EGS_DATABASE_URL"], f"egs_own_{uuid4().hex[:12]}"
    with postgres_copy(name, given):
        yield urlsplit(given)._replace(path=f"/{name}").geturl()


def _drop_templates(server: psycopg.Connection) -> None:
    for (old,) in server.execute("SELECT datname FROM pg_database WHERE datname LIKE 'egs\\_migrated\\_%'").fetchall():
        server.execute(f"DROP DATABASE IF EXISTS {old}")
