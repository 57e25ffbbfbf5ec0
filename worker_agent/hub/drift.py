"""Drift that the hub has not acknowledged. In memory only, since a restart finds remaining drift again."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.nodes.drift import DRIFT_AGAIN_S, DRIFTS_MAX, Drift
from worker_agent.metrics import DRIFT_REPAIRS

ADDED_AGAIN_S = 3600.0  # like DRIFT_AGAIN_S, for harmless additions, which operators make all the time


class DriftReport:
    def __init__(self) -> None:
        self._untold: dict[Drift, None] = {}
        self._left: dict[str, frozenset[Drift]] = {}
        self._quiet_until_mono: dict[str, float] = {}
        self._held: dict[str, Drift] = {}  # by object: the last one that came too soon after another

    @property
    def untold(self) -> tuple[Drift, ...]:
        return tuple(self._untold)[:DRIFTS_MAX]

    def see(self, who: str, found: Iterable[Drift], mono: float) -> None:
        """`found` is what `who` repaired just then, and all that it left."""
        self._quiet_until_mono = {what: until for what, until in self._quiet_until_mono.items() if mono < until}
        left = self._left.get(who, frozenset())
        drifts = frozenset(found)
        DRIFT_REPAIRS.inc(sum(drift.is_repaired for drift in drifts))
        fresh = {drift.what: drift for drift in sorted(drifts - left, key=lambda drift: drift.detail)}
        self._held |= {what: drift for what, drift in fresh.items() if drift.is_repaired and what in self._quiet_until_mono}
        due = {what: drift for what, drift in self._held.items() if what not in self._quiet_until_mono}
        self._held = {what: drift for what, drift in self._held.items() if what not in due}
        news = {drift for what, drift in {**due, **fresh}.items() if what not in self._quiet_until_mono}
        self._quiet_until_mono |= {drift.what: mono + _again_s(drift) for drift in news}
        self._untold |= dict.fromkeys(sorted(news, key=lambda drift: drift.what))
        self._left[who] = frozenset(drift for drift in drifts & (left | news) if not drift.is_repaired)

    def take(self, told: Iterable[Drift]) -> None:
        for drift in told:
            self._untold.pop(drift, None)


def _again_s(drift: Drift) -> float:
    return ADDED_AGAIN_S if drift.is_added and not drift.is_foreign else DRIFT_AGAIN_S
