"""Computes the wait estimates of other schedulers at arrival, to compare them with the promise.

- `slurm`: sbatch --test-only of Slurm 26.05 (`_delayed_job_start_time` in src/slurmctld/job_scheduler.c).
- `depth_over_throughput`: requests ahead over recent starts per second (the idea of Kueue's issue 13159).
- `last_wait`, `head_wait`: LES and HOL in Ibrahim and Whitt, Real-time delay estimation based on delay history, 2009.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from planner.board.board import Board
from planner.snapshot import PlanPolicy, PolicyName, Pool, Request, Running, Slot
from simulation.failures import Failure

ESTIMATORS: Final = ("slurm", "depth_over_throughput", "last_wait", "head_wait")
# Time constant with which starts fade from the throughput.
FADING_S: Final = 3600
# Lower bound of the faded count, which would underflow after weeks without a start.
LEAST_STARTS: Final = 1e-9


@dataclass(slots=True)
class _Ahead:
    """Sums waiting requests with the same pools and priority."""

    count: int = 0
    gpu_s: int = 0


class Estimators:
    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self._board = Board(pools, now_s=0, policy=PlanPolicy(name=PolicyName.CONSERVATIVE))
        self._gpu_count = {pool.id: sum(node.gpu_count for node in pool.nodes) for pool in pools}
        self._waiting: dict[str, tuple[int, Request]] = {}
        self._ahead: dict[tuple[tuple[str, ...], int], _Ahead] = defaultdict(_Ahead)
        self._throughput = _Throughput()
        self._last_wait_s = 0

    def submitted(self, request: Request, now_s: int) -> Mapping[str, int]:
        """Return the estimated waits in seconds."""
        self._board.now_s = now_s
        ahead = self._ahead_of(request)
        oldest_s = next(iter(self._waiting.values()))[0] if self._waiting else now_s
        told = {
            "slurm": self._slurm_s(request, ahead),
            "depth_over_throughput": self._throughput.seconds_for(ahead.count + 1, now_s),
            "last_wait": self._last_wait_s,
            "head_wait": now_s - oldest_s,
        }
        self._waiting[request.id] = now_s, request
        self._count(request, 1)
        return told

    def started(self, request_id: str, slot: Slot) -> None:
        queued_s, request = self._waiting.pop(request_id)
        self._count(request, -1)
        self._board.now_s = slot.start_s
        self._throughput.started(slot.start_s)
        self._last_wait_s = slot.start_s - queued_s
        end_s = slot.start_s + request.length_s
        box = Running(request.id, "", request.project, request.priority, slot.pool, slot.nodes, request.gpus_per_node, end_s)
        self._board.add_running(box)

    def ended(self, request_id: str, now_s: int) -> None:
        self._board.now_s = now_s
        self._board.release(request_id)

    def closed(self, failure: Failure) -> None:
        self._board.now_s = failure.at_s
        self._board.add_running(failure.outage)

    def reopened(self, failure: Failure) -> None:
        self.ended(failure.outage.id, failure.until_s)

    def _slurm_s(self, request: Request, ahead: _Ahead) -> int:
        now_s = self._board.now_s
        start_s, _ = self._board.earliest(self._board.demand(request), now_s) or (now_s, 0)
        return start_s - now_s + ahead.gpu_s // sum(self._gpu_count[pool] for pool in request.pools)

    def _ahead_of(self, request: Request) -> _Ahead:
        found = _Ahead()
        for (pools, priority), ahead in self._ahead.items():
            if priority >= request.priority and not set(pools).isdisjoint(request.pools):
                found.count += ahead.count
                found.gpu_s += ahead.gpu_s
        return found

    def _count(self, request: Request, sign: int) -> None:
        ahead = self._ahead[request.pools, request.priority]
        ahead.count += sign
        ahead.gpu_s += sign * self._board.gpu_s(request)


@dataclass(slots=True)
class _Throughput:
    """Past values fade exponentially."""

    starts: float = 0.0
    since_s: int | None = None
    at_s: int = 0

    def started(self, now_s: int) -> None:
        self.since_s = now_s if self.since_s is None else self.since_s
        self.starts = self._faded(now_s) + 1
        self.at_s = now_s

    def seconds_for(self, count: int, now_s: int) -> int:
        """0 while nothing has started."""
        if self.since_s is None:
            return 0
        watched_s = FADING_S * (1 - math.exp((self.since_s - now_s) / FADING_S))
        return round(count * watched_s / max(self._faded(now_s), LEAST_STARTS))

    def _faded(self, now_s: int) -> float:
        return self.starts * math.exp((self.at_s - now_s) / FADING_S)
