"""Simulated time: what is due next, happens next."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from datetime import UTC, datetime

START = 1_800_000_000.0


class Loop:
    def __init__(self) -> None:
        self.now = START
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.trace: list[str] = []

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    @property
    def elapsed_s(self) -> float:
        return self.now - START

    def after(self, seconds: float, work: Callable[[], None]) -> None:
        self._count += 1  # what is due at one time happens in the order in which it was asked for
        heapq.heappush(self._queue, (self.now + max(0.0, seconds), self._count, work))

    def run(self, until_s: float) -> None:
        while self._queue and self._queue[0][0] <= START + until_s:
            self.now, _, work = heapq.heappop(self._queue)
            work()
        self.now = max(self.now, START + until_s)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.elapsed_s:8.3f} {text}")


class AgentClock:
    """The clocks of one machine: set wrong, running too fast or slow, stopped while it sleeps, stepped by somebody."""

    def __init__(self, loop: Loop, rng: random.Random) -> None:
        self._loop = loop
        self.skew_s = 0.0
        self.drift = 0.0
        self.slept_s = 0.0
        self._mono_base = rng.uniform(10.0, 1e6)

    def wall(self) -> float:
        return self._loop.now + self.skew_s + self.drift * self._loop.elapsed_s

    def mono(self) -> float:
        return self._mono_base + self._loop.elapsed_s * (1 + self.drift) - self.slept_s


class TrueClock:
    """The hub's clock, which is the true one here: everything is judged by it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def wall(self) -> float:
        return self._loop.now

    def mono(self) -> float:
        return self._loop.now
