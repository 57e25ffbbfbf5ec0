"""Runs Kueue's own load tests in real time through our planner, beside Kueue itself where it can run, and beside its published figures.

A cohort is a pool with one node of all its CPUs, a queue is a project that is guaranteed its quota: it borrows what others leave idle, and
they take it back. Neither side gives notice or a minimum run, and an evicted workload begins again. Time is counted in milliseconds.
Kueue's time includes its API server, and it takes the oldest among equals.
"""

from __future__ import annotations

import heapq
import resource
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from bench.figures import Figure, NotRun
from bench.hub.own_hub import figures_from
from bench.peers import kueue_runner
from bench.peers.kueue_runner import Ran
from bench.peers.kueue_scenarios import BASELINE, LARGE_SCALE, Arrival, Kind, Scenario, arrivals
from planner.board.board import Board
from planner.promises.slack import SlackTracker
from planner.snapshot import Memory, Node, PlanPolicy, PolicyName, Pool, Quota, Request
from simulation.replay import Planner

AT_ONCE = PlanPolicy(notice_s=1, least_run_s=0, eviction_gain_s=0)
# If nothing is due, the next look comes after this time.
IDLE_S = 0.0005
PUBLISHED = "Kueue published, with its API server"
MEASURED = "Kueue here, with its API server"


def run(traces: Path | None) -> list[Figure]:
    figures = _run(BASELINE)
    try:
        return [*figures, *figures_from("bench.peers.kueue_hub", with_redis=True)]
    except NotRun as why:
        sys.stdout.write(f"kueue: not run end to end: {why}\n")
        return figures


def run_large_scale(traces: Path | None) -> list[Figure]:
    return _run(LARGE_SCALE)


def _run(scenario: Scenario) -> list[Figure]:
    """Runs twice: with reclaim alone, and with evictions by higher priority too."""
    try:
        kueue: Ran | None = kueue_runner.run(scenario)
    except NotRun as why:
        sys.stdout.write(f"kueue: Kueue itself is not run, only its published figures are beside ours: {why}\n")
        kueue = None
    if kueue is not None and kueue.dropped_count:
        sys.stdout.write(f"kueue: its runner was too slow for {kueue.dropped_count} events\n")
    play(replace(scenario, kinds=tuple(replace(kind, count=1) for kind in scenario.kinds)), may_evict=True)  # compiles
    figures: list[Figure] = []
    for may_evict, how in ((False, "reclaim"), (True, "reclaim and priority")):
        ours = play(scenario, may_evict=may_evict)
        figures += _figures(f"{scenario.name}, {scenario.workload_count:,} workloads, planner alone, {how}", scenario, ours, kueue)
    return figures


@dataclass(slots=True)
class PlayResult:
    """`waits_s` by kind, until the last start of each; `cpu_s` of this process."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    evictions: int = 0
    waits_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


def _figures(case: str, scenario: Scenario, ours: PlayResult, kueue: Ran | None) -> list[Figure]:
    figure = partial(_figure, case)
    waits_s = {kind.name: statistics.fmean(ours.waits_s[kind.name]) for kind in scenario.kinds}
    beside_published = [
        figure("all done after", "s", ours.wall_s, PUBLISHED, scenario.published_wall_s),
        figure("all done after", "s", ours.wall_s, "nobody can be faster", scenario.ideal_wall_s),
        *(figure(f"mean wait of {kind.name} ones", "s", waits_s[kind.name], PUBLISHED, kind.published_s) for kind in scenario.kinds),
    ]
    beside_measured = (
        []
        if kueue is None
        else [
            figure("all done after", "s", ours.wall_s, MEASURED, kueue.wall_s),
            *(figure(f"mean wait of {name} ones", "s", wait_s, MEASURED, kueue.waits_s.get(name)) for name, wait_s in waits_s.items()),
        ]
    )
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        *beside_published,
        *beside_measured,
        figure("evictions", "", ours.evictions, MEASURED, _of(kueue, "evictions")),
        figure("use of the quota", "", scenario.work_s / ours.wall_s, MEASURED, _of(kueue, "usage")),
        figure("CPU time of the process", "s", ours.cpu_s, MEASURED, _of(kueue, "cpu_s")),
        figure("memory of the process", "MB", memory_mb, MEASURED, _of(kueue, "memory_mb")),
    ]


def _of(kueue: Ran | None, name: str) -> float | None:
    return None if kueue is None else float(getattr(kueue, name))


def _figure(case: str, what: str, unit: str, ours: float, peer: str, theirs: float | None) -> Figure:
    return Figure("kueue", f"{case}: {what}", unit, ours, "" if theirs is None else peer, theirs)


class _AtOnce(Planner):
    """Evicts without notice."""

    def __init__(self, pools: tuple[Pool, ...], quotas: tuple[Quota, ...]) -> None:
        super().__init__(pools, PolicyName.GUARDED, quotas)
        self._board = Board(pools, now_s=0, policy=AT_ONCE, quotas=quotas)
        self._slack = SlackTracker(self._board, Memory())


def play(scenario: Scenario, *, may_evict: bool) -> PlayResult:
    """Runs by the wall clock: arrivals wait while the planner works."""
    return WorkloadPlayer(planner_for(scenario), list(arrivals(scenario)), may_evict=may_evict).run()


def planner_for(scenario: Scenario) -> Planner:
    pools = tuple(Pool(f"cohort{i}", "c", f"cohort{i}", (Node(f"node{i}", scenario.cohort_cpus),)) for i in range(scenario.cohort_count))
    quotas = tuple(Quota(_owner(i, q), pools[i].shape, scenario.quota) for i in range(len(pools)) for q in range(scenario.queue_count))
    return _AtOnce(pools, quotas)


def _owner(cohort: int, queue: int) -> str:
    return f"cohort{cohort}-queue{queue}"


class WorkloadPlayer:
    """Plays arrivals, starts and ends of workloads on the wall clock."""

    def __init__(
        self, planner: Planner, coming: Sequence[Arrival], *, may_evict: bool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._planner = planner
        self._clock = clock
        self._coming = [(arrival, _request(f"w{rank}", rank, arrival, may_evict)) for rank, arrival in enumerate(coming)][::-1]
        self._here: dict[str, tuple[Arrival, Request]] = {}
        self._ends_ms: dict[str, int] = {}  # of those that run
        self._leaves_ms: dict[str, int] = {}  # of those of them that are evicted
        self._due: list[tuple[int, str]] = []
        self._waits_s: dict[str, tuple[Kind, float]] = {}
        self._played = PlayResult()

    def run(self) -> PlayResult:
        began_s, began_cpu_s = self._clock(), time.process_time()
        while self._coming or self._here:
            now_ms = int((self._clock() - began_s) * 1000)
            if not self._has_changed(now_ms):
                time.sleep(IDLE_S)
        self._played.wall_s, self._played.cpu_s = self._clock() - began_s, time.process_time() - began_cpu_s
        for kind, wait_s in self._waits_s.values():
            self._played.waits_s[kind.name].append(wait_s)
        return self._played

    def _has_changed(self, now_ms: int) -> bool:
        """Looks once; returns False when nothing was due."""
        next_ms = self._planner.next_start_s()
        is_due = next_ms is not None and next_ms <= now_ms
        is_due |= self._ended(now_ms)
        while self._coming and self._coming[-1][0].at_ms <= now_ms:
            arrival, request = self._coming.pop()
            self._here[request.id] = arrival, request
            self._planner.submit(request, now_ms)
            is_due = True
        if is_due:
            self._look(now_ms)
        return is_due

    def _ended(self, now_ms: int) -> bool:
        """Workloads whose time is over are done; evicted ones wait again."""
        has_ended = False
        while self._due and self._due[0][0] <= now_ms:
            at_ms, id_ = heapq.heappop(self._due)
            is_done = self._ends_ms.get(id_) == at_ms
            if not is_done and self._leaves_ms.get(id_) != at_ms:
                continue  # of an earlier run
            self._planner.release(id_, now_ms)
            self._ends_ms.pop(id_)
            self._leaves_ms.pop(id_, None)
            if is_done:
                del self._here[id_]
            else:
                self._played.evictions += 1
                self._planner.submit(self._here[id_][1], now_ms)
            has_ended = True
        return has_ended

    def _look(self, now_ms: int) -> None:
        started = self._planner.tick(now_ms)
        for eviction in self._planner.evicted():
            for victim in eviction.victims:
                self._leaves_ms[victim.id] = victim.frees_s
                heapq.heappush(self._due, (victim.frees_s, victim.id))
        for new in started:
            arrival = self._here[new.request.id][0]
            self._waits_s[new.request.id] = arrival.kind, (now_ms - arrival.at_ms) / 1000
            self._ends_ms[new.request.id] = now_ms + arrival.kind.length_ms
            heapq.heappush(self._due, (self._ends_ms[new.request.id], new.request.id))


def _request(id_: str, rank: int, arrival: Arrival, may_evict: bool) -> Request:
    kind, pool = arrival.kind, f"cohort{arrival.cohort}"
    owner = _owner(arrival.cohort, arrival.queue)
    return Request(id_, "", owner, kind.priority, rank, 1, kind.cpus, kind.length_ms, (pool,), may_evict=may_evict)
