"""Waits and promises on real job lists: ours beside the policies of the field, all replayed by the same simulator, priorities equal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import Figure, NotRun
from gpr.planner.joblist import read_jobs, read_nodes
from gpr.planner.replay import POLICIES, Replay, replay
from gpr.planner.report import quantile, report

# Jobs, nodes, and the goal for our mean wait over the oracle's.
CASES = (
    ("philly_week.csv", "nodes_80x8.csv", 1.2),
    ("philly_week.csv", "nodes_64x8.csv", 1.5),
    ("philly_oct.csv", "nodes_80x8.csv", 1.2),
    ("philly_oct.csv", "nodes_64x8.csv", 1.5),
)
EARLY_GOAL = 1.25
PEERS = ("sjf", "fifo", "easy", "conservative")
BIG_GPUS = 8
GPUS_PER_NODE = 8
GANG_GOAL = "<= 1.5 x fifo"


def run(traces: Path | None) -> list[Figure]:
    if traces is None:
        raise NotRun("it needs the job lists: --traces DIR, or EGS_TRACES")
    return [figure for case in CASES for early in (False, True) for figure in _case(traces, *case, early=early)]


def _case(traces: Path, jobs: str, nodes: str, goal: float, *, early: bool) -> list[Figure]:
    name = f"{jobs.removesuffix('.csv')} on {nodes.removesuffix('.csv')}{' --early' if early else ''}"
    run_of: dict[str, tuple[Replay, dict[str, Any]]] = {}
    seconds = 0.0
    for policy in ("egs", *PEERS):
        began = time.perf_counter()
        run_of[policy] = _replay(traces, jobs, nodes, policy, early=early)
        seconds = seconds or time.perf_counter() - began

    def figure(what: str, unit: str, ours: float, peer: str = "", theirs: float | None = None, goal: str = "") -> Figure:
        return Figure("queue-quality", f"{name}: {what}", unit, ours, peer, theirs, goal)

    reports = {policy: made for policy, (_, made) in run_of.items()}
    ours, told = reports["egs"], reports["egs"]["estimate"]
    goals = {"sjf": f"<= {EARLY_GOAL if early else goal} x sjf"}
    figures = [figure("mean wait", "s", ours["wait_s"]["mean"], p, reports[p]["wait_s"]["mean"], goals.get(p, "")) for p in PEERS]
    promised = reports["conservative"]["estimate"]["promised_wait_s"]["mean"]
    figures += [
        figure("promises kept", "", told["promise_kept"], goal="1"),
        figure("mean promised wait", "s", told["promised_wait_s"]["mean"], "conservative", promised, "" if early else "<= its"),
        figure("p99 wait of gangs", "s", _p99(run_of["egs"][0], _is_gang), "fifo", _p99(run_of["fifo"][0], _is_gang), GANG_GOAL),
        figure("p99 wait of 8 GPUs and more", "s", _p99(run_of["egs"][0], _is_big), "fifo", _p99(run_of["fifo"][0], _is_big), GANG_GOAL),
        figure("p90 covers of those that waited", "", told["p90_coverage"], goal="0.90 +- 0.01"),
        figure("p50 to p90, median", "s", told["p90_width_s"]["p50"], goal="<= 2600" if early else ""),
        figure("whole replay", "s", seconds),
    ]
    return figures


def _replay(traces: Path, jobs: str, nodes: str, policy: str, *, early: bool) -> tuple[Replay, dict[str, Any]]:
    pools = read_nodes(traces / nodes)
    listed = read_jobs(traces / jobs, pools, early=early)
    done = replay(POLICIES[policy](pools), listed, early=early, ignore_priority=True, clock=time.perf_counter)
    return done, report(done, pools)


def _is_gang(nodes: int, gpus: int) -> bool:
    return nodes > 1


def _is_big(nodes: int, gpus: int) -> bool:
    return nodes * gpus >= BIG_GPUS


def _p99(done: Replay, chosen: Callable[[int, int], bool]) -> float:
    jobs = ((run, run.job.node_count, run.job.gpus_per_node or GPUS_PER_NODE) for run in done.runs)
    return quantile([run.start_s - run.job.submit_s for run, nodes, gpus in jobs if chosen(nodes, gpus)], 0.99) or 0.0
