"""Runs a hub for one benchmark with its own database and process, on PostgreSQL (and Redis) of deploy/services, or SQLite."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path

from bench.figures import Figure, NotRun

ROOT = Path(__file__).resolve().parents[2]


def figures_from(*command: str, with_redis: bool) -> list[Figure]:
    """Returns what `python -m COMMAND` prints on such a hub. Raises NotRun."""
    servers = _servers()
    return _told(command, {"EGS_DATABASE_URL": servers["POSTGRES"], "EGS_REDIS_URL": servers["REDIS"] if with_redis else ""})


def figures_embedded(*command: str) -> list[Figure]:
    """Does the same on SQLite. Raises NotRun."""
    with tempfile.TemporaryDirectory() as folder:
        return _told(command, {"EGS_DATABASE_URL": f"sqlite:///{folder}/hub.sqlite3", "EGS_REDIS_URL": ""})


def _told(command: Sequence[str], settings: Mapping[str, str]) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        given = {
            **settings,
            "EGS_VAR_DIR": folder,
            "EGS_LOG_LEVEL": "ERROR",
            "EGS_API_RATE_PER_MIN": "0",
            "EGS_ENTRY_TIMEOUT_S": "86400",  # nothing enters meanwhile
            "DJANGO_SETTINGS_MODULE": "egs.settings",
        }
        told = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env={**os.environ, **given}, stdout=subprocess.PIPE, check=False)
    if told.returncode:
        raise NotRun("its process failed, see above")
    return [Figure(**figure) for figure in json.loads(told.stdout)]


def tell(figures: Sequence[Figure]) -> None:
    json.dump([asdict(figure) for figure in figures], sys.stdout)


@contextmanager
def migrated_database() -> Iterator[None]:
    """Makes an empty database for Django in this process and those that it starts. It may be called once in a process."""
    from tests.migrated import postgres_database

    given = os.environ["EGS_DATABASE_URL"]
    with nullcontext(given) if given.startswith("sqlite") else postgres_database() as url:
        os.environ["EGS_DATABASE_URL"] = url
        import django

        django.setup()
        from django.core.management import call_command
        from django.db import connection

        call_command("migrate", verbosity=0)
        yield
        connection.close()


def _servers() -> dict[str, str]:
    if subprocess.run(["deploy/services", "up"], cwd=ROOT, check=False).returncode:
        raise NotRun("no PostgreSQL or no Redis: deploy/services up says why")
    exports = subprocess.run(["deploy/services", "env"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = dict(re.findall(r"EGS_TEST_(POSTGRES|REDIS)_URL='?([^'\s]+)", exports))
    if len(found) < 2:
        raise NotRun("deploy/services names no PostgreSQL or no Redis")
    return found
