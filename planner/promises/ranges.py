"""Forecasts when a promised request will start (p50 and p90), from how past promises of its class turned out.

A bound is a quantile of past (wait / promised wait), times the promised wait, and never later than the promise. Each outcome adjusts the
quantile level, so that nine of ten requests start within their p90. Source: steered conformal bounds (Gibbs and Candès, Adaptive conformal
inference, NeurIPS 2021), in classes.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

TARGETS: Final = (0.5, 0.9)
STEP: Final = 0.03
KEPT_COUNT: Final = 200
# With fewer outcomes the wider class is used, then all outcomes; if these are too few, the bound is the promise.
ENOUGH_COUNT: Final = 20
CERTAIN: Final = 0.995
BIG_GPUS: Final = 8
SHORT_S: Final = 60
THIRDS: Final = 3


@dataclass(frozen=True, slots=True)
class WaitForecast:
    """Waits are seconds from `made_s`."""

    id: str
    made_s: int
    length_s: int
    gpu_count: int
    expected_wait_s: int  # simulated from the current queue
    promised_wait_s: int
    bounds_s: tuple[int, int]  # p50 and p90
    wait_s: int | None = None  # the actual wait

    @property
    def kind(self) -> tuple[int, bool, int]:
        """Returns the length by factors of four, whether it is big, and the expected third of the promised wait."""
        part = min(THIRDS * self.expected_wait_s // max(self.promised_wait_s, 1), THIRDS - 1)
        return _factors_of_four(self.length_s), self.gpu_count >= BIG_GPUS, part

    @property
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        return (*self.kind, _factors_of_four(self.promised_wait_s)), self.kind


class ForecastRanges:
    """The times passed in must not decrease."""

    def __init__(self, past: Iterable[WaitForecast] = ()) -> None:  # in order of their ends
        self._levels = list(TARGETS)
        self._shares: dict[tuple[int, ...], deque[float]] = defaultdict(lambda: deque(maxlen=KEPT_COUNT))
        self._all: deque[float] = deque(maxlen=KEPT_COUNT)
        self._open: dict[str, WaitForecast] = {}
        self._missed: set[tuple[str, int]] = set()
        self._due: list[tuple[int, str, int]] = []
        for forecast in past:
            self._enter(forecast)
            if forecast.wait_s is not None:
                self.started(forecast.id, forecast.made_s + forecast.wait_s)

    def forecast(self, asked: WaitForecast) -> WaitForecast:
        """Add the bounds, and track the forecast until it starts or is dropped."""
        self._pass_time(asked.made_s)
        p50_s, p90_s = (self._bound(asked, i) for i in range(len(TARGETS)))
        told = WaitForecast(
            asked.id,
            asked.made_s,
            asked.length_s,
            asked.gpu_count,
            asked.expected_wait_s,
            asked.promised_wait_s,
            (min(p50_s, p90_s), p90_s),
        )
        self._enter(told)
        return told

    def started(self, id_: str, now_s: int) -> None:
        self._pass_time(now_s)
        told = self._open.pop(id_, None)
        if told is None:
            return
        wait_s = now_s - told.made_s
        share = wait_s / max(told.promised_wait_s, 1)
        for kind in told.kinds:
            self._shares[kind].append(share)
        self._all.append(share)
        for i in range(len(TARGETS)):
            if (id_, i) in self._missed:
                self._missed.discard((id_, i))
            else:
                self._steer(i, is_hit=True)

    def dropped(self, id_: str) -> None:
        self._open.pop(id_, None)

    def with_misses(self, counts: Sequence[int]) -> ForecastRanges:
        """Returns a copy that has seen so many more requests wait beyond their p50 and beyond their p90."""
        twin = ForecastRanges()
        twin._levels = [level + STEP * target * count for level, target, count in zip(self._levels, TARGETS, counts, strict=True)]
        twin._shares, twin._all = self._shares, self._all
        return twin

    @property
    def outcome_count(self) -> int:
        return len(self._all)

    def _bound(self, asked: WaitForecast, i: int) -> int:
        classes = (self._shares[kind] for kind in asked.kinds)
        known = next((shares for shares in classes if len(shares) >= ENOUGH_COUNT), self._all)
        if len(known) < ENOUGH_COUNT or self._levels[i] >= CERTAIN:
            return asked.promised_wait_s
        share = _quantile_of(sorted(known), min(max(self._levels[i], 0.0), 1.0))
        return min(int(share * asked.promised_wait_s), asked.promised_wait_s)

    def _enter(self, told: WaitForecast) -> None:
        self._open[told.id] = told
        for i, bound_s in enumerate(told.bounds_s):
            heapq.heappush(self._due, (told.made_s + bound_s, told.id, i))

    def _pass_time(self, now_s: int) -> None:
        """Count a miss when the clock passes the bound, because long waits would otherwise be counted too late."""
        while self._due and self._due[0][0] < now_s:
            at_s, id_, i = heapq.heappop(self._due)
            told = self._open.get(id_)
            if told is not None and told.made_s + told.bounds_s[i] == at_s and (id_, i) not in self._missed:
                self._missed.add((id_, i))
                self._steer(i, is_hit=False)

    def _steer(self, i: int, *, is_hit: bool) -> None:
        """The level is not clipped: after it overshoots, it must come back as far."""
        self._levels[i] += STEP * (TARGETS[i] - is_hit)


def _factors_of_four(span_s: int) -> int:
    return int(math.log(max(span_s, SHORT_S) / SHORT_S, 4))


def quantile(values: Sequence[float], level: float) -> float | None:
    return _quantile_of(sorted(values), level) if values else None


def _quantile_of(ranked: Sequence[float], level: float) -> float:
    place = level * (len(ranked) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)
