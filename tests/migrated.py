"""An empty, migrated database for each test process, copied from one that is made once for each state of the migrations.

Migrating takes fifteen seconds of a core, and a run of the suite starts some ten processes.
"""

from __future__ import annotations

import ast
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
# The imports of these are followed, too. PostgreSQL's triggers are in migrations, and Django names a permission after each model.
ROOTS = ("*/migrations/*.py", "*/models.py", "*/models/*.py", "*/triggers.py")
# These files say what is installed, and which triggers an app makes after a migration.
OTHERS = ("requirements/*.lock", "egs/settings.py", "*/apps.py")
TEMPLATES_MAX = 5  # several checkouts, each with its migrations
# Django renders its models thousands of times, and a seventh of the CPU time went into collecting them.
WITHOUT_COLLECTOR = "import gc, runpy; gc.disable(); runpy.run_path('manage.py', run_name='__main__')"


def files_of_schema() -> set[Path]:
    """Returns all files that a migrated database depends on."""
    found: set[Path] = set()
    ahead = {path for pattern in ROOTS for path in ROOT.glob(pattern)}
    while ahead:
        found |= ahead
        ahead = {path for importer in ahead for path in _imported(importer)} - found
    return found | {path for pattern in OTHERS for path in ROOT.glob(pattern)}


def _imported(importer: Path) -> Iterator[Path]:
    """Yields the project's own files that this one imports anywhere."""
    for node in ast.walk(ast.parse(importer.read_bytes())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            # A name that is imported from a package may be a module.
            names = [f"{node.module}", *(f"{node.module}.{name}" for name in names)]
        for name in names:
            path = ROOT / name.replace(".", "/")
            yield from filter(Path.is_file, (path.with_suffix(".py"), path / "__init__.py"))


def state_of_schema() -> str:
    digest = hashlib.sha256()
    for path in sorted(files_of_schema()):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _locked_folder() -> Iterator[Path]:
    """A folder of templates that all checkouts of this user share; one process at a time works in it."""
    folder = Path(tempfile.gettempdir()) / f"egs-migrated-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _migrate(url: str) -> None:
    command = [sys.executable, "-c", WITHOUT_COLLECTOR, "migrate", "--verbosity", "0", "--skip-checks"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "EGS_DATABASE_URL": url}, check=True)


def copy_to_file(path: Path) -> None:
    """Write a migrated SQLite database to this path."""
    with _locked_folder() as folder:
        template = folder / f"{state_of_schema()}.sqlite3"
        if not template.exists():
            templates = sorted(folder.glob("*.sqlite3"), key=lambda path: path.stat().st_mtime)
            for old in templates[: 1 - TEMPLATES_MAX]:
                old.unlink()
            part = folder / "part.sqlite3"
            part.unlink(missing_ok=True)
            _migrate(f"sqlite:///{part}")
            part.rename(template)
        shutil.copyfile(template, path)


@contextmanager
def postgres_copy(name: str, server_url: str) -> Iterator[None]:
    """Make a migrated database of this name on the server, and drop it afterwards."""
    url = urlsplit(server_url)
    with psycopg.connect(url._replace(path="/postgres").geturl(), autocommit=True) as server:
        with _locked_folder():
            template = f"egs_migrated_{state_of_schema()}"
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
    """Yields the URL of a test's own migrated database on the profile's server and drops it afterwards."""
    given, name = os.environ["EGS_DATABASE_URL"], f"egs_own_{uuid4().hex[:12]}"
    with postgres_copy(name, given):
        yield urlsplit(given)._replace(path=f"/{name}").geturl()


def _drop_templates(server: psycopg.Connection) -> None:
    for (old,) in server.execute("SELECT datname FROM pg_database WHERE datname LIKE 'egs\\_migrated\\_%'").fetchall():
        server.execute(f"DROP DATABASE IF EXISTS {old}")
