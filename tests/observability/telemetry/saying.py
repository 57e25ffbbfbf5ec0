"""Readings as an agent sends them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from core.clock import db_now
from inventory.models import Cluster, Gpu, Node
from inventory.services.agents import AgentIdentity
from observability.telemetry.agent_views import receive
from observability.telemetry.services import telemetry_store
from protocol.gpus.telemetry import NAMES, GpuReading, TelemetryReply, TelemetryRequest
from tests.inventory.agent import Agent


def gpus_of(node: Node) -> list[Gpu]:
    return list(node.gpus.order_by("index"))


def reading(gpu: Gpu, *, at: datetime, **values: float) -> GpuReading:
    return GpuReading(gpu.node.name, gpu.uuid, at.timestamp(), tuple(values.get(name) for name in NAMES))


def with_xids(said: GpuReading, counts: Mapping[int, int]) -> GpuReading:
    """Add the counts by Xid that the exporter told for its last minutes."""
    return msgspec.structs.replace(said, xids=tuple(counts.items()))


def store(cluster: Cluster, *readings: GpuReading, now: datetime | None = None) -> tuple[int, int]:
    message = TelemetryRequest(metrics=NAMES, gpus=readings)
    return telemetry_store(agent=AgentIdentity(cluster, 1), message=message, now=now or db_now())


def say(agent: Agent, *readings: GpuReading, at: datetime, metrics: tuple[str, ...] = NAMES, bearer: str | None = None) -> Any:
    """The hub's answer, or its problem."""
    body = msgspec.json.encode(TelemetryRequest(metrics=metrics, gpus=readings))
    answer = receive(agent.credential if bearer is None else bearer, body, at)
    return msgspec.json.decode(answer.body, type=TelemetryReply)
