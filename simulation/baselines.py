"""Defines reference policies to replay beside the planner; they promise nothing."""

from __future__ import annotations

from bisect import insort
from collections.abc import Set
from dataclasses import dataclass

from planner.board.board import Board, Started
from planner.board.waiting import Turn, Waiting
from planner.capacity.placement import Demand
from planner.causes import PlannedEviction
from planner.promises.ranges import WaitForecast
from planner.snapshot import PlanPolicy, PolicyName, Pool, Request
from simulation.failures import Failure


@dataclass(frozen=True, slots=True)
class _Queued:
    turn: Turn
    request: Request
    demand: Demand


class Fifo:
    """Requests start in strict order."""

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self._board = Board(pools, now_s=0, policy=PlanPolicy(name=PolicyName.CONSERVATIVE))
        self._queue: list[_Queued] = []

    def submit(self, request: Request, now_s: int) -> None:
        insort(self._queue, _Queued(self._turn(request), request, self._board.demand(request)), key=lambda queued: queued.turn)

    def release(self, request_id: str, now_s: int) -> None:
        self._board.now_s = now_s
        self._board.release(request_id)

    def close(self, failure: Failure) -> None:
        self._board.now_s = failure.at_s
        self._board.add_running(failure.outage)

    def reopen(self, failure: Failure) -> None:
        self.release(failure.outage.id, failure.until_s)

    def tick(self, now_s: int) -> list[Started]:
        self._board.now_s = now_s
        return self._start_heads()

    def next_start_s(self) -> int | None:
        """Starts happen at submissions and releases only."""
        return None

    def promise_s(self, request_id: str) -> int | None:
        return None

    def evicted(self) -> list[PlannedEviction]:
        return []

    def refused(self) -> list[str]:
        return []

    def repromised(self) -> Set[str]:
        return frozenset()

    def forecast(self, request_id: str) -> WaitForecast | None:
        return None

    def _turn(self, request: Request) -> Turn:
        return Turn.of(request)

    def _start_heads(self) -> list[Started]:
        started: list[Started] = []
        while self._queue:
            new = self._start(self._queue[0])
            if new is None:
                break
            started.append(new)
            self._queue.pop(0)
        return started

    def _start(self, queued: _Queued) -> Started | None:
        now_s = self._board.now_s
        found = self._board.earliest(queued.demand, now_s, now_s + 1)
        if found is None:
            return None
        waiting = self._reserve(queued, found)
        (started,) = self._board.start()
        return started if started.request is waiting.request else None

    def _reserve(self, queued: _Queued, found: tuple[int, int]) -> Waiting:
        waiting = self._board.enqueue(queued.request)
        self._board.place_at(waiting, queued.demand, found)
        return waiting


class Sjf(Fifo):
    """The shortest goes first; none passes the head."""

    def _turn(self, request: Request) -> Turn:
        return Turn.of(request, request.length_s)


class LeastWork(Fifo):
    """The one with the fewest GPU-seconds goes first; none passes the head."""

    def _turn(self, request: Request) -> Turn:
        return Turn.of(request, self._board.gpu_s(request))


class Easy(Fifo):
    """Plans by EASY backfill: the head holds a reservation, renewed at every event; others may start now if it stays whole.

    Source: Lifka, The ANL/IBM SP scheduling system, JSSPP 1995.
    """

    def tick(self, now_s: int) -> list[Started]:
        self._board.now_s = now_s
        started = self._start_heads()
        found = self._board.earliest(self._queue[0].demand, now_s) if self._queue else None
        if found is None:
            return started
        reservation = self._reserve(self._queue[0], found)
        started += self._backfill()
        self._board.dequeue(reservation)
        return started

    def _backfill(self) -> list[Started]:
        started: list[Started] = []
        rest = self._queue[:1]
        for queued in self._queue[1:]:
            new = self._start(queued)
            if new is None:
                rest.append(queued)
            else:
                started.append(new)
        self._queue = rest
        return started
