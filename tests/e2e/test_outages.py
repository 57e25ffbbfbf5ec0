"""The platform as deploy/production starts it, on a Redis and a PostgreSQL of the test's own, which go away and come back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from journal.hints import CHANNEL
from tests.e2e.jobs import ask_for, lived_its_whole_life_once, nothing_was_held_twice, state_of, wait_until
from tests.e2e.processes import ROOT, START_S, Api, free_port, is_alive, is_ready, wait_for
from tests.e2e.servers import OwnPostgres
from tests.journal.redis_server import OwnRedis

# On the two other days: test_production.py, and tests/browser/test_production.py; each day: tests/journal/test_hints.py
pytestmark = [pytest.mark.postgres_only, pytest.mark.xdist_group("outages"), pytest.mark.rotates(1)]

NAMES = {"agent", "beat", "notices", "web1", "web2", "worker"}


class Script:
    """It runs deploy/production with a folder and two ports of its own."""

    def __init__(self, folder: Path, *, database_url: str, redis_url: str) -> None:
        self.folder, ports = folder, (free_port(), free_port())
        self.web_urls = [f"http://127.0.0.1:{port}" for port in ports]
        own = {name: text for name, text in os.environ.items() if not name.startswith("EGS_")}
        servers = {"EGS_DATABASE_URL": database_url, "EGS_REDIS_URL": redis_url}
        self._env = {**own, **servers, "EGS_PRODUCTION_DIR": str(folder), "EGS_PRODUCTION_PORTS": "{} {}".format(*ports)}

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["deploy/production", command], cwd=ROOT, env=self._env, capture_output=True, text=True, check=False)

    def pids(self) -> dict[str, int]:
        return {path.stem: int(path.read_text().split()[0]) for path in self.folder.glob("*.pid")}


@dataclass(frozen=True, slots=True)
class Platform:
    script: Script
    api: Api
    redis: OwnRedis
    postgres: OwnPostgres

    @property
    def web(self) -> str:
        """Returns the web process that the agent and `api` use, too."""
        return self.script.web_urls[0]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    redis, postgres = OwnRedis(), OwnPostgres()
    try:
        redis.start()
        postgres.create()
        script = Script(tmp_path_factory.mktemp("production"), database_url=postgres.url, redis_url=redis.url)
        try:
            done = script.run("up")
            assert done.returncode == 0, done.stderr
            api = Api(script.web_urls[0], (script.folder / "admin-token").read_text().strip())
            wait_for("the fleet", lambda: api.get("/nodes/")["results"], within_s=START_S)
            api.post("/slices/", {"name": "other", "project": "trial", "clusters": ["aurora"]})
            yield Platform(script, api, redis, postgres)
            api.close()
        finally:
            script.run("down")
    finally:
        postgres.remove()
        redis.kill()


def test_one_command_starts_a_platform_that_answers_at_both_addresses(platform: Platform) -> None:
    status, pids = platform.script.run("status"), platform.script.pids()

    assert status.returncode == 0, status.stdout
    assert set(pids) == NAMES
    assert all(is_ready(url) for url in platform.script.web_urls)
    assert platform.script.run("up").returncode == 0
    assert platform.script.pids() == pids, "a second time starts nothing"


def test_while_redis_is_away_requests_are_taken_and_boxes_end_and_afterwards_all_goes_on(platform: Platform) -> None:
    api, redis, web = platform.api, platform.redis, platform.web
    running = ask_for(api, "trial", duration_s=2)
    wait_until(api, running, "ACTIVE")
    listener_count = redis.listener_count(CHANNEL)

    redis.kill()
    answer = httpx.get(f"{web}/readyz")
    taken = ask_for(api, "other", duration_s=2)
    state_meanwhile = state_of(api, taken)
    wait_for("the end of the box, by its agent alone", lambda: _is_left(api, running), within_s=START_S)
    redis.start()

    assert (answer.status_code, answer.json()["checks"]) == (503, {"database": "ok", "migrations": "ok", "redis": "failed"})
    assert state_meanwhile == "QUEUED"
    for gpr_id in (running, taken):
        wait_until(api, gpr_id, "COMPLETED", within_s=2 * START_S)  # the worker tries Redis more and more seldom
        lived_its_whole_life_once(api, gpr_id)
    wait_for("the listeners' return", lambda: redis.listener_count(CHANNEL) == listener_count, within_s=START_S)
    assert is_ready(web)


def test_the_database_that_production_starts_forgets_nothing_that_was_committed(platform: Platform) -> None:
    """The platform's own is started as deploy/production starts one."""
    names = ("fsync", "full_page_writes", "synchronous_commit")

    with psycopg.connect(platform.postgres.url) as connection:
        found = [connection.execute(SQL("SHOW {}").format(Identifier(name))).fetchone() for name in names]

    assert found == [("on",), ("on",), ("on",)]
    assert "EGS_SERVICES_DURABLE=1" in (ROOT / "deploy" / "production").read_text()


def test_while_postgresql_is_away_the_api_says_so_and_afterwards_nothing_is_lost(platform: Platform) -> None:
    api, web = platform.api, platform.web
    running = ask_for(api, "trial", duration_s=2)
    waiting = ask_for(api, "trial", duration_s=2)  # behind it: a workspace has one box at a time
    wait_until(api, running, "PROVISIONING", "ACTIVE")

    platform.postgres.crash()
    read, write = api.raw("GET", f"/gprs/{running}/"), api.raw("POST", "/projects/", {"name": "lost"})
    alive, ready = httpx.get(f"{web}/healthz"), httpx.get(f"{web}/readyz")
    metrics = httpx.get(f"{web}/metrics")
    platform.postgres.start()

    for answer in (read, write):
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json"), answer.text
        assert answer.json()["code"] == "unavailable"
        assert answer.headers["retry-after"]
    assert alive.status_code == 200
    assert (ready.status_code, ready.json()["checks"]["database"]) == (503, "failed")
    assert "egs_database_up 0.0" in metrics.text.splitlines()
    for gpr_id in (running, waiting):
        wait_until(api, gpr_id, "COMPLETED")
        lived_its_whole_life_once(api, gpr_id)
    nothing_was_held_twice(api)


def test_one_command_ends_every_process_in_order_and_the_other_starts_them_again(platform: Platform) -> None:
    pids = platform.script.pids()

    done = platform.script.run("down")
    left, alive, status = platform.script.pids(), [name for name, pid in pids.items() if is_alive(pid)], platform.script.run("status")
    again = platform.script.run("up")

    assert done.returncode == 0, done.stderr
    assert not left
    assert not alive
    assert status.returncode != 0
    assert again.returncode == 0, again.stderr
    assert platform.api.get("/nodes/")["results"], "its data stayed"


def _is_left(api: Api, gpr_id: str) -> bool:
    rows = [row for row in api.get("/schedule/?page_size=500")["results"] if row["gpr_id"] == gpr_id]
    return bool(rows) and all(row["state"] == "RELEASED" for row in rows)
