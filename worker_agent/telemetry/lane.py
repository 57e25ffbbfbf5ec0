"""Queues readings and makes the lane's calls. Nothing is sent twice: what gets no answer is lost, and counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, Protocol

import msgspec

from protocol.agents.registration import Credential
from protocol.decoding import decode
from protocol.gpus.telemetry import EVERY_MAX_S, EVERY_S, GPUS_MAX, NAMES, TELEMETRY_PATH, GpuReading, TelemetryReply, TelemetryRequest
from worker_agent.cluster.base import NodeState, Note
from worker_agent.hub.dialog import Call
from worker_agent.metrics import READINGS_DROPPED

QUEUE_MAX: Final = 20_000
TIMEOUT_S: Final = 5.0
PAUSE_S: Final = 30.0  # after a refusal without a time


class TelemetrySource(Protocol):
    def read(self, nodes: Mapping[str, NodeState], now: Callable[[], float]) -> Iterable[GpuReading]:
        """May take seconds. `now` is the hub's time. A fault of one exporter concerns no other."""


class TelemetryLane:
    """It is not thread-safe: one thread reads and sends."""

    def __init__(self, *, note: Note) -> None:
        self._note = note
        self._queue: deque[GpuReading] = deque()
        self._dropped = 0
        self._sent: tuple[GpuReading, ...] = ()
        self._not_before_mono = float("-inf")
        self._told = ""
        self.every_s = EVERY_S

    def put(self, readings: Iterable[GpuReading]) -> None:
        for reading in readings:
            self._queue.append(reading)
        self._drop(max(0, len(self._queue) - QUEUE_MAX))

    def next_call(self, credential: Credential | None, mono: float) -> Call | None:
        if credential is None or not self._queue or mono < self._not_before_mono:
            return None
        self._sent = tuple(islice(self._queue, GPUS_MAX))
        for _ in self._sent:
            self._queue.popleft()
        message = TelemetryRequest(metrics=NAMES, gpus=self._sent, dropped=self._dropped)
        return Call(TELEMETRY_PATH, msgspec.json.encode(message), TIMEOUT_S, bearer=credential.credential)

    def on_answer(self, status: int, body: bytes, retry_after_s: float, mono: float) -> None:
        try:
            reply = decode(body, TelemetryReply) if 200 <= status < 300 else None
        except msgspec.DecodeError:
            reply = None
        if reply is None:
            self.on_no_answer(f"the hub answers {status}", mono, retry_after_s)
            return
        self._dropped = 0
        self.every_s = min(max(reply.every_s, EVERY_S), EVERY_MAX_S)
        self._tell(
            f"the hub refuses readings, of GPUs that it does not know here or of impossible times: {reply.refused}" if reply.refused else ""
        )

    def on_no_answer(self, why: str, mono: float, retry_after_s: float = 0.0) -> None:
        self._count(len(self._sent))
        self._sent = ()
        self._not_before_mono = mono + min(retry_after_s or PAUSE_S, EVERY_MAX_S)
        self._tell(why)

    def _drop(self, count: int) -> None:
        for _ in range(count):
            self._queue.popleft()  # the oldest
        self._count(count)

    def _count(self, count: int) -> None:
        self._dropped += count
        READINGS_DROPPED.inc(count)

    def _tell(self, why: str) -> None:
        kind = why.partition(":")[0]
        if kind != self._told:
            self._told = kind
            self._note("telemetry_refused" if why else "telemetry_taken", {"why": why})
