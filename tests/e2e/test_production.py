"""The production profile as processes: the same main job on PostgreSQL, Redis and Celery."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.databases import postgres_database
from tests.e2e.processes import START_S, ProductionStage, wait_for

pytestmark = pytest.mark.postgres_only

REDIS_DATABASE = 9  # no other test uses it


@pytest.fixture
def database_url() -> Iterator[str]:
    with postgres_database() as url:
        yield url


@pytest.fixture
def stage(tmp_path: Path, database_url: str) -> Iterator[ProductionStage]:
    env = {
        "EGS_PROFILE": "production",
        "EGS_SECRET_KEY": "for this test only, and longer than fifty characters",
        "EGS_ALLOWED_HOSTS": "127.0.0.1",
        "EGS_DATABASE_URL": database_url,
        "EGS_REDIS_URL": urlsplit(os.environ["EGS_REDIS_URL"])._replace(path=f"/{REDIS_DATABASE}").geturl(),
        "EGS_ENTRY_ALLOWANCE_S": "10",
        "EGS_EXIT_ALLOWANCE_S": "10",
    }
    stage = ProductionStage(tmp_path, env=env)
    yield stage
    stage.stop()


def test_the_main_job_runs_on_celery_and_two_beats_do_no_harm(stage: ProductionStage) -> None:
    api = stage.start()
    stage.join(api, "c1")
    api.post("/projects/", {"name": "p"})
    api.post("/slices/", {"name": "s", "project": "p", "clusters": ["c1"]})

    ask = {"name": "job", "slice": "s", "shape": "H100-80GB", "nodes": 2, "duration_s": 3}
    gpr = api.post("/gprs/", ask)

    ended = wait_for("the end", lambda: (g := api.get(f"/gprs/{gpr['id']}/"))["state"] == "COMPLETED" and g, within_s=START_S)
    moves = [event["new"] for event in api.events_of(ended["id"]) if event["kind"] == "gpr.transition"]
    assert moves == ["PROVISIONING", "ACTIVE", "EXITING", "COMPLETED"]
