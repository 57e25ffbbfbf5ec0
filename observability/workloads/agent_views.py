"""Serves the agents' endpoint for pods. It has one thread for all agents, and refuses what it cannot store at once."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.views.decorators.csrf import csrf_exempt

from core.clock import db_now
from core.db_threads import LossyThread
from inventory.agent_hub import AgentAnswer, answer_errors, encode, message_read
from inventory.agent_views import read_call, respond, too_large
from inventory.services.agents import agent_authenticate
from observability.workloads.services import pods_store
from protocol.pods import PODS_PATH, PodsRequest

WAITING_MAX: Final = 8
WAIT_MAX_S: Final = 8.0  # less than an agent waits
BUSY_S: Final = 30  # how long a refused agent waits
thread = LossyThread("egs-pods", waiting_max=WAITING_MAX, wait_max_s=WAIT_MAX_S)


@csrf_exempt
async def pods(request: HttpRequest) -> HttpResponse:
    bearer, body = read_call(request)
    if body is None:
        return too_large()
    answer = await thread.run(lambda: answer_errors(lambda: receive(bearer, body, db_now())))
    if answer is None:
        return HttpResponse(status=429, headers={"Retry-After": str(BUSY_S)})
    return respond(answer)


def receive(bearer: str, body: bytes, now: datetime) -> AgentAnswer:
    agent = agent_authenticate(bearer=bearer, now=now)
    return encode(200, pods_store(agent=agent, message=message_read(body, PodsRequest), now=now))


urlpatterns: list[URLPattern] = [path(PODS_PATH[1:], pods)]
