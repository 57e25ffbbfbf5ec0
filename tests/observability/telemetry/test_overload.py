"""Too much telemetry: it is refused, and sync and events are answered as ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import msgspec
import pytest

from core.clock import db_now
from core.db_threads import LossyThread
from observability.telemetry import agent_views
from protocol.agents.sync import SYNC_PATH, SyncRequest
from protocol.agents.transport import BODY_MAX_BYTES
from protocol.gpus.telemetry import NAMES, TELEMETRY_PATH, TelemetryReply, TelemetryRequest
from tests.builders import make_cluster, nodes_of
from tests.databases import db_threads_let_go
from tests.inventory.agent import Agent
from tests.inventory.http import request
from tests.observability.telemetry.saying import gpus_of, reading

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def agent() -> Agent:
    return Agent.joined(make_cluster("c1", nodes=1, is_heard=False), at=db_now())


@pytest.fixture
def message(agent: Agent) -> bytes:
    gpu = gpus_of(nodes_of(agent.cluster)[0])[0]
    return msgspec.json.encode(TelemetryRequest(metrics=NAMES, gpus=(reading(gpu, at=db_now(), temperature_c=50),)))


@pytest.fixture(autouse=True)
def thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[LossyThread]:
    made = LossyThread("egs-telemetry-test", waiting_max=2, wait_max_s=10)
    monkeypatch.setattr(agent_views, "thread", made)
    yield made
    db_threads_let_go()
    made._pool.shutdown()


async def test_while_too_much_waits_telemetry_is_refused_and_sync_is_answered(agent: Agent, message: bytes, thread: LossyThread) -> None:
    goes_on = threading.Event()
    waiting = [asyncio.create_task(thread.run(goes_on.wait)) for _ in range(2)]
    await asyncio.sleep(0)

    refused = await request(TELEMETRY_PATH, message, bearer=agent.credential)
    sync = SyncRequest(session_epoch=agent.session_epoch, boot_id=agent.boot)
    synced = await asyncio.wait_for(request(SYNC_PATH, msgspec.json.encode(sync), bearer=agent.credential), 10)
    goes_on.set()
    await asyncio.gather(*waiting)
    taken = await request(TELEMETRY_PATH, message, bearer=agent.credential)

    assert refused is not None
    assert (refused.status, refused.headers["retry-after"]) == (429, "30")
    assert synced is not None
    assert synced.status == 200
    assert taken is not None
    assert msgspec.json.decode(taken.body, type=TelemetryReply).stored == 1


async def test_a_call_whose_turn_comes_too_late_has_no_effect(agent: Agent, message: bytes, thread: LossyThread) -> None:
    """Its credential may have been replaced meanwhile: used late, it would look like a copy of the agent, which is locked."""
    has_begun, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        has_begun.set()
        goes_on.wait()

    busy = asyncio.create_task(thread.run(hold))
    await asyncio.to_thread(has_begun.wait)
    thread._wait_max_s = 0.05
    asked = asyncio.create_task(request(TELEMETRY_PATH, message, bearer=agent.credential))
    while thread._waiting < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    goes_on.set()
    late = await asked
    await busy

    assert late is not None
    assert late.status == 429


async def test_a_busy_hub_asks_for_longer_pauses(
    agent: Agent, message: bytes, thread: LossyThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "load", lambda: 0.75)

    reply = await request(TELEMETRY_PATH, message, bearer=agent.credential)

    assert reply is not None
    assert reply.json["every_s"] == 60.0


async def test_what_is_no_batch_is_refused(agent: Agent, message: bytes) -> None:
    """A body that is too long, a body that is none, and a caller that is no agent."""
    bodies: dict[int, bytes] = {413: b" " * (BODY_MAX_BYTES + 1), 400: b'{"metrics": 3}', 401: message}
    for status, body in bodies.items():
        answer = await request(TELEMETRY_PATH, body, bearer="" if status == 401 else agent.credential)
        assert answer is not None
        assert answer.status == status
