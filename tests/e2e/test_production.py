"""The production profile as processes: two of each, on PostgreSQL and Redis, and any of them may end at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.e2e.jobs import (
    ask_for,
    lived_its_whole_life_once,
    make_tenants,
    nothing_was_held_twice,
    reservations_of,
    state_of,
    wait_until,
)
from tests.e2e.processes import START_S, Api, ProductionStage, Running, is_ready, wait_for
from tests.e2e.stopping import NODES, PLAN, held_up
from tests.journal.redis_server import OwnRedis
from tests.migrated import postgres_database

# On the two other days: test_outages.py, and test_kill.py; each day: tests/promises/races/test_locks.py, tests/agent/process
pytestmark = [pytest.mark.postgres_only, pytest.mark.xdist_group("production"), pytest.mark.rotates(0)]

CUT_OFF = "timeout graceful shutdown exceeded"  # what uvicorn writes when it gives up waiting for an answer


@dataclass(frozen=True, slots=True)
class Production:
    stage: ProductionStage
    api: Api
    agent: Running
    database_url: str


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    """One for all tests here: each leaves it as whole as it found it."""
    redis = OwnRedis()
    redis.start()
    with postgres_database() as database_url:
        stage = ProductionStage(tmp_path_factory.mktemp("production"), database_url=database_url, redis_url=redis.url)
        try:
            api = stage.start()
            agent = stage.join(api, "c1")
            make_tenants(api, "one", "two", "three", "four", "five", "six")
            yield Production(stage, api, agent, database_url)
        finally:
            stage.stop()
            redis.kill()


def test_the_main_job_runs_and_two_beats_two_workers_and_two_web_processes_do_no_harm(production: Production) -> None:
    api = production.api

    gpr_ids = [ask_for(api, name, duration_s=1, nodes=2) for name in ("one", "two")]

    for gpr_id in gpr_ids:
        wait_until(api, gpr_id, "COMPLETED")
        lived_its_whole_life_once(api, gpr_id)
        assert len(reservations_of(api, gpr_id)) == 2
    wait_for("a notice of each start and end", lambda: notices_of(api, gpr_ids, "started", "ended") == 4, within_s=START_S)
    nothing_was_held_twice(api)


def test_agent_and_client_go_on_when_a_web_process_is_killed(production: Production) -> None:
    api, stage = production.api, production.stage
    gpr_id = ask_for(api, "three", duration_s=4)
    wait_until(api, gpr_id, "PROVISIONING", "ACTIVE")

    stage.webs[0].kill()
    wait_until(api, gpr_id, "COMPLETED")
    stage.webs[0].start()

    lived_its_whole_life_once(api, gpr_id)


def test_what_a_worker_had_half_started_when_it_was_killed_is_started_once_by_the_next_tick(production: Production) -> None:
    api, stage = production.api, production.stage

    with held_up(production.database_url, NODES) as wait_for_waiters:
        gpr_id = ask_for(api, "four", duration_s=1)
        wait_for_waiters(1)
        for worker in stage.workers:
            worker.kill()
    assert state_of(api, gpr_id) == "QUEUED"
    stage.workers[1].start()

    wait_until(api, gpr_id, "COMPLETED")
    stage.workers[0].start()
    lived_its_whole_life_once(api, gpr_id)
    assert len(reservations_of(api, gpr_id)) == 1
    nothing_was_held_twice(api)


# -- stopped in order ----------------------------------------------------------------------------------------------------


def test_a_worker_that_is_told_to_stop_ends_its_tick_first(production: Production) -> None:
    api, stage = production.api, production.stage
    stage.workers[1].kill()

    with held_up(production.database_url, NODES) as wait_for_waiters:
        gpr_id = ask_for(api, "five", duration_s=1)
        wait_for_waiters(1)
        stage.workers[0].ask_to_stop()
    code = stage.workers[0].wait()

    assert code == 0
    assert state_of(api, gpr_id) in {"PROVISIONING", "ACTIVE"}
    for worker in stage.workers:
        worker.start()
    wait_until(api, gpr_id, "COMPLETED")
    lived_its_whole_life_once(api, gpr_id)


def test_a_web_process_that_is_told_to_stop_answers_what_was_asked_and_who_is_parked(production: Production) -> None:
    stage, web = production.stage, production.stage.webs[0]
    wait_for("the web process", lambda: is_ready(stage.web_urls[0]), within_s=START_S)
    stage.webs[1].kill()  # now the agent, too, is parked at the one that is left
    wait_for("the agent's return", lambda: _parked_agents(stage.web_urls[0]) == 1, within_s=START_S)
    direct = production.api.at(stage.web_urls[0])
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()  # nothing starts now, so nothing but the stop wakes the agent

    with ThreadPoolExecutor(1) as client:
        with held_up(production.database_url, PLAN) as wait_for_waiters:
            asked = client.submit(ask_for, direct, "six", duration_s=1, earliest_start_at=later)
            wait_for_waiters(2)  # a tick, and this request
            web.ask_to_stop()
        gpr_id = asked.result()
    code = web.wait()

    assert code == 0
    assert CUT_OFF not in web.log.read_text()
    for process in stage.webs:
        process.start()
    wait_until(production.api, gpr_id, "QUEUED")
    direct.close()


def test_an_agent_that_is_told_to_stop_on_the_way_in_goes_on_where_it_was(production: Production) -> None:
    api = production.api
    gpr_id = ask_for(api, "one", duration_s=1, nodes=3)
    wait_until(api, gpr_id, "PROVISIONING")

    assert production.agent.stop() == 0
    production.agent.start()

    wait_until(api, gpr_id, "COMPLETED")
    lived_its_whole_life_once(api, gpr_id)
    nothing_was_held_twice(api)


def notices_of(api: Api, gpr_ids: list[str], *kinds: str) -> int:
    """Counts what their owner has in the bell."""
    told = api.get(f"/notices/?kind={','.join(kinds)}&page_size=500")["results"]
    return sum(notice["gpr"] in gpr_ids for notice in told)


def _parked_agents(url: str) -> int:
    """Counts the agents that wait for news at this web process."""
    lines = httpx.get(f"{url}/metrics", timeout=START_S).text.splitlines()
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith("egs_agent_syncs_parked"))
