"""Tries our policy on priorities, failing nodes, idle boxes, several clusters and bookings.

It replays priorities on the real week, failures there and on lists drawn by a seed; the rest on such a list, since the week has none of it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bench.figures import Figure, NotRun
from bench.replays.drawn_lists import HOUR_S, draw, pool_of
from planner.snapshot import Pool
from simulation.failures import draw_failures
from simulation.joblist import TraceJob, read_jobs, read_nodes
from simulation.replay import POLICIES, Replay, replay
from simulation.report import MINUTE_S, report

WEEK: Final = "philly_week.csv"
NODES: Final = ("nodes_80x8.csv", "nodes_64x8.csv")
LOWEST, HIGHEST = "50", "201"
FAIL_EVERY_DAYS, REPAIR_S, FAILURE_SEEDS = 30, 14_400, (1, 2, 3)
FAILING_LISTS = (5003, 5004)
# The drawn lists have these values.
SEED, COUNT, LOAD, NODE_COUNT = 5001, 3_000, 0.9, 80
SELDOM: Final = 5  # every so many boxes
IDLE_TIMEOUT_S, BURST_GAIN_S = 1_800, 1_800
BOOKED_AHEAD_S: Final = 24 * HOUR_S
HOMES: Final = ("east", "west")


def run(traces: Path | None) -> list[Figure]:
    if traces is None:
        raise NotRun("it needs the job lists: --traces DIR, or EGS_TRACES")
    pool = pool_of(NODE_COUNT)
    jobs = draw(seed=SEED, count=COUNT, load=LOAD, pool=pool)
    weeks = [_week(traces, nodes) for nodes in NODES]
    return [
        *(figure for week in weeks for figure in priorities(*week)),
        *failures([*weeks, *_drawn(pool)], FAILURE_SEEDS),
        *idle_release(pool, jobs),
        *clusters(jobs),
        *bookings(pool, jobs),
    ]


def priorities(name: str, pools: tuple[Pool, ...], jobs: Sequence[TraceJob]) -> list[Figure]:
    done = _played(pools, jobs, ignore_priority=False)
    waits = report(done, pools)["wait_s_by_priority"]
    highest_s, lowest_s = waits[HIGHEST]["mean"], waits[LOWEST]["mean"]
    return [
        _figure(f"{name}, priorities: promises kept", "", _share([done]), goal="1"),
        _figure(
            f"{name}, priorities: mean wait of class {HIGHEST}", "s", highest_s, f"class {LOWEST}", lowest_s, f"<= 0.5 x class {LOWEST}"
        ),
    ]


def failures(lists: Sequence[tuple[str, tuple[Pool, ...], Sequence[TraceJob]]], seeds: Sequence[int]) -> list[Figure]:
    """Replays each list with each seed, then all of them together: a few seconds decide which box a failure ends, so one replay says
    little.
    """
    figures, every = [], []
    for name, pools, jobs in lists:
        for seed in seeds:
            failing = draw_failures(pools, every_days=FAIL_EVERY_DAYS, repair_s=REPAIR_S, seed=seed, since_s=jobs[0].submit_s)
            every.append(done := _played(pools, jobs, failures=failing))
            figures.append(_figure(f"{name}, failures, seed {seed}: promises kept", "", _share([done])))
    together = f"failures, {len(every)} runs together"
    return [
        *figures,
        _figure(f"{together}: promises kept", "", _share(every), goal=">= 0.9995"),
        _figure(f"{together}: boxes killed", "", sum(done.killed_count for done in every)),
    ]


def idle_release(pool: Pool, jobs: Sequence[TraceJob]) -> list[Figure]:
    """Some boxes are idle from the middle on; they are taken back, or stay."""
    some = _seldom()
    idle = [replace(job, idle_from_s=job.run_s // 2) if next(some) else job for job in jobs]
    back, left = (_played((pool,), idle, early=True, idle_timeout_s=timeout_s) for timeout_s in (IDLE_TIMEOUT_S, None))
    case = f"every {SELDOM}th of {len(jobs)} boxes idle from its middle on"
    return [
        _figure(f"{case}: mean wait", "s", _mean_s(back, pool), "none taken back", _mean_s(left, pool)),
        _figure(f"{case}: taken back", "", back.idle_count),
        _figure(f"{case}: promises kept", "", _share([back]), goal="1"),
    ]


def clusters(jobs: Sequence[TraceJob]) -> list[Figure]:
    """Splits the nodes into two clusters: each box runs at home or where that saves enough; then replays them as one cluster."""
    halves = tuple(replace(_half(cluster), id=f"{cluster}/gpu", cluster=cluster) for cluster in HOMES)
    dice, ids = random.Random(SEED), [pool.id for pool in halves]
    homes = [dice.choice(ids) for _ in jobs]
    at_home = [replace(job, pools=(home,)) for job, home in zip(jobs, homes, strict=True)]
    bursting = [
        replace(job, pools=tuple(ids), handicaps=tuple((id_, BURST_GAIN_S) for id_ in ids if id_ != home))
        for job, home in zip(jobs, homes, strict=True)
    ]
    apart, together = _played(halves, at_home), _played(halves, bursting)
    case = f"{len(jobs)} boxes on two clusters of {NODE_COUNT // 2} nodes, bursting"
    return [
        _figure(f"{case}: mean wait", "s", _mean_s(together, *halves), "each at home", _mean_s(apart, *halves)),
        _figure(f"{case}: promises kept", "", _share([apart, together]), goal="1"),
    ]


def bookings(pool: Pool, jobs: Sequence[TraceJob]) -> list[Figure]:
    """Books some boxes for the same time of the next day; those that have no place are refused."""
    some = _seldom()
    booked = [replace(job, booked_s=job.submit_s + BOOKED_AHEAD_S) if next(some) else job for job in jobs]
    done = _played((pool,), booked)
    told = report(done, (pool,))["bookings"]
    case = f"every {SELDOM}th of {len(jobs)} boxes booked a day ahead"
    return [
        _figure(f"{case}: refused, of those", "", told["refused"] / told["count"]),
        _figure(f"{case}: latest start after its time", "s", told["late_s"]["max"], goal="0"),
        _figure(f"{case}: promises kept", "", _share([done]), goal="1"),
    ]


def _drawn(pool: Pool) -> Iterator[tuple[str, tuple[Pool, ...], tuple[TraceJob, ...]]]:
    for seed in FAILING_LISTS:
        yield f"drawn, load {LOAD}, seed {seed}", (pool,), draw(seed=seed, count=COUNT, load=LOAD, pool=pool)


def _week(traces: Path, nodes: str) -> tuple[str, tuple[Pool, ...], tuple[TraceJob, ...]]:
    pools = read_nodes(traces / nodes)
    return f"{WEEK.removesuffix('.csv')} on {nodes.removesuffix('.csv')}", pools, read_jobs(traces / WEEK, pools, early=False)


def _played(
    pools: tuple[Pool, ...], jobs: Sequence[TraceJob], *, early: bool = False, ignore_priority: bool = True, **hazards: Any
) -> Replay:
    return replay(POLICIES["egs"](pools), jobs, early=early, ignore_priority=ignore_priority, clock=time.perf_counter, **hazards)


def _share(replays: Sequence[Replay]) -> float:
    """The share is of all promises in these replays."""
    late_s = [run.start_s - run.promise_s for done in replays for run in done.runs if run.promise_s is not None]
    return sum(each <= MINUTE_S for each in late_s) / len(late_s)


def _mean_s(done: Replay, *pools: Pool) -> float:
    return float(report(done, pools)["wait_s"]["mean"])


def _half(prefix: str) -> Pool:
    pool = pool_of(NODE_COUNT // 2)
    return replace(pool, nodes=tuple(replace(node, id=f"{prefix}-{node.id}") for node in pool.nodes))


def _seldom() -> Iterator[bool]:
    while True:
        yield from (True, *[False] * (SELDOM - 1))


def _figure(case: str, unit: str, ours: float, peer: str = "", theirs: float | None = None, goal: str = "") -> Figure:
    return Figure("queue-trials", case, unit, ours, peer, theirs, goal)
