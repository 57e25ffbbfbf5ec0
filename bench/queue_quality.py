"""Waits on real job lists: ours beside strict FIFO and EASY backfill, all replayed by the same simulator, priorities equal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.figures import Figure, NotRun
from gpr.planner.joblist import read_jobs, read_nodes
from gpr.planner.replay import POLICIES, replay
from gpr.planner.report import report

CASES = (("philly_week.csv", "nodes_80x8.csv"), ("philly_week.csv", "nodes_64x8.csv"))
PEERS = ("fifo", "easy")


def run(traces: Path | None) -> list[Figure]:
    if traces is None:
        raise NotRun("it needs the job lists: --traces DIR, or EGS_TRACES")
    return [figure for jobs, nodes in CASES for figure in _case(traces, jobs, nodes)]


def _case(traces: Path, jobs: str, nodes: str) -> list[Figure]:
    name = f"{jobs.removesuffix('.csv')} on {nodes.removesuffix('.csv')}"
    ours, seconds = _replay(traces, jobs, nodes, "egs")
    figures = [
        Figure(
            "queue-quality",
            f"{name}: mean wait",
            "s",
            ours["wait_s"]["mean"],
            peer,
            _replay(traces, jobs, nodes, peer)[0]["wait_s"]["mean"],
        )
        for peer in PEERS
    ]
    kept = Figure("queue-quality", f"{name}: promises kept", "", ours["estimate"]["promise_kept"], goal="1")
    plan = Figure("queue-quality", f"{name}: planning an event, p99", "s", ours["plan_s"]["p99"])
    return [*figures, kept, plan, Figure("queue-quality", f"{name}: whole replay", "s", seconds)]


def _replay(traces: Path, jobs: str, nodes: str, policy: str) -> tuple[dict[str, Any], float]:
    pools = read_nodes(traces / nodes)
    listed = read_jobs(traces / jobs, pools, early=False)
    began = time.perf_counter()
    done = replay(POLICIES[policy](pools), listed, early=False, ignore_priority=True, clock=time.perf_counter)
    return report(done, pools), time.perf_counter() - began
