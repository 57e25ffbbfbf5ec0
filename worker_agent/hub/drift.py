"""What somebody else changed of ours in the cluster, until the hub was told.

Nothing of it is written down: what stays as it was changed is found again after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.drift import DRIFT_AGAIN_S, DRIFTS_MAX, Drift
from worker_agent.metrics import DRIFT_REPAIRS

ADDED_AGAIN_S = 3600.0  # as DRIFT_AGAIN_S, of what was added and does no harm: operators make such things all the time


class DriftBook:
    """Not for several threads at once."""

    def __init__(self) -> None:
        self._untold: dict[Drift, None] = {}
        self._standing: dict[str, frozenset[Drift]] = {}
        self._quiet_until_mono: dict[str, float] = {}
        self._held: dict[str, Drift] = {}  # by what: the last of it that came too soon after another

    @property
    def untold(self) -> tuple[Drift, ...]:
        return tuple(self._untold)[:DRIFTS_MAX]

    def see(self, who: str, found: Iterable[Drift], mono: float) -> None:
        """`found`: at one look of `who`, what was mended just then and all that was left as it is."""
        self._quiet_until_mono = {what: until for what, until in self._quiet_until_mono.items() if mono < until}
        standing = self._standing.get(who, frozenset())
        drifts = frozenset(found)
        DRIFT_REPAIRS.inc(sum(drift.is_repaired for drift in drifts))
        fresh = {drift.what: drift for drift in sorted(drifts - standing, key=lambda drift: drift.detail)}
        self._held |= {what: drift for what, drift in fresh.items() if drift.is_repaired and what in self._quiet_until_mono}
        due = {what: drift for what, drift in self._held.items() if what not in self._quiet_until_mono}
        self._held = {what: drift for what, drift in self._held.items() if what not in due}
        news = {drift for what, drift in {**due, **fresh}.items() if what not in self._quiet_until_mono}
        self._quiet_until_mono |= {drift.what: mono + _again_s(drift) for drift in news}
        self._untold |= dict.fromkeys(sorted(news, key=lambda drift: drift.what))
        self._standing[who] = frozenset(drift for drift in drifts & (standing | news) if not drift.is_repaired)

    def take(self, told: Iterable[Drift]) -> None:
        for drift in told:
            self._untold.pop(drift, None)


def _again_s(drift: Drift) -> float:
    return ADDED_AGAIN_S if drift.is_added and not drift.is_foreign else DRIFT_AGAIN_S
