"""The agents' endpoints as the server has them: who is parked costs a task and nothing else, and wakes when there is news."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec
import pytest
from django.db import OperationalError, connection, transaction

from accounts.models import User
from core.clock import db_now
from core.db_threads import DB_THREADS
from egs.asgi import application
from gpr.models import AllocatorRecord, Gpr
from gpr.requests.editing import gpr_cancel
from inventory import agent_views
from inventory.models import Cluster
from inventory.services.clusters import desired_set_changed
from inventory.services.sync import generation_now
from journal import hints
from journal.hints import cluster_topic
from journal.wakeups import Waiter, Wakeups
from protocol.agents.events import EVENTS_PATH
from protocol.agents.registration import REGISTER_PATH, RENEW_PATH
from protocol.agents.sync import SYNC_PATH
from protocol.agents.transport import BODY_MAX_BYTES, Code
from protocol.tenancy.cluster_requests import CLUSTER_REQUESTS_PATH, ClusterRequestsMessage
from slices.models import Slice
from tests.builders import generation_of, hold, make_cluster, make_gpr, make_slice, make_user, nodes_of
from tests.cluster_requests.stage import claim
from tests.conftest import PROFILE
from tests.databases import db_threads_let_go
from tests.inventory.agent import Agent
from tests.inventory.http import request, sync, until
from tests.slices.kubeconfigs import asked, ready_namespace

pytestmark = pytest.mark.django_db(transaction=True)

Result = TypeVar("Result")
PATHS = [REGISTER_PATH, RENEW_PATH, SYNC_PATH, EVENTS_PATH, CLUSTER_REQUESTS_PATH]
SELDOM_S = 20.0


@pytest.fixture
def agent() -> Agent:
    agent = Agent.joined(make_cluster("c1", nodes=1, is_heard=False))
    agent.sync()
    return agent


@pytest.fixture(autouse=True)
def wakeups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wakeups]:
    """The server's own, fresh for each test; at its end nobody is parked."""
    fresh = Wakeups()
    monkeypatch.setattr(agent_views, "wakeups", fresh)
    yield fresh
    if fresh._is_listening:
        hints.unlisten(fresh.wake)
    assert not fresh._waiting


@pytest.fixture(autouse=True, scope="module")
def _pool_lets_go() -> Iterator[None]:
    """The test database can only be dropped when nobody is connected."""
    yield
    db_threads_let_go()


async def in_thread(work: Callable[..., Result], *arguments: Any) -> Result:
    """Database work of the test's own."""

    def run() -> Result:
        try:
            return work(*arguments)
        finally:
            connection.close()

    return await asyncio.to_thread(run)


def bump(cluster: Cluster) -> None:
    with transaction.atomic():
        desired_set_changed([cluster.pk])


def bump_without_a_hint(cluster: Cluster) -> None:
    Cluster.objects.filter(pk=cluster.pk).update(generation=generation_of(cluster) + 1)


def _reader_count() -> int:
    counts: Any = hints._redis().pubsub_numsub(hints.CHANNEL)
    return int(dict(counts).get(hints.CHANNEL.encode(), 0))


async def parked(wakeups: Wakeups, count: int = 1) -> None:
    """Waits until so many agents wait and hints reach this process."""
    await until(lambda: sum(map(len, wakeups._waiting.values())) == count)
    await asyncio.sleep(0.3)
    if PROFILE == "postgres":
        await until(lambda: _reader_count() > 0)


# -- waiting -------------------------------------------------------------------------------------------------------------


async def test_a_parked_sync_wakes_when_somebody_asks_for_a_kubeconfig(agent: Agent, wakeups: Wakeups) -> None:
    def set_up() -> tuple[Slice, User]:
        now = db_now()
        owner = make_user(at=now)
        slice_ = make_slice(agent.cluster, owner=owner, at=now)
        ready_namespace(slice_, agent.cluster, at=now)
        agent.sync(at=now)
        return slice_, owner

    slice_, owner = await in_thread(set_up)
    task = asyncio.create_task(sync(agent, have_workspaces=agent.last.workspaces_digest if agent.last else ""))
    await parked(wakeups)
    assert not task.done()

    await in_thread(lambda: asked(slice_, Cluster.objects.get(pk=agent.cluster.pk), owner, at=db_now()))
    reply = await task

    assert reply.workspaces is not None
    assert [account.token_s for workspace in reply.workspaces for account in workspace.accounts] == [3600]


async def test_a_parked_sync_wakes_when_the_request_of_an_object_is_moved(agent: Agent, wakeups: Wakeups) -> None:
    """It does not matter who moved it, and where: here a member does on a page."""

    def set_up() -> Gpr:
        now = db_now()
        slice_ = make_slice(agent.cluster, owner=make_user(at=now), at=now)
        ready_namespace(slice_, agent.cluster, at=now)
        agent.claims(claim("train"), at=now)
        agent.sync(at=now)
        return Gpr.objects.select_related("owner").get()

    gpr = await in_thread(set_up)
    task = asyncio.create_task(sync(agent, have_claims=agent.last.claims_digest if agent.last else ""))
    await parked(wakeups)
    assert not task.done()

    await in_thread(lambda: gpr_cancel(gpr=gpr, actor=gpr.owner, now=db_now()))
    reply = await task

    assert reply.claims is not None
    assert [state.state for state in reply.claims] == ["CANCELED"]


async def test_claims_are_answered_over_http(agent: Agent) -> None:
    message = ClusterRequestsMessage(session_epoch=agent.session_epoch, claims=(claim("train"),))

    response = await request(CLUSTER_REQUESTS_PATH, msgspec.json.encode(message), bearer=agent.credential)

    assert response is not None
    assert response.status == 200
    assert [(answer["uid"], answer["reason"]) for answer in response.json["answers"]] == [("uid-train", "namespace_not_bound")]


async def test_a_parked_sync_wakes_at_a_change_before_it_would_look(
    agent: Agent, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_views, "LOOK_AGAIN_S", SELDOM_S)
    task = asyncio.create_task(sync(agent))
    await parked(wakeups)
    assert not task.done()

    began = time.monotonic()
    await in_thread(bump, agent.cluster)
    reply = await task

    assert reply.generation == (agent.last.generation if agent.last else 0) + 1
    assert time.monotonic() - began < SELDOM_S / 2


async def test_a_change_in_another_cluster_wakes_nobody(agent: Agent, wakeups: Wakeups) -> None:
    other = await in_thread(make_cluster, "c2")
    task = asyncio.create_task(sync(agent, wait_s=1.5))
    await parked(wakeups)

    await in_thread(bump, other)
    await asyncio.sleep(0.3)

    assert not task.done()
    assert (await task).assignments is None


async def test_what_changed_between_two_syncs_is_told_at_once(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_views, "LOOK_AGAIN_S", SELDOM_S)
    await in_thread(bump, agent.cluster)

    began = time.monotonic()
    reply = await sync(agent)

    assert reply.generation == (agent.last.generation if agent.last else 0) + 1
    assert time.monotonic() - began < SELDOM_S / 2


async def test_a_change_while_it_is_about_to_be_waiting_is_not_missed(
    agent: Agent, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks, the change comes, it begins to wait: the change must count."""
    look = generation_now
    changes = iter([agent.cluster])

    def look_then_change(**which: Any) -> int:
        generation = look(**which)
        if (cluster := next(changes, None)) is not None:
            bump(cluster)
        return generation

    monkeypatch.setattr(agent_views, "generation_now", look_then_change)
    monkeypatch.setattr(agent_views, "LOOK_AGAIN_S", 60.0)
    with wakeups.expect("warm"):  # who listens already does so before it looks
        await asyncio.sleep(0.3)
        reply = await asyncio.wait_for(sync(agent), timeout=10)

    assert reply.generation == (agent.last.generation if agent.last else 0) + 1


async def test_a_lost_hint_costs_seconds_not_the_change(agent: Agent, wakeups: Wakeups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_views, "LOOK_AGAIN_S", 0.5)
    task = asyncio.create_task(sync(agent))
    await parked(wakeups)

    await in_thread(bump_without_a_hint, agent.cluster)

    reply = await asyncio.wait_for(task, timeout=15)
    assert reply.generation == (agent.last.generation if agent.last else 0) + 1


async def test_without_news_it_is_answered_when_its_time_is_over(agent: Agent) -> None:
    began = time.monotonic()
    reply = await sync(agent, wait_s=0.4)

    assert 0.4 <= time.monotonic() - began < 5
    assert reply.assignments is None
    assert reply.sent_s - reply.received_s >= 0.4


async def test_no_agent_is_waiting_for_longer_than_the_hub_will(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_views, "WAIT_MAX_S", 0.3)

    assert (await asyncio.wait_for(sync(agent, wait_s=1e9), timeout=10)).assignments is None


@pytest.mark.parametrize("wait_s", [0.0, -1.0])
async def test_who_does_not_want_to_wait_does_not(wait_s: float, agent: Agent) -> None:
    assert (await asyncio.wait_for(sync(agent, wait_s=wait_s), timeout=15)).assignments is None


async def test_a_server_that_stops_answers_who_is_parked(agent: Agent, wakeups: Wakeups) -> None:
    task = asyncio.create_task(sync(agent))
    await parked(wakeups)

    wakeups.close()

    assert (await asyncio.wait_for(task, timeout=15)).assignments is None
    assert (await asyncio.wait_for(sync(agent), timeout=15)).assignments is None


async def test_who_is_given_up_leaves_nothing_behind(agent: Agent, wakeups: Wakeups) -> None:
    task = asyncio.create_task(sync(agent))
    await parked(wakeups)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert not wakeups._waiting


async def test_a_hint_in_a_loop_that_is_closed_harms_nobody(wakeups: Wakeups) -> None:
    """A server's loop may end with a request still in it."""
    dead = asyncio.new_event_loop()
    topic = cluster_topic((await in_thread(make_cluster, "c3")).pk)
    waiter = Waiter()
    waiter.loop = dead
    wakeups._waiting[topic] = {waiter}
    dead.close()

    wakeups.wake(topic)

    wakeups._waiting.clear()


# -- many ----------------------------------------------------------------------------------------------------------------


def backends() -> int:
    """Connections to this database, whosever."""
    if connection.vendor == "sqlite":
        return 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


@pytest.mark.rotates  # each day: tests/egs/test_pool.py
async def test_sixty_parked_syncs_hold_no_thread_and_no_connection_beyond_the_pool(agent: Agent, wakeups: Wakeups) -> None:
    count = 60
    await sync(agent, wait_s=0.0)  # the pool is warm
    await in_thread(backends)
    threads, connections = threading.active_count(), await in_thread(backends)

    tasks = [asyncio.create_task(sync(agent)) for _ in range(count)]
    await parked(wakeups, count)
    in_flight = (threading.active_count(), await in_thread(backends))

    assert not any(task.done() for task in tasks)
    # Beside the pool: the one reader of hints.
    assert in_flight[0] <= threads + DB_THREADS + 1
    assert in_flight[1] <= connections + DB_THREADS

    await in_thread(bump, agent.cluster)
    replies = await asyncio.wait_for(asyncio.gather(*tasks), timeout=60)

    assert {reply.generation for reply in replies} == {(agent.last.generation if agent.last else 0) + 1}


# -- what is no sync -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_beyond_the_limit_is_refused(path: str, agent: Agent) -> None:
    chunk = b" " * (1024 * 1024)

    response = await request(path, [chunk] * (BODY_MAX_BYTES // len(chunk)) + [b"  "], bearer=agent.credential)

    assert response is not None
    assert (response.status, response.headers["content-type"]) == (413, "application/problem+json")
    assert response.json["status"] == 413


async def test_a_body_of_just_the_limit_is_read(agent: Agent) -> None:
    message = b'{"session_epoch": 1, "events": []}'

    response = await request(EVENTS_PATH, message + b" " * (BODY_MAX_BYTES - len(message)), bearer=agent.credential)

    assert response is not None
    assert response.status == 200


async def test_a_body_may_come_in_pieces(agent: Agent) -> None:
    response = await request(EVENTS_PATH, [b'{"session_', b'epoch": 1, "eve', b'nts": []}', b""], bearer=agent.credential)

    assert response is not None
    assert (response.status, response.json) == (200, {"stored_seq": 0, "stale": []})
    assert response.headers["content-length"] == str(len(response.body))


async def test_an_agent_that_hangs_up_in_the_middle_is_not_answered(agent: Agent) -> None:
    assert await request(EVENTS_PATH, b'{"session_epoch"', bearer=agent.credential, hangs_up=True) is None


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", PATHS)
async def test_everything_is_a_post(method: str, path: str) -> None:
    response = await request(path, method=method)

    assert response is not None
    assert response.status == 405


@pytest.mark.parametrize("path", ["/agent/v1/", "/agent/v1/sync/", "/agent/v1/telemetries", "/agent/v1/../v1/sync", "/agent/v1/sync%20"])
async def test_there_is_nothing_else(path: str) -> None:
    response = await request(path)

    assert response is not None
    assert response.status == 404


@pytest.mark.parametrize("path", ["/agent/v2/sync", "/agent"])
async def test_other_paths_are_the_rest_of_the_application(path: str) -> None:
    response = await request(path, headers={"host": "127.0.0.1"})

    assert response is not None
    assert response.status == 404


@pytest.mark.parametrize("authorization", ["", "Bearer", "Basic abc", "bearer  ", "Token x", "Bearer a b c", "Bearer \x80"])
@pytest.mark.parametrize("path", [RENEW_PATH, SYNC_PATH, EVENTS_PATH])
async def test_without_a_credential_nothing_is_said(path: str, authorization: str) -> None:
    response = await request(path, b"{}", headers={"authorization": authorization})

    assert response is not None
    assert (response.status, response.json["code"]) == (401, Code.BAD_TOKEN)
    assert response.headers["content-type"] == "application/problem+json"


async def test_the_scheme_may_be_written_in_any_case(agent: Agent) -> None:
    response = await request(EVENTS_PATH, b'{"session_epoch": 1, "events": []}', headers={"authorization": f"bEARER {agent.credential}"})

    assert response is not None
    assert response.status == 200


async def test_a_bad_sync_is_answered_at_once(agent: Agent) -> None:
    response = await asyncio.wait_for(request(SYNC_PATH, b'{"wait_s": 20}', bearer=agent.credential), timeout=15)

    assert response is not None
    assert (response.status, response.json["code"]) == (400, "agent_malformed")


async def test_a_join_is_answered_as_made() -> None:
    response = await request(REGISTER_PATH, b'{"join_token": "x", "cluster_uid": "u", "install_id": "i", "agent_version": "1"}')

    assert response is not None
    assert response.status == 401


async def test_while_the_database_is_away_the_agent_is_told_to_come_again(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise OperationalError("the database is away")

    monkeypatch.setattr(agent_views, "db_now", gone)

    for path, body in [(SYNC_PATH, b'{"session_epoch": 1, "boot_id": "boot-1"}'), (EVENTS_PATH, b"{}")]:
        response = await request(path, body, bearer=agent.credential)
        assert response is not None
        assert response.status == 503
        assert int(response.headers["retry-after"]) > 0


async def test_the_set_on_the_wire_is_what_is_held(agent: Agent) -> None:
    (row,) = await in_thread(_held, agent.cluster)

    reply = await sync(agent)

    assert [assignment.id for assignment in reply.assignments or ()] == [str(row.pk)]


def _held(cluster: Cluster) -> list[Any]:
    return hold(make_gpr(make_slice(cluster)), *nodes_of(cluster))


async def test_a_server_says_that_it_is_there() -> None:
    await in_thread(AllocatorRecord.objects.create)
    stops = asyncio.Event()
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        message = next(messages)
        if message["type"] == "lifespan.shutdown":
            await stops.wait()
        return message

    async def send(message: Any) -> None:
        pass

    server = asyncio.create_task(application({"type": "lifespan"}, receive, send))
    is_seen = AllocatorRecord.objects.filter(served_at__isnull=False).exists
    async with asyncio.timeout(30):  # it only ends a broken test
        while not await in_thread(is_seen):
            await asyncio.sleep(0.01)
    stops.set()
    await server


async def test_the_server_may_start_and_stop() -> None:
    sent: list[str] = []
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await application({"type": "lifespan"}, receive, send)

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
