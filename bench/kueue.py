"""Kueue's own load test, its scenario "baseline", in real time through our planner alone.

Five cohorts of six queues; each queue of 20 CPUs gets 350 small, 100 medium and 50 large workloads within a minute. A cohort lends all it
has, so here it is one node that its queues share by priority: no quota is guaranteed, nobody is preempted. Time is counted in milliseconds.
Kueue's published figures include an API server and its database, ours the planner's work only: the difference is not the scheduler's alone.
"""

from __future__ import annotations

import heapq
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure
from gpr.planner.replay import Planner
from gpr.planner.snapshot import Node, PolicyName, Pool, Request

COHORTS, QUEUES, QUOTA = 5, 6, 20


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    count: int
    every_ms: int
    length_ms: int
    priority: int
    cpus: int
    kueue_s: float  # its mean time to admission, as published


# Of kubernetes-sigs/kueue, test/performance/scheduler/configs/baseline (generator.yaml; figures of rangespec.yaml, 2026-08).
WORKLOADS = (
    Workload("small", 350, 100, 200, 50, 1, 215.5),
    Workload("medium", 100, 500, 500, 100, 5, 76.8),
    Workload("large", 50, 1200, 1000, 200, 20, 16.5),
)
KUEUE_WALL_S = 351.0
# All work over all CPUs: nobody can be faster.
IDEAL_WALL_S = sum(each.count * each.length_ms * each.cpus for each in WORKLOADS) / 1000 / QUOTA


def run(traces: Path | None) -> list[Figure]:
    wall_s, waits_s = _play(list(_arrivals()))
    case = f"baseline, {sum(len(waits) for waits in waits_s.values()):,} workloads, planner alone"
    figures = [
        Figure("kueue", f"{case}: all done after", "s", wall_s, "Kueue published, with its API server", KUEUE_WALL_S),
        Figure("kueue", f"{case}: all done after", "s", wall_s, "nobody can be faster", IDEAL_WALL_S),
    ]
    for each in WORKLOADS:
        mean_s = statistics.fmean(waits_s[each.name])
        figures.append(Figure("kueue", f"{case}: mean wait of {each.name} ones", "s", mean_s, "Kueue published", each.kueue_s))
    return figures


def _arrivals() -> Iterator[tuple[int, Workload, Request]]:
    """(milliseconds, workload, request), in order of time."""
    made = sorted(
        ((number * each.every_ms, cohort, queue, each) for each in WORKLOADS for number in range(each.count)
         for cohort in range(COHORTS) for queue in range(QUEUES)),
        key=lambda arrival: arrival[:3],
    )  # fmt: skip
    for rank, (at_ms, cohort, queue, each) in enumerate(made):
        owner = f"cohort{cohort}-queue{queue}"
        yield at_ms, each, Request(f"w{rank}", "", owner, each.priority, rank, 1, each.cpus, each.length_ms, (f"cohort{cohort}",))


def _play(arrivals: list[tuple[int, Workload, Request]]) -> tuple[float, dict[str, list[float]]]:
    """By the wall clock: what comes while the planner works waits for its next look."""
    pools = tuple(Pool(f"cohort{i}", "c", "cpu", (Node(f"node{i}", QUEUES * QUOTA),)) for i in range(COHORTS))
    planner = Planner(pools, PolicyName.GUARDED)
    coming, running = iter(arrivals), list[tuple[int, str]]()
    came = {request.id: (at_ms, each) for at_ms, each, request in arrivals}
    waits_s: dict[str, list[float]] = defaultdict(list)
    upcoming = next(coming, None)
    begin_s = time.perf_counter()
    while came or running:
        now_ms = int((time.perf_counter() - begin_s) * 1000)
        while running and running[0][0] <= now_ms:
            planner.release(heapq.heappop(running)[1], now_ms)
        while upcoming is not None and upcoming[0] <= now_ms:
            planner.submit(upcoming[2], now_ms)
            upcoming = next(coming, None)
        for new in planner.tick(now_ms):
            at_ms, each = came.pop(new.request.id)
            waits_s[each.name].append((now_ms - at_ms) / 1000)
            heapq.heappush(running, (now_ms + each.length_ms, new.request.id))
    return time.perf_counter() - begin_s, waits_s
