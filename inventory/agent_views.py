"""Serves the agents' HTTP endpoints. A parked sync holds no thread and no database connection.

egs/asgi.py bypasses the middleware, which would keep a thread per parked request.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.views.decorators.csrf import csrf_exempt

from core.clock import db_now
from core.db_threads import in_db_thread
from core.rest.problems import problem
from inventory import agent_hub
from inventory.agent_hub import AgentAnswer, ReceivedSync
from inventory.services.sync import generation_now
from journal.hints import cluster_topic
from journal.wakeups import wakeups
from protocol.agents.events import EVENTS_PATH
from protocol.agents.registration import REGISTER_PATH, RENEW_PATH
from protocol.agents.sync import SYNC_PATH, WAIT_MAX_S, SyncReply
from protocol.agents.transport import BODY_MAX_BYTES
from protocol.tenancy.cluster_requests import CLUSTER_REQUESTS_PATH
from protocol.tenancy.workloads import LOGS_PATH

LOOK_AGAIN_S = 5.0  # polls as well, since hints may be lost


@csrf_exempt
async def exchange(request: HttpRequest) -> HttpResponse:
    bearer, body = read_call(request)
    if body is None:
        return too_large()
    reply = await in_db_thread(lambda: agent_hub.answer(path=request.path, bearer=bearer, body=body, now=db_now()))
    return respond(reply)


@csrf_exempt
async def sync(request: HttpRequest) -> HttpResponse:
    """Answers when the desired set differs from the agent's, or after `wait_s`."""
    bearer, body = read_call(request)
    if body is None:
        return too_large()
    received: ReceivedSync | None = None

    def hear() -> AgentAnswer:
        nonlocal received
        received = agent_hub.receive_sync(bearer=bearer, body=body, now=db_now())
        return AgentAnswer(200, b"")

    refusal = await in_db_thread(lambda: agent_hub.answer_errors(hear))
    if received is None:
        return respond(refusal)
    return respond(agent_hub.encode_reply(await _park(received)))


async def _park(received: ReceivedSync) -> SyncReply:
    cluster_id = received.agent.cluster.pk
    loop = asyncio.get_running_loop()
    until = loop.time() + min(received.message.wait_s, WAIT_MAX_S)
    with wakeups.expect(cluster_topic(cluster_id)) as waiter:
        while True:
            waiter.take()
            generation = await in_db_thread(partial(generation_now, cluster_id=cluster_id))
            left_s = until - loop.time()
            if generation != received.message.known_generation or left_s <= 0 or wakeups.is_closing:
                return await in_db_thread(lambda: agent_hub.reply_to_sync(received, now=db_now()))
            try:
                await asyncio.wait_for(waiter.event.wait(), timeout=min(left_s, LOOK_AGAIN_S))
            except TimeoutError:
                continue


def read_call(request: HttpRequest) -> tuple[str, bytes | None]:
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    body = request.read(BODY_MAX_BYTES + 1)
    return bearer if scheme.lower() == "bearer" else "", None if len(body) > BODY_MAX_BYTES else body


def respond(reply: AgentAnswer) -> HttpResponse:
    kind = "application/json" if reply.status < 400 else "application/problem+json"
    return HttpResponse(reply.body, status=reply.status, content_type=kind)


def too_large() -> HttpResponse:
    detail = f"Send at most {BODY_MAX_BYTES} bytes: split the events."
    body = problem(status=413, code="agent_too_large", title="Too large", detail=detail)
    return HttpResponse(msgspec.json.encode(body), status=413, content_type="application/problem+json")


urlpatterns: list[URLPattern] = [
    path(REGISTER_PATH[1:], exchange),
    path(RENEW_PATH[1:], exchange),
    path(SYNC_PATH[1:], sync),
    path(EVENTS_PATH[1:], exchange),
    path(CLUSTER_REQUESTS_PATH[1:], exchange),
    path(LOGS_PATH[1:], exchange),
]
