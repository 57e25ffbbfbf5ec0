"""Replay a job list on a simulated clock, through the planner itself or one of the baselines.

The clock jumps from event to event: releases first, then submissions, then one planning. For our policy the planner's working
state is kept from one event to the next instead of being rebuilt from a snapshot; the schedule is the same, and a test holds it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from gpr.planner.bands import Bands, Forecast
from gpr.planner.baselines import Easy, Fifo, Sjf
from gpr.planner.board import Board, Started
from gpr.planner.engine import admit, forecast_of
from gpr.planner.joblist import Job, request_of
from gpr.planner.pace import Pace
from gpr.planner.snapshot import Memory, Policy, PolicyName, Pool, Request, Slot
from gpr.planner.waiting import Waiting, turn_of


@dataclass(frozen=True, slots=True)
class Run:
    """How it went for one job. `promise_s`: the start it was promised when it was submitted; None where nobody promises.

    `forecast`: what it was told of its wait; None where nobody foretells, or it started at once.
    """

    job: Job
    start_s: int
    end_s: int
    nodes: tuple[str, ...]
    promise_s: int | None
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True)
class Replay:
    """Runs in order of start; `plan_s` is the wall time of each planning, measured by the clock that was passed in."""

    runs: tuple[Run, ...]
    plan_s: tuple[float, ...]


class Scheduler(Protocol):
    """What a policy must do to be replayed."""

    def submit(self, request: Request, now_s: int) -> None: ...
    def release(self, request_id: str, now_s: int) -> None: ...
    def tick(self, now_s: int) -> list[Started]: ...
    def next_start_s(self) -> int | None: ...
    def promise_s(self, request_id: str) -> int | None: ...
    def forecast(self, request_id: str) -> Forecast | None: ...


class Planner:
    """The planner on a board that lives on between events."""

    def __init__(self, pools: tuple[Pool, ...], name: PolicyName) -> None:
        self._board = Board(pools, now_s=0, policy=Policy(name=name))
        self._pace = Pace(self._board, Memory()) if name == PolicyName.GUARDED else None
        self._promises: dict[str, int] = {}
        self._bands = Bands()
        self._forecasts: dict[str, Forecast] = {}
        self._newcomers: list[Waiting] = []
        self._has_freed = False

    def submit(self, request: Request, now_s: int) -> None:
        self._newcomers.append(self._board.enroll(request))

    def release(self, request_id: str, now_s: int) -> None:
        self._board.now_s = now_s
        box = self._board.running[request_id]
        self._has_freed |= self._board.release(request_id)
        if self._pace is not None:
            self._pace.ended(request_id, now_s - box.start_s, box.end_s - box.start_s)

    def tick(self, now_s: int) -> list[Started]:
        self._board.now_s = now_s
        if self._has_freed and self._pace is None:
            self._board.compress()
        self._has_freed = False
        for waiting in sorted(self._newcomers, key=turn_of):
            admit(self._board, self._pace, waiting)
            if waiting.promise_s is not None:
                self._promises[waiting.request.id] = waiting.promise_s
        started = self._board.start()
        for start in started:
            self._bands.started(start.request.id, now_s)
        self._foretell()
        self._newcomers.clear()
        return started

    def next_start_s(self) -> int | None:
        return self._board.next_start_s()

    def promise_s(self, request_id: str) -> int | None:
        return self._promises.get(request_id)

    def forecast(self, request_id: str) -> Forecast | None:
        return self._forecasts.get(request_id)

    def _foretell(self) -> None:
        """To newcomers that have to wait."""
        waiting = [new for new in self._newcomers if new.request.id in self._board.queue]
        expected = self._board.expected() if waiting else {}
        for new in waiting:
            slot = expected.get(new.request.id)
            if slot is not None and new.promise_s is not None:
                asked = forecast_of(self._board, new, slot.start_s)
                self._forecasts[asked.id] = self._bands.forecast(asked)


POLICIES: Final[dict[str, Callable[[tuple[Pool, ...]], Scheduler]]] = {
    "egs": partial(Planner, name=PolicyName.GUARDED),
    "fifo": Fifo,
    "easy": Easy,
    "conservative": partial(Planner, name=PolicyName.CONSERVATIVE),
    "sjf": Sjf,
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
                self._scheduler.submit(self._arrivals.pop()[1], now_s)
            began = self._clock()
            started = self._scheduler.tick(now_s)
            self._plan_s.append(self._clock() - began)
            for new in started:
                self._start(self._jobs[new.request.id], new.slot)
        return Replay(tuple(self._runs), tuple(self._plan_s))

    def _next_event_s(self) -> int | None:
        times = [self._scheduler.next_start_s()]
        times += [self._ends[0][0]] if self._ends else []
        times += [self._arrivals[-1][0]] if self._arrivals else []
        return min((at_s for at_s in times if at_s is not None), default=None)

    def _start(self, job: Job, slot: Slot) -> None:
        end_s = slot.start_s + job.run_s
        self._runs.append(Run(job, slot.start_s, end_s, slot.nodes, self._scheduler.promise_s(job.id), self._scheduler.forecast(job.id)))
        heapq.heappush(self._ends, (end_s, job.id))
