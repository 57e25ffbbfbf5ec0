"""Reads the agent's clocks and estimates the hub's clock.

People set the wall clock, and the monotonic clock stops while the machine sleeps. So ends use the later of two estimates and beginnings
the earlier one. The price: boxes that end within a forward step of the wall clock end at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

DRIFT_PER_S = 1e-3  # growth of an old sample's error; ten times the drift of a bad quartz
UNKNOWN_ERROR_S = 5.0  # error of an offset that was loaded after a restart


class Clock(Protocol):
    def wall(self) -> float: ...
    def mono(self) -> float: ...


class SystemClock:
    def wall(self) -> float:
        return time.time()

    def mono(self) -> float:
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class Instant:
    wall: float
    mono: float

    @classmethod
    def of(cls, clock: Clock) -> Instant:
        return cls(wall=clock.wall(), mono=clock.mono())

    def later(self, seconds: float) -> Instant:
        return Instant(wall=self.wall + seconds, mono=self.mono + seconds)

    def age_s(self, clock: Clock) -> float:
        # The monotonic clock stops while the machine sleeps.
        return max(clock.wall() - self.wall, clock.mono() - self.mono)


class HubTime:
    """Estimates the hub's time from samples as in NTP. The error of a sample is at most half of its travel time."""

    def __init__(self, clock: Clock, offset_s: float | None) -> None:
        self._clock = clock
        self.offset_s = offset_s  # the hub's clock minus our wall clock; None: the hub never answered
        self._mono_offset_s = (offset_s or 0.0) + clock.wall() - clock.mono()
        self._error_s = UNKNOWN_ERROR_S
        self._sampled_mono = clock.mono()

    def now(self) -> float:
        return self._clock.mono() + self._mono_offset_s

    def latest(self) -> float:
        """The agent uses this time to end boxes."""
        return max(self.now(), self._clock.wall() + (self.offset_s or 0.0))

    def earliest(self) -> float:
        """The agent uses this time to begin entries."""
        return min(self.now(), self._clock.wall() + (self.offset_s or 0.0))

    def sample(self, *, sent: Instant, received_s: float, sent_s: float) -> None:
        got = Instant.of(self._clock)
        # The travel time is the whole time without the hub's hold, by the monotonic clock, which nobody sets.
        way_s = max(0.0, (got.mono - sent.mono) - max(0.0, sent_s - received_s))
        offset_s = ((received_s - sent.mono) + (sent_s - got.mono)) / 2
        aged_s = self._error_s + DRIFT_PER_S * (got.mono - self._sampled_mono)
        # A slow exchange does not replace a good estimate, unless the two contradict each other: then the local clock was changed.
        contradicts = abs(offset_s - self._mono_offset_s) > way_s / 2 + aged_s
        if way_s / 2 <= aged_s or contradicts or self.offset_s is None:
            self._mono_offset_s, self._error_s, self._sampled_mono = offset_s, way_s / 2, got.mono
        self.offset_s = self._mono_offset_s + got.mono - got.wall
