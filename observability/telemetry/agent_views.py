"""Serves the agents' endpoint for telemetry. It has one thread for all agents, and refuses what it cannot store at once."""

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
from observability.telemetry.services import telemetry_store
from protocol.gpus.telemetry import EVERY_S, TELEMETRY_PATH, TelemetryReply, TelemetryRequest

WAITING_MAX: Final = 8
# Far less than the grace of a replaced credential: a call that lay here for longer would look like a copy of the agent.
WAIT_MAX_S: Final = 10.0
BUSY_S: Final = 30  # how long a refused agent waits
LOADS: Final = ((0.9, 8), (0.7, 4), (0.5, 2))  # from this load on, pauses are so many times as long
thread = LossyThread("egs-telemetry", waiting_max=WAITING_MAX, wait_max_s=WAIT_MAX_S)


@csrf_exempt
async def telemetry(request: HttpRequest) -> HttpResponse:
    bearer, body = read_call(request)
    if body is None:
        return too_large()
    answer = await thread.run(lambda: answer_errors(lambda: receive(bearer, body, db_now())))
    if answer is None:
        return HttpResponse(status=429, headers={"Retry-After": str(BUSY_S)})
    return respond(answer)


def receive(bearer: str, body: bytes, now: datetime) -> AgentAnswer:
    agent = agent_authenticate(bearer=bearer, now=now)
    stored, refused = telemetry_store(agent=agent, message=message_read(body, TelemetryRequest), now=now)
    load = thread.load()
    factor = next((factor for least, factor in LOADS if load >= least), 1)
    return encode(200, TelemetryReply(stored=stored, refused=refused, every_s=EVERY_S * factor))


urlpatterns: list[URLPattern] = [path(TELEMETRY_PATH[1:], telemetry)]
