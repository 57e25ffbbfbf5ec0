"""Replay a job list on a simulated clock, through the planner itself or one of the baselines.

The clock jumps from event to event: releases first, then submissions, then one planning. For our policy the planner's working
state is kept from one event to the next instead of being rebuilt from a snapshot; the schedule is the same, and a test holds it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from gpr.planner.baselines import Easy, Fifo
from gpr.planner.board import Board
from gpr.planner.engine import settle
from gpr.planner.joblist import Job, request_of
from gpr.planner.snapshot import Policy, Pool, Request, Slot


@dataclass(frozen=True, slots=True)
class Run:
    """How it went for one job. `promise_s`: the start it was promised when it was submitted; None where nobody promises."""

    job: Job
    start_s: int
    end_s: int
    nodes: tuple[str, ...]
    promise_s: int | None


@dataclass(frozen=True, slots=True)
class Replay:
    """Runs in order of start; `plan_s` is the wall time of each planning, measured by the clock that was passed in."""

    runs: tuple[Run, ...]
    plan_s: tuple[float, ...]


class Scheduler(Protocol):
    """What a policy must do to be replayed."""

    def submit(self, request: Request) -> None: ...
    def release(self, request_id: str, now_s: int) -> None: ...
    def tick(self, now_s: int) -> list[tuple[str, Slot]]: ...
    def next_start_s(self) -> int | None: ...
    def promise_s(self, request_id: str) -> int | None: ...


class Planner:
    """The planner on a board that lives on between events."""

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self._board = Board(pools, now_s=0, policy=Policy())
        self._promises: dict[str, int] = {}

    def submit(self, request: Request) -> None:
        self._board.submit(request)

    def release(self, request_id: str, now_s: int) -> None:
        self._board.now_s = now_s
        self._board.release(request_id)

    def tick(self, now_s: int) -> list[tuple[str, Slot]]:
        self._board.now_s = now_s
        settle(self._board)
        started = []
        for waiting in self._board.start_due():
            if waiting.slot is not None and waiting.promise_s is not None:
                self._promises[waiting.request.id] = waiting.promise_s
                started.append((waiting.request.id, waiting.slot))
        return started

    def next_start_s(self) -> int | None:
        return self._board.next_start_s()

    def promise_s(self, request_id: str) -> int | None:
        return self._promises.get(request_id)


# `conservative` is what `egs` is so far. The two part when our policy overtakes it.
POLICIES: Final[dict[str, Callable[[tuple[Pool, ...]], Scheduler]]] = {
    "egs": Planner,
    "fifo": Fifo,
    "easy": Easy,
    "conservative": Planner,
}


def replay(
    scheduler: Scheduler,
    jobs: Iterable[Job],
    *,
    early: bool,
    ignore_priority: bool,
    clock: Callable[[], float],
) -> Replay:
    """Run all jobs to their end. Jobs are in order of submission; each must fit its pools when they are empty.

    Without `early` a job books exactly what it uses. With it, it books `reserve_s`, which is all that the policy knows, and is
    released at `run_s`. `clock` answers wall time in seconds. Deterministic but for that.
    """
    return _Simulation(scheduler, tuple(jobs), early=early, ignore_priority=ignore_priority, clock=clock).run()


class _Simulation:
    def __init__(
        self,
        scheduler: Scheduler,
        jobs: tuple[Job, ...],
        *,
        early: bool,
        ignore_priority: bool,
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._jobs = {job.id: job for job in jobs}
        self._arrivals = [
            (
                job.submit_s,
                request_of(
                    job,
                    rank=rank,
                    length_s=job.reserve_s if early else job.run_s,
                    priority=0 if ignore_priority else job.priority,
                ),
            )
            for rank, job in enumerate(jobs)
        ]
        self._arrivals.reverse()
        self._ends: list[tuple[int, str]] = []
        self._clock = clock
        self._runs: list[Run] = []
        self._plan_s: list[float] = []

    def run(self) -> Replay:
        while (now_s := self._next_event_s()) is not None:
            while self._ends and self._ends[0][0] <= now_s:
                self._scheduler.release(heapq.heappop(self._ends)[1], now_s)
            while self._arrivals and self._arrivals[-1][0] <= now_s:
                self._scheduler.submit(self._arrivals.pop()[1])
            began = self._clock()
            started = self._scheduler.tick(now_s)
            self._plan_s.append(self._clock() - began)
            for job_id, slot in started:
                self._start(self._jobs[job_id], slot)
        return Replay(tuple(self._runs), tuple(self._plan_s))

    def _next_event_s(self) -> int | None:
        times = [self._scheduler.next_start_s()]
        times += [self._ends[0][0]] if self._ends else []
        times += [self._arrivals[-1][0]] if self._arrivals else []
        return min((at_s for at_s in times if at_s is not None), default=None)

    def _start(self, job: Job, slot: Slot) -> None:
        end_s = slot.start_s + job.run_s
        self._runs.append(Run(job, slot.start_s, end_s, slot.nodes, self._scheduler.promise_s(job.id)))
        heapq.heappush(self._ends, (end_s, job.id))
