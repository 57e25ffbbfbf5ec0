"""Replay a job list on a simulated clock, through the planner or a baseline policy.

At each event it handles releases first, then node failures and submissions, and plans once. The planner's board is kept between events
instead of being rebuilt from a snapshot; a test checks that the schedule is the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from planner.board.board import Board, Started
from planner.board.waiting import Waiting, turn_of
from planner.causes import Cause, PlannedEviction, victims_of
from planner.engine import admit, bring_forward, forecast_of, make_evictions
from planner.promises.failure_reserve import FailureReserve
from planner.promises.proof import raise_on_faults
from planner.promises.ranges import ForecastRanges, WaitForecast
from planner.promises.repair import replace_lost_slots
from planner.promises.slack import SlackTracker
from planner.snapshot import Failed, Memory, PlanPolicy, PolicyName, Pool, Quota, Request, Slot
from simulation.baselines import Easy, Fifo, LeastWork, Sjf
from simulation.estimators import Estimators
from simulation.failures import Failure
from simulation.joblist import TraceJob, request_of

STANDARD: Final = PlanPolicy()


@dataclass(frozen=True, slots=True)
class Run:
    """Holds one box of a job, and its wait before. A killed or evicted job has another run for the rest."""

    job: TraceJob
    queued_s: int
    start_s: int
    end_s: int
    nodes: tuple[str, ...]
    promise_s: int | None  # None: the policy promises nothing
    forecast: WaitForecast | None = None  # None: no forecast, or an immediate start
    estimates: Mapping[str, int] = field(default_factory=dict)  # waits in seconds by estimator

    @property
    def wait_s(self) -> int:
        return self.start_s - self.queued_s


@dataclass(frozen=True, slots=True)
class Replay:
    """Runs in order of start."""

    runs: tuple[Run, ...]
    plan_s: tuple[float, ...]  # wall time of each planning
    failure_count: int
    killed_count: int  # boxes ended by failures
    repromised: Set[str]  # jobs whose promise a failure, a reclaim or a higher priority moved
    idle_count: int  # boxes released as idle
    evictions: tuple[PlannedEviction, ...] = ()
    refused: tuple[str, ...] = ()  # bookings without a place at their time


class Scheduler(Protocol):
    def submit(self, request: Request, now_s: int) -> None: ...
    def release(self, request_id: str, now_s: int) -> None: ...
    def close(self, failure: Failure) -> None: ...
    def reopen(self, failure: Failure) -> None: ...
    def tick(self, now_s: int) -> list[Started]: ...
    def next_start_s(self) -> int | None: ...
    def promise_s(self, request_id: str) -> int | None: ...
    def evicted(self) -> list[PlannedEviction]: ...
    def refused(self) -> list[str]: ...
    def repromised(self) -> Set[str]: ...
    def forecast(self, request_id: str) -> WaitForecast | None: ...


class Planner:
    """Runs the real planner on a board kept between events."""

    def __init__(self, pools: tuple[Pool, ...], name: PolicyName, quotas: tuple[Quota, ...] = (), *, policy: PlanPolicy = STANDARD) -> None:
        self._board = Board(pools, now_s=0, policy=replace(policy, name=name), quotas=quotas)
        self._quotas = quotas
        self._evicted: list[PlannedEviction] = []
        self._refused: list[str] = []
        self._slack = SlackTracker(self._board, Memory()) if name == PolicyName.GUARDED else None
        self._reserve = FailureReserve(self._board, ())
        self._promises: dict[str, int] = {}
        self._ranges = ForecastRanges()
        self._forecasts: dict[str, WaitForecast] = {}
        self._newcomers: list[Waiting] = []
        self._has_freed = False
        self._hit: list[Waiting] = []
        self._repromised: set[str] = set()

    def submit(self, request: Request, now_s: int) -> None:
        self._newcomers.append(self._board.enqueue(request))
        self._forecasts.pop(request.id, None)

    def release(self, request_id: str, now_s: int) -> None:
        self._board.now_s = now_s
        box = self._board.running[request_id]
        self._has_freed |= self._board.release(request_id)
        if self._slack is not None:
            self._slack.box_ended(request_id, now_s - box.start_s, box.end_s - box.start_s)

    def close(self, failure: Failure) -> None:
        """Close the failed node: kill its boxes and move slots away from it."""
        board = self._board
        board.now_s = failure.at_s
        hit = [waiting for waiting in board.order if _is_hit(board.slot(waiting), failure)]
        for waiting in hit:
            waiting.request = replace(waiting.request, slot=board.slot(waiting))
            board.remove_slot(waiting)
            waiting.displaced = Cause.NODE_FAILURE, failure.node
        board.add_running(failure.outage)
        replace_lost_slots(board, hit)
        self._hit += [waiting for waiting in board.order if waiting.displaced == (Cause.NODE_FAILURE, failure.node)]
        self._has_freed = True
        pool = board.pools[board.capacity.pool_of.item(board.node_numbers[failure.node])]
        self._reserve.note(Failed(pool.cluster, failure.at_s, failure.until_s - failure.at_s))

    def reopen(self, failure: Failure) -> None:
        self._board.now_s = failure.until_s
        self._board.release(failure.outage.id)

    def tick(self, now_s: int) -> list[Started]:
        self._board.now_s = now_s
        if self._slack is None and (self._has_freed or self._quotas):
            self._board.compress()
        elif self._slack is not None and self._has_freed:
            bring_forward(self._board)
        self._has_freed = False
        self._move_promises()
        self._admit()
        self._evict()
        for waiting in self._newcomers:
            if (slot := self._board.slot(waiting)) is not None:
                waiting.promise_s = self._reserve.promise_s(waiting.request, slot)
            if waiting.promise_s is not None:
                self._promises[waiting.request.id] = waiting.promise_s
                waiting.request = replace(waiting.request, promise_s=waiting.promise_s, promised_at_s=now_s)
        started = self._board.start()
        raise_on_faults(self._board, started)
        for start in started:
            self._ranges.started(start.request.id, now_s)
        self._foretell()
        self._newcomers.clear()
        return started

    def next_start_s(self) -> int | None:
        return self._board.next_start_s()

    def promise_s(self, request_id: str) -> int | None:
        return self._promises.get(request_id)

    def evicted(self) -> list[PlannedEviction]:
        return self._evicted

    def refused(self) -> list[str]:
        """Returns the bookings of the last tick that found no place; they have left the queue."""
        return self._refused

    def repromised(self) -> Set[str]:
        return self._repromised

    def forecast(self, request_id: str) -> WaitForecast | None:
        return self._forecasts.get(request_id)

    def _admit(self) -> None:
        for waiting in sorted(self._newcomers, key=turn_of):
            admit(self._board, self._slack, waiting)
        refused = [new for new in self._newcomers if new.request.is_fixed and not self._board.has_slot(new)]
        for waiting in refused:
            self._board.dequeue(waiting)
        self._newcomers = [new for new in self._newcomers if new not in refused]
        self._refused = [waiting.request.id for waiting in refused]

    def _evict(self) -> None:
        self._evicted, _ = make_evictions(self._board, self._quotas)
        if self._quotas or self._board.policy.break_from is not None:
            self._hit = [waiting for waiting in self._board.order if waiting.displaced is not None and self._board.has_slot(waiting)]
            self._move_promises()

    def _move_promises(self) -> None:
        for waiting in self._hit:
            if waiting.promise_s is not None and (start_s := self._board.start_s(waiting)) > waiting.promise_s:
                waiting.promise_s = start_s
                self._repromised.add(waiting.request.id)
        self._hit.clear()

    def _foretell(self) -> None:
        waiting = [new for new in self._newcomers if new.request.id in self._board.queue]
        expected = self._board.expected() if waiting else {}
        for new in waiting:
            slot = expected.get(new.request.id)
            if slot is not None and new.promise_s is not None:
                asked = forecast_of(self._board, new, slot.start_s, new.promise_s)
                self._forecasts[asked.id] = self._ranges.forecast(asked)


def _is_hit(slot: Slot | None, failure: Failure) -> bool:
    return slot is not None and failure.node in slot.nodes and slot.start_s < failure.until_s


# Policies that respect quotas.
PLANNERS: Final = frozenset({"egs", "conservative"})
POLICIES: Final[dict[str, Callable[..., Scheduler]]] = {
    "egs": partial(Planner, name=PolicyName.GUARDED),
    "fifo": Fifo,
    "easy": Easy,
    "conservative": partial(Planner, name=PolicyName.CONSERVATIVE),
    "sjf": Sjf,
    "least-work": LeastWork,
}


def replay(
    scheduler: Scheduler,
    jobs: Iterable[TraceJob],
    *,
    early: bool,
    ignore_priority: bool,
    clock: Callable[[], float],
    idle_timeout_s: int | None = None,
    failures: Iterable[Failure] = (),
    estimators: Estimators | None = None,
) -> Replay:
    """Run all jobs to their end. Jobs are in order of submission; each must fit its empty pools.

    Without `early` a job books exactly what it uses. If that is set, a job books `reserve_s` and is released at `run_s`, or after
    `idle_timeout_s` without use. Jobs on a failed node are queued again for the rest, with their old rank. `clock` returns wall time in
    seconds.
    """
    options = _ReplayOptions(early=early, ignore_priority=ignore_priority, idle_timeout_s=idle_timeout_s)
    return _Simulation(scheduler, tuple(jobs), options, failures=iter(failures), estimators=estimators, clock=clock).run()


@dataclass(frozen=True, slots=True)
class _ReplayOptions:
    early: bool
    ignore_priority: bool
    idle_timeout_s: int | None

    def request(self, job: TraceJob, *, rank: int, done_s: int, is_new: bool) -> Request:
        length_s = (job.reserve_s if self.early else job.run_s) - done_s
        return request_of(job, rank=rank, length_s=length_s, priority=0 if self.ignore_priority else job.priority, is_new=is_new)

    def held_s(self, job: TraceJob) -> int:
        if job.idle_from_s is None or self.idle_timeout_s is None:
            return job.run_s
        return min(job.run_s, job.idle_from_s + self.idle_timeout_s)


@dataclass(frozen=True, slots=True)
class _QueuedJob:
    at_s: int
    estimates: Mapping[str, int]


class _Simulation:
    def __init__(
        self,
        scheduler: Scheduler,
        jobs: tuple[TraceJob, ...],
        options: _ReplayOptions,
        *,
        failures: Iterator[Failure],
        estimators: Estimators | None,
        clock: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._options = options
        self._estimators = estimators
        self._clock = clock
        self._jobs = {job.id: job for job in jobs}
        self._ranks = {job.id: rank for rank, job in enumerate(jobs)}
        self._done_s = dict.fromkeys(self._jobs, 0)
        self._arrivals = list(reversed(jobs))
        self._queued: dict[str, _QueuedJob] = {}
        self._running: dict[str, int] = {}  # index in `_runs`
        self._has_run: set[str] = set()
        self._ends: list[tuple[int, str]] = []
        self._failures = failures
        self._next_failure = next(failures, None)
        self._outages: list[Failure] = []  # in order of their ends: all repairs take as long
        self._runs: list[Run] = []
        self._plan_s: list[float] = []
        self._failure_count = 0
        self._killed_count = 0
        self._evictions: list[PlannedEviction] = []
        self._leaves_s: dict[str, int] = {}  # by id of what is to be evicted
        self._refused: list[str] = []

    def run(self) -> Replay:
        while (now_s := self._next_event_s()) is not None:
            self._release(now_s)
            self._reopen(now_s)
            while self._next_failure is not None and self._next_failure.at_s <= now_s:
                self._fail(self._next_failure)
                self._next_failure = next(self._failures, None)
            while self._arrivals and self._arrivals[-1].submit_s <= now_s:
                self._submit(self._arrivals.pop(), now_s)
            began = self._clock()
            started = self._scheduler.tick(now_s)
            self._plan_s.append(self._clock() - began)
            self._give_notice(self._scheduler.evicted())
            self._refuse(self._scheduler.refused())
            for new in started:
                self._start(self._jobs[new.request.id], new.slot)
        idle_count = sum(self._options.held_s(job) < job.run_s for job in self._jobs.values())
        repromised = self._scheduler.repromised()
        counts = self._failure_count, self._killed_count, repromised, idle_count
        return Replay(tuple(self._runs), tuple(self._plan_s), *counts, tuple(self._evictions), tuple(self._refused))

    def _next_event_s(self) -> int | None:
        """Return None when all jobs are done: failures alone would continue for ever."""
        if not (self._arrivals or self._queued or self._running):
            return None
        times = [self._scheduler.next_start_s()]
        times += [self._ends[0][0]] if self._ends else []
        times += [self._arrivals[-1].submit_s] if self._arrivals else []
        times += [self._next_failure.at_s] if self._next_failure else []
        times += [self._outages[0].until_s] if self._outages else []
        return min((at_s for at_s in times if at_s is not None), default=None)

    def _release(self, now_s: int) -> None:
        while self._ends and self._ends[0][0] <= now_s:
            end_s, id_ = heapq.heappop(self._ends)
            number = self._running.get(id_)
            if number is None:  # it was killed before
                continue
            if self._runs[number].end_s == end_s:
                self._end(id_, now_s)
            elif self._leaves_s.get(id_) == end_s:
                self._send_back(id_, now_s)
                self._submit(self._jobs[id_], now_s)

    def _give_notice(self, evictions: list[PlannedEviction]) -> None:
        self._evictions += evictions
        for victim in victims_of(evictions):
            self._leaves_s[victim.id] = victim.frees_s
            heapq.heappush(self._ends, (victim.frees_s, victim.id))

    def _refuse(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            del self._queued[id_]
            self._refused.append(id_)

    def _send_back(self, id_: str, now_s: int) -> None:
        number = self._running[id_]
        self._runs[number] = replace(self._runs[number], end_s=now_s)
        self._done_s[id_] += now_s - self._runs[number].start_s
        self._end(id_, now_s)

    def _end(self, id_: str, now_s: int) -> None:
        del self._running[id_]
        self._leaves_s.pop(id_, None)
        self._scheduler.release(id_, now_s)
        if self._estimators is not None:
            self._estimators.ended(id_, now_s)

    def _reopen(self, now_s: int) -> None:
        while self._outages and self._outages[0].until_s <= now_s:
            outage = self._outages.pop(0)
            self._scheduler.reopen(outage)
            if self._estimators is not None:
                self._estimators.reopened(outage)

    def _fail(self, failure: Failure) -> None:
        now_s = failure.at_s
        killed = [id_ for id_, number in self._running.items() if failure.node in self._runs[number].nodes]
        for id_ in killed:
            self._send_back(id_, now_s)
        self._failure_count += 1
        self._killed_count += len(killed)
        self._scheduler.close(failure)
        self._outages.append(failure)
        if self._estimators is not None:
            self._estimators.closed(failure)
        for id_ in killed:
            self._submit(self._jobs[id_], now_s)

    def _submit(self, job: TraceJob, now_s: int) -> None:
        is_new = job.id not in self._has_run
        request = self._options.request(job, rank=self._ranks[job.id], done_s=self._done_s[job.id], is_new=is_new)
        estimates = {} if self._estimators is None else self._estimators.submitted(request, now_s)
        self._queued[job.id] = _QueuedJob(max(now_s, request.earliest_start_s), estimates)
        self._scheduler.submit(request, now_s)

    def _start(self, job: TraceJob, slot: Slot) -> None:
        queued = self._queued.pop(job.id)
        end_s = slot.start_s + self._options.held_s(job) - self._done_s[job.id]
        promise_s, forecast = self._scheduler.promise_s(job.id), self._scheduler.forecast(job.id)
        self._has_run.add(job.id)
        self._running[job.id] = len(self._runs)
        self._runs.append(Run(job, queued.at_s, slot.start_s, end_s, slot.nodes, promise_s, forecast, queued.estimates))
        heapq.heappush(self._ends, (end_s, job.id))
        if self._estimators is not None:
            self._estimators.started(job.id, slot)
