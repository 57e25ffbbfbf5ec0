"""Probes: who lives, who is ready, and what an answer gives away."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
import structlog
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from pytest_django.fixtures import Settings

from core.db_threads import in_db_thread
from egs.health import _newest_migrations
from tests.conftest import PROFILE
from tests.databases import db_threads_let_go
from tests.e2e.processes import free_port

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]

READY = {"database": "ok", "migrations": "ok", **({"redis": "ok"} if PROFILE == "postgres" else {})}


@pytest.fixture
def no_database(monkeypatch: pytest.MonkeyPatch) -> str:
    """The database's address leads nowhere, and nobody is connected from before."""
    db_threads_let_go()
    address = f"/there-is-no-such-folder-{free_port()}"
    monkeypatch.setitem(connection.settings_dict, "NAME" if PROFILE == "sqlite" else "HOST", f"{address}/database")
    return address


async def test_the_probes_answer_without_login_over_plain_http_and_by_any_host_name(local: httpx.AsyncClient, settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True

    alive, ready = await local.get("/healthz"), await local.get("/readyz")

    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.json()) == (200, {"status": "ready", "checks": READY})
    for answer in (alive, ready):
        assert "set-cookie" not in answer.headers
        assert answer.headers["cache-control"] == "no-store"


async def test_probes_take_no_other_method(local: httpx.AsyncClient) -> None:
    assert [(await local.post(path)).status_code for path in ("/healthz", "/readyz", "/metrics")] == [405] * 3


async def test_a_process_without_database_lives_but_is_not_ready_and_does_not_say_where_it_looked(
    local: httpx.AsyncClient, no_database: str
) -> None:
    with structlog.testing.capture_logs() as lines:
        alive, ready = await local.get("/healthz"), await local.get("/readyz")

    assert alive.status_code == 200
    assert ready.status_code == 503
    assert ready.json() == {"status": "not ready", "checks": {**READY, "database": "failed", "migrations": "failed"}}
    assert no_database not in ready.text
    assert {line["check"] for line in lines} == {"database", "migrations"}


async def test_a_database_that_was_not_migrated_is_not_ready(local: httpx.AsyncClient) -> None:
    newest = next(migration for migration in _newest_migrations() if migration[0] == "gpr")

    async def look() -> dict[str, str]:
        checks: dict[str, str] = (await local.get("/readyz")).json()["checks"]
        return checks

    await _in_thread(lambda recorder: recorder.record_unapplied(*newest))
    try:
        assert await look() == {**READY, "migrations": "failed"}
    finally:
        await _in_thread(lambda recorder: recorder.record_applied(*newest))
    assert await look() == READY


async def _in_thread(work: Callable[[MigrationRecorder], None]) -> None:
    await in_db_thread(lambda: work(MigrationRecorder(connection)))


@pytest.mark.postgres_only
async def test_without_redis_a_process_is_not_ready_and_does_not_say_where_it_looked(local: httpx.AsyncClient, settings: Settings) -> None:
    settings.EGS_REDIS_URL = f"redis://:secret-of-redis@127.0.0.1:{free_port()}/0"

    answer = await local.get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["checks"] == {**READY, "redis": "failed"}
    assert "127.0.0.1" not in answer.text
    assert "secret-of-redis" not in answer.text
