"""Compares our policy with those of the field on lists that were not used for tuning, in the ratios that we promise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.figures import Figure
from bench.replays.drawn_lists import draw, pool_of, resample
from bench.replays.queue_quality import GANG_GOAL, PEERS, Outcome, is_big, is_gang, outcome
from planner.snapshot import Pool
from simulation.joblist import TraceJob, read_jobs

NODE_COUNT = 80
LOADS = (0.7, 0.9, 1.05)
SEEDS = (3001, 3002)
COUNT = 3_000
OCTOBER_SEED, OCTOBER_COUNT = 3003, 12_000


def run(traces: Path | None) -> list[Figure]:
    """October is resampled where the traces are at hand; the drawn lists need none."""
    pools = (pool_of(NODE_COUNT),)
    lists = [*_drawn(pools[0]), *_october(traces, pools[0])]
    return [figure for name, jobs in lists for early in (False, True) for figure in _case(name, pools, jobs, early=early)]


def _drawn(pool: Pool) -> Iterator[tuple[str, tuple[TraceJob, ...]]]:
    for load in LOADS:
        for seed in SEEDS:
            yield f"load {load}, seed {seed}", draw(seed=seed, count=COUNT, load=load, pool=pool)


def _october(traces: Path | None, pool: Pool) -> Iterator[tuple[str, tuple[TraceJob, ...]]]:
    if traces is not None:
        jobs = read_jobs(traces / "philly_oct.csv", (pool,), early=True)
        yield f"october resampled, seed {OCTOBER_SEED}", resample(jobs, seed=OCTOBER_SEED, count=OCTOBER_COUNT)


def _case(name: str, pools: tuple[Pool, ...], jobs: Sequence[TraceJob], *, early: bool) -> list[Figure]:
    of = {policy: outcome(policy, pools, jobs, early=early) for policy in ("egs", *PEERS)}
    return figures_of(f"{name}{' --early' if early else ''}", of, early=early)


def figures_of(name: str, of: Mapping[str, Outcome], *, early: bool) -> list[Figure]:
    def figure(what: str, unit: str, ours: float, peer: str = "", theirs: float | None = None, goal: str = "") -> Figure:
        return Figure("queue-drawn", f"{name}: {what}", unit, round(ours, 3), peer, theirs, goal)

    ours, fifo, told = of["egs"], of["fifo"], of["egs"].report["estimate"]
    return [
        *(figure("mean wait", "s", ours.mean_wait_s, peer, of[peer].mean_wait_s) for peer in PEERS),
        figure("g1, mean wait, x sjf", "", ours.mean_wait_s / of["sjf"].mean_wait_s, goal="<= 1.25" if early else "<= 1.2"),
        figure("g3, promised wait, x conservative", "", ours.promised_wait_s / of["conservative"].promised_wait_s, goal="<= 1"),
        figure("g4, p99 of gangs, x fifo", "", ours.p99_s(is_gang) / fifo.p99_s(is_gang), goal=GANG_GOAL),
        figure("g4, p99 of 8 GPUs and more, x fifo", "", ours.p99_s(is_big) / fifo.p99_s(is_big), goal=GANG_GOAL),
        figure("promises kept", "", told["promise_kept"], goal="1"),
        figure("p90 covers of those that waited", "", told["p90_coverage"], goal="0.90 +- 0.01"),
    ]
