"""Compares waits and promises on real job lists with those of the field's policies, all replayed by the same simulator with equal
priorities.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import Figure, NotRun
from planner.promises.ranges import quantile
from planner.snapshot import Pool
from simulation.estimators import ESTIMATORS, Estimators
from simulation.joblist import TraceJob, read_jobs, read_nodes
from simulation.replay import POLICIES, Replay, replay
from simulation.report import report

# Jobs, nodes, and the goal for our mean wait over the oracle's.
CASES = (
    ("philly_week.csv", "nodes_80x8.csv", 1.2),
    ("philly_week.csv", "nodes_64x8.csv", 1.5),
    ("philly_oct.csv", "nodes_80x8.csv", 1.2),
    ("philly_oct.csv", "nodes_64x8.csv", 1.5),
)
EARLY_GOAL = 1.25
PEERS = ("sjf", "least-work", "fifo", "easy", "conservative")
# They need no lengths, or know the real ones: what is booked means nothing to them.
KNOWING = {"fifo", "sjf", "least-work"}
BIG_GPUS = 8
GPUS_PER_NODE = 8
GANG_GOAL = "<= 1.5 x fifo"


def run(traces: Path | None) -> list[Figure]:
    if traces is None:
        raise NotRun("it needs the job lists: --traces DIR, or EGS_TRACES")
    return [figure for case in CASES for figure in _case(traces, *case)]


def _case(traces: Path, jobs: str, nodes: str, goal: float) -> Iterator[Figure]:
    """Replays with exact boxes, then with early ends."""
    name = f"{jobs.removesuffix('.csv')} on {nodes.removesuffix('.csv')}"
    pools = read_nodes(traces / nodes)
    known: dict[str, Outcome] = {}
    for early in (False, True):
        listed = read_jobs(traces / jobs, pools, early=early)
        outcomes = known | {policy: outcome(policy, pools, listed, early=early) for policy in ("egs", *PEERS) if policy not in known}
        known = {policy: outcomes[policy] for policy in KNOWING}
        yield from figures_of(f"{name}{' --early' if early else ''}", outcomes, goal=EARLY_GOAL if early else goal, early=early)


def figures_of(name: str, outcomes: Mapping[str, Outcome], *, goal: float, early: bool) -> list[Figure]:
    ours = outcomes["egs"]

    def figure(what: str, unit: str, ours: float, peer: str = "", theirs: float | None = None, goal: str = "") -> Figure:
        return Figure("queue-quality", f"{name}: {what}", unit, ours, peer, theirs, goal)

    told, fifo = ours.report["estimate"], outcomes["fifo"]
    goals = {"sjf": f"<= {goal} x sjf"}
    figures = [figure("mean wait", "s", ours.mean_wait_s, peer, outcomes[peer].mean_wait_s, goals.get(peer, "")) for peer in PEERS]
    promised_s = outcomes["conservative"].promised_wait_s
    figures += [
        figure("promises kept", "", told["promise_kept"], goal="1"),
        figure("mean promised wait", "s", ours.promised_wait_s, "conservative", promised_s, "" if early else "<= 1 x conservative"),
        figure("p99 wait of gangs", "s", ours.p99_s(is_gang), "fifo", fifo.p99_s(is_gang), GANG_GOAL),
        figure("p99 wait of 8 GPUs and more", "s", ours.p99_s(is_big), "fifo", fifo.p99_s(is_big), GANG_GOAL),
        figure("p90 covers of those that waited", "", told["p90_coverage"], goal="0.90 +- 0.01"),
        figure("p50 to p90, median", "s", told["p90_width_s"]["p50"], goal="<= 2600" if early else ""),
        figure("whole replay", "s", ours.seconds),
    ]
    if not early:
        within = outcomes["conservative"].report["estimators"]["promise"]["within_1min"]
        figures.append(figure("conservative: starts within 1 minute of the promise, of those that waited", "", within, goal=">= 0.95"))
    estimators = ours.report["estimators"]
    figures += [
        figure("estimates within 10 minutes, of those that waited: p50", "", estimators["p50"]["within_10min"], name, of["within_10min"])
        for name, of in estimators.items()
        if name in ESTIMATORS
    ]
    return figures


@dataclass(frozen=True, slots=True)
class Outcome:
    """Holds the result of one policy on one list. `seconds` is the wall time of the replay."""

    done: Replay
    report: dict[str, Any]
    seconds: float

    @property
    def mean_wait_s(self) -> float:
        return float(self.report["wait_s"]["mean"])

    @property
    def promised_wait_s(self) -> float:
        return float(self.report["estimate"]["promised_wait_s"]["mean"])

    def p99_s(self, chosen: Callable[[TraceJob], bool]) -> float:
        return quantile([run.wait_s for run in self.done.runs if chosen(run.job)], 0.99) or 0.0


def outcome(policy: str, pools: tuple[Pool, ...], jobs: Sequence[TraceJob], *, early: bool) -> Outcome:
    """All priorities are equal."""
    began = time.perf_counter()
    done = replay(
        POLICIES[policy](pools),
        jobs,
        early=early and policy not in KNOWING,
        ignore_priority=True,
        clock=time.perf_counter,
        estimators=Estimators(pools),
    )
    return Outcome(done, report(done, pools), time.perf_counter() - began)


def is_gang(job: TraceJob) -> bool:
    return job.node_count > 1


def is_big(job: TraceJob) -> bool:
    return job.node_count * (job.gpus_per_node or GPUS_PER_NODE) >= BIG_GPUS
