"""Gives guarantees to the virtual clusters of the Philly list and compares with the same list without any: how soon entitled boxes get
their GPUs, and how long the others then wait.

Each is guaranteed GPUs in proportion to its use in the list, all GPUs together. Priorities are equal, boxes exact, notice and minimum run
as the product's defaults.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.figures import Figure, NotRun
from planner.promises.ranges import quantile
from planner.snapshot import PlanPolicy, Pool, Quota
from simulation.joblist import TraceJob, read_jobs, read_nodes
from simulation.replay import POLICIES, Replay, Run, replay

CASES: Final = (("philly_week.csv", "nodes_80x8.csv"), ("philly_week.csv", "nodes_64x8.csv"))
NOTICE_S: Final = PlanPolicy().notice_s
# KAI's example result: reclaiming one GPU of 500 nodes, without notice (docs/scale-tests, 2026-07).
KAI_RECLAIM_S: Final = 13.9
SAMPLE_S: Final = 600


def run(traces: Path | None) -> list[Figure]:
    if traces is None:
        raise NotRun("it needs the job lists: --traces DIR, or EGS_TRACES")
    return [figure for case in CASES for figure in _case(traces, *case)]


def _case(traces: Path, jobs_file: str, nodes_file: str) -> list[Figure]:
    pools = read_nodes(traces / nodes_file)
    jobs = read_jobs(traces / jobs_file, pools, early=False)
    quotas = guarantees(jobs, pools)
    with_quotas, without = (
        replay(POLICIES["egs"](pools, quotas=given), jobs, early=False, ignore_priority=True, clock=time.perf_counter)
        for given in (quotas, ())
    )
    return figures_of(f"{jobs_file.removesuffix('.csv')} on {nodes_file.removesuffix('.csv')}", with_quotas, without, pools, quotas)


def guarantees(jobs: Sequence[TraceJob], pools: tuple[Pool, ...]) -> tuple[Quota, ...]:
    """Divides all GPUs in proportion to GPU-seconds used: whole ones, at least one each, the largest remainders rounded up."""
    shape, sizes = pools[0].shape, _sizes(pools)
    used: dict[str, int] = defaultdict(int)
    for job in jobs:
        used[job.project] += job.run_s * _gpus(job, sizes)
    left = sum(sizes.values()) - len(used)
    exact = {owner: left * gpu_s / sum(used.values()) for owner, gpu_s in used.items()}
    given = {owner: 1 + int(gpus) for owner, gpus in exact.items()}
    by_remainder = sorted(used, key=lambda owner: (int(exact[owner]) - exact[owner], owner))
    for owner in by_remainder[: sum(sizes.values()) - sum(given.values())]:
        given[owner] += 1
    return tuple(Quota(owner, shape, gpus) for owner, gpus in sorted(given.items()))


def figures_of(name: str, done: Replay, without: Replay, pools: tuple[Pool, ...], quotas: tuple[Quota, ...]) -> list[Figure]:
    """`done` ran with the quotas, `without` ran without them."""

    def figure(what: str, unit: str, ours: float, theirs: float | None = None, peer: str = "without quotas") -> Figure:
        return Figure("vc-quotas", f"{name}: {what}", unit, ours, peer if theirs is not None else "", theirs)

    sizes, owed = _sizes(pools), {quota.owner: quota.guaranteed for quota in quotas}
    entitled, before = ([run.wait_s for run in entitled_runs(each.runs, sizes, owed)] for each in (done, without))
    for_whom, waits_s = beneficiaries(done), _waits_s(done)
    reclaims_s = [run.wait_s for run in entitled_runs(done.runs, sizes, owed) if run.job.id in for_whom]
    after_notice_s = [max(wait_s - NOTICE_S, 0) for wait_s in reclaims_s]
    fair, unfair = (fairness(each.runs, sizes, owed) for each in (done, without))
    victims = [victim for eviction in done.evictions for victim in eviction.victims]
    used_gpu_s = sum((run.end_s - run.start_s) * _gpus(run.job, sizes) for run in done.runs)
    return [
        figure("jobs entitled when they came for which others were evicted", "", len(reclaims_s)),
        figure("their GPUs taken back after, mean", "s", _mean(reclaims_s), KAI_RECLAIM_S, "KAI, published, no notice"),
        figure("the same, p99", "s", quantile(reclaims_s, 0.99) or 0.0),
        figure("the same without the notice, mean", "s", _mean(after_notice_s), KAI_RECLAIM_S, "KAI, published, no notice"),
        figure("the same without the notice, p99", "s", quantile(after_notice_s, 0.99) or 0.0),
        figure("jobs for which others were evicted, some of which first waited to borrow", "", len(for_whom)),
        figure("their wait, mean", "s", _mean(waits_s[id_] for id_ in for_whom)),
        figure("wait of those entitled when they came, mean", "s", _mean(entitled), _mean(before)),
        figure("wait of those entitled when they came, p99", "s", quantile(entitled, 0.99) or 0.0, quantile(before, 0.99)),
        figure("wait of all, mean", "s", _mean(waits_s.values()), _mean(_waits_s(without).values())),
        figure("evictions in 1,000 jobs", "", 1000 * len(victims) / len(waits_s), 0.0),
        figure("work lost if nobody saved any, of all work", "%", 100 * sum(v.lost_gpu_s for v in victims) / used_gpu_s, 0.0),
        figure("promises moved", "", len(done.repromised), len(without.repromised)),
        figure("Jain index of held / guaranteed, of those that want it all", "", fair.jain, unfair.jain),
        figure("entitlement met while somebody waits", "", fair.met, unfair.met),
        figure("the same, of the worst off", "", fair.worst, unfair.worst),
        figure("planning, p99 of an event", "s", quantile(done.plan_s, 0.99) or 0.0, quantile(without.plan_s, 0.99)),
    ]


def beneficiaries(done: Replay) -> set[str]:
    """Ids of the jobs for which others were evicted."""
    return {eviction.id for eviction in done.evictions}


def entitled_runs(runs: Sequence[Run], sizes: Mapping[str, int], owed: Mapping[str, int]) -> list[Run]:
    """Returns first runs of jobs that fitted into their owner's guarantee when they came, beside all that the owner held or waited for."""
    changes = sorted((at_s, order, number) for number, run in enumerate(runs) for at_s, order in ((run.queued_s, 1), (run.end_s, 0)))
    wanted: dict[str, int] = defaultdict(int)
    found: list[Run] = []
    for _, has_come, number in changes:
        run, gpus = runs[number], _gpus(runs[number].job, sizes)
        if has_come and run.queued_s == run.job.submit_s and wanted[run.job.project] + gpus <= owed[run.job.project]:
            found.append(run)
        wanted[run.job.project] += gpus if has_come else -gpus
    return found


@dataclass(frozen=True, slots=True)
class Fairness:
    """Holds means over all moments at which a job waits, every ten minutes.

    `jain`: of held / guaranteed, among owners that want all they are guaranteed or more; moments with one such owner do not count. `met`:
    the part of what is guaranteed and wanted that is held. `worst`: the same for the owner with the lowest part.
    """

    jain: float
    met: float
    worst: float


def fairness(runs: Sequence[Run], sizes: Mapping[str, int], owed: Mapping[str, int]) -> Fairness:
    jains, mets, worsts = [], [], []
    for held, wanted in _moments(runs, sizes):
        due = {owner: min(owed[owner], wanted[owner]) for owner in owed if wanted[owner] > 0}
        if all(held[owner] == wanted[owner] for owner in due):
            continue
        full = [held[owner] / owed[owner] for owner, gpus in due.items() if gpus == owed[owner]]
        if len(full) > 1:
            jains.append(jain(full))
        mets.append(sum(min(held[owner], gpus) for owner, gpus in due.items()) / sum(due.values()))
        worsts.append(min(min(held[owner], gpus) / gpus for owner, gpus in due.items()))
    return Fairness(_mean(jains), _mean(mets), _mean(worsts))


def jain(parts: Sequence[float]) -> float:
    """Returns 1 when all are equal, 1 / n when one has all. Source: Jain, Chiu, Hawe, DEC-TR-301 (1984)."""
    squares = len(parts) * sum(part * part for part in parts)
    return float(sum(parts) ** 2 / squares) if squares else 1.0


def _moments(runs: Sequence[Run], sizes: Mapping[str, int]) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """Returns what each owner holds, and what each holds or waits for, every so often until the last job has come."""
    changes = sorted(
        (at_s, run.job.project, held * gpus, wanted * gpus)
        for run in runs
        for gpus in (_gpus(run.job, sizes),)
        for at_s, held, wanted in ((run.queued_s, 0, 1), (run.start_s, 1, 0), (run.end_s, -1, -1))
    )
    holds: dict[str, int] = defaultdict(int)
    wants: dict[str, int] = defaultdict(int)
    last_s, done = max(run.job.submit_s for run in runs), 0
    for at_s in range(changes[0][0], last_s, SAMPLE_S):
        while done < len(changes) and changes[done][0] <= at_s:
            _, owner, held, wanted = changes[done]
            holds[owner] += held
            wants[owner] += wanted
            done += 1
        yield holds, wants


def _waits_s(done: Replay) -> dict[str, float]:
    """Sums the time in the queue by job."""
    waits_s: dict[str, float] = defaultdict(float)
    for run in done.runs:
        waits_s[run.job.id] += run.wait_s
    return waits_s


def _gpus(job: TraceJob, sizes: Mapping[str, int]) -> int:
    return job.node_count * (job.gpus_per_node or max(sizes.values()))


def _sizes(pools: tuple[Pool, ...]) -> dict[str, int]:
    return {node.id: node.gpu_count for pool in pools for node in pool.nodes}


def _mean(values: Iterable[float]) -> float:
    """Returns 0 for no values."""
    return statistics.fmean(listed) if (listed := list(values)) else 0.0
