"""The agent's clocks and its estimate of the hub's.

Two local clocks can each go wrong: the wall clock is set forward or back, the monotonic one stands still while the
machine sleeps. So ends take the later of the two estimates (an end is never missed) and beginnings the earlier one
(nothing begins too soon). What that costs: a wall clock that is set forward ends at once what would end within the step, since
nothing here tells it from a sleep until the hub answers, and an end waits for no hub.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

DRIFT_PER_S = 1e-3  # how fast trust in an old sample fades; ten times what a bad quartz does
UNKNOWN_ERROR_S = 5.0  # of an offset read back after a restart


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
    """Both local clocks, read together."""

    wall: float
    mono: float

    @classmethod
    def of(cls, clock: Clock) -> Instant:
        return cls(wall=clock.wall(), mono=clock.mono())

    def later(self, seconds: float) -> Instant:
        return Instant(wall=self.wall + seconds, mono=self.mono + seconds)

    def age_s(self, clock: Clock) -> float:
        """By the clock that shows more: the monotonic one stands still while the machine sleeps."""
        return max(clock.wall() - self.wall, clock.mono() - self.mono)


class HubTime:
    """What time it is at the hub, by samples of NTP's kind.

    A sample is off by at most half of its time on the way. A slow exchange therefore never replaces a good estimate,
    unless the two contradict each other: then the local clock was changed, and the new one counts.
    """

    def __init__(self, clock: Clock, offset_s: float | None) -> None:
        self._clock = clock
        self.offset_s = offset_s  # hub's clock minus our wall clock; None: never heard of the hub
        self._mono_offset_s = (offset_s or 0.0) + clock.wall() - clock.mono()
        self._error_s = UNKNOWN_ERROR_S
        self._sampled_mono = clock.mono()

    def now(self) -> float:
        """For stamps on what is reported."""
        return self._clock.mono() + self._mono_offset_s

    def latest(self) -> float:
        """For ends: past the deadline as soon as one clock says so."""
        return max(self.now(), self._clock.wall() + (self.offset_s or 0.0))

    def earliest(self) -> float:
        """For beginnings: not before both clocks say so."""
        return min(self.now(), self._clock.wall() + (self.offset_s or 0.0))

    def sample(self, *, sent: Instant, received_s: float, sent_s: float) -> None:
        got = Instant.of(self._clock)
        # The time on the way is what the hub's hold leaves of the whole; by the monotonic clock, which nobody sets.
        way_s = max(0.0, (got.mono - sent.mono) - max(0.0, sent_s - received_s))
        offset_s = ((received_s - sent.mono) + (sent_s - got.mono)) / 2
        aged_s = self._error_s + DRIFT_PER_S * (got.mono - self._sampled_mono)
        contradicts = abs(offset_s - self._mono_offset_s) > way_s / 2 + aged_s
        if way_s / 2 <= aged_s or contradicts or self.offset_s is None:
            self._mono_offset_s, self._error_s, self._sampled_mono = offset_s, way_s / 2, got.mono
        self.offset_s = self._mono_offset_s + got.mono - got.wall
