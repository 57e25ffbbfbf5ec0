"""Servers of a test's own, which it may kill: a PostgreSQL, by deploy/services. Redis is tests/journal/redis_server.py."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from tempfile import gettempdir
from uuid import uuid4

from tests.e2e.processes import ROOT, wait_for
from tests.migrated import postgres_database

STOP_S = 30.0


class OwnPostgres:
    def __init__(self) -> None:
        # Not in pytest's folder, which PostgreSQL's user may not enter.
        self._folder = Path(gettempdir()) / f"egs-own-{uuid4().hex[:12]}"
        given = {name: text for name, text in os.environ.items() if name != "EGS_TEST_POSTGRES_URL"}
        # A Redis is given, so that none is started.
        self._env = {**given, "EGS_SERVICES_DIR": str(self._folder), "EGS_TEST_REDIS_URL": "redis://127.0.0.1:1/0"}
        self._env["EGS_SERVICES_DURABLE"] = "1"  # as deploy/production has it
        self.url = ""

    def create(self) -> None:
        """Its database is migrated: that is copied, since migrating takes twenty seconds of a core."""
        self._services("up")
        self.url = self._services("env").split("EGS_TEST_POSTGRES_URL=")[1].split()[0]
        with postgres_database() as migrated:
            dump = subprocess.run(["pg_dump", "--no-owner", migrated], stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["psql", "--quiet", "--set=ON_ERROR_STOP=1", self.url], input=dump, stdout=subprocess.DEVNULL, check=True)

    def remove(self) -> None:
        self._services("down")

    def crash(self) -> None:
        """Ends it as `pg_ctl stop -m immediate` does: no connection is ended in order, the next start recovers from its log."""
        pid = self._pid()
        os.kill(pid, signal.SIGQUIT)
        wait_for("the end of PostgreSQL", lambda: not Path(f"/proc/{pid}").exists(), within_s=STOP_S)

    def start(self) -> None:
        self._services("up")

    def _pid(self) -> int:
        return int((self._folder / "postgres" / "postmaster.pid").read_text().split()[0])

    def _services(self, command: str) -> str:
        done = subprocess.run(["deploy/services", command], cwd=ROOT, env=self._env, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout
