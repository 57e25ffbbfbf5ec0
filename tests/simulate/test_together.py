"""All at once: two clusters, homes, quotas, workspaces, priorities that evict, bookings, boxes that end early or idle, nodes that fail."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.snapshot import Pool, Quota
from simulation.failures import DAY_S, Failure, draw_failures
from simulation.joblist import TraceJob, read_jobs, read_nodes, read_quotas
from simulation.replay import POLICIES, Replay, Run, replay
from tests.effort import examples
from tests.simulate.lists import JOB_HEADER, NODE_HEADER, write
from tests.simulate.test_failures import most_used, stands_on
from tests.simulate.test_quotas import HOUR_S, QUOTA_HEADER, held
from tests.simulate.test_replay import OURS

# Each day: tests/simulation, and tests/planner/promises/test_promises.py
pytestmark = pytest.mark.rotates

NODES, GPUS, CEILING = 6, 4, 12
IDLE_S = 1800


def lines(seed: int, count: int) -> Iterator[str]:
    """Half again as much work as there is room."""
    dice, submit_s = random.Random(seed), 0
    for i in range(count):
        submit_s += dice.choice([0, 0, 300, 900, HOUR_S])
        run_s = dice.randint(300, 6 * HOUR_S)
        nodes, gpus = dice.choice([(1, 1), (1, 1), (1, 2), (1, 4), (2, 4), (3, 2), (1, 0)])
        asks = f"{submit_s},{run_s * dice.randint(1, 2)},{run_s},{nodes},{gpus},{dice.choice([50, 101, 201])}"
        where = f"{dice.choice(['here', 'here there', ''])},{dice.choice(['', 'here'])}"
        who = f"{dice.choice('xyz')},{dice.choice(['', '', 'a', 'b', 'c'])},{where}"
        booked = dice.choice([""] * 9 + [str(submit_s + dice.randint(1, 9) * HOUR_S)])
        yield f"j{i},{asks},{who},{dice.choice(['', '', str(run_s // 2)])},{dice.choice('001')},{booked}"


def world(seed: int, tmp: Path) -> tuple[tuple[Pool, ...], tuple[TraceJob, ...], tuple[Quota, ...]]:
    pools = read_nodes(write(tmp / "nodes.csv", NODE_HEADER, (f"n{i},{'here' if i < 3 else 'there'},s,{GPUS}" for i in range(NODES))))
    quotas = read_quotas(write(tmp / "quotas.csv", QUOTA_HEADER, ["x,s,4,12", "y,s,8,", "a,s,4,"]), pools)
    header = f"{JOB_HEADER},slice,clusters,home,idle_from_s,may_evict,booked_s"
    jobs = read_jobs(write(tmp / "jobs.csv", header, lines(seed, 40)), pools, early=True, quotas=quotas, burst_gain_s=900)
    return pools, jobs, quotas


def play(policy: str, seed: int, tmp: Path) -> tuple[Replay, tuple[TraceJob, ...], tuple[Failure, ...]]:
    pools, jobs, quotas = world(seed, tmp)
    failures = tuple(islice(draw_failures(pools, every_days=8 * HOUR_S / DAY_S, repair_s=HOUR_S, seed=seed, since_s=0), 30))
    scheduler = POLICIES[policy](pools, quotas=quotas)
    done = replay(scheduler, jobs, early=True, ignore_priority=False, clock=lambda: 0.0, idle_timeout_s=IDLE_S, failures=failures)
    return done, jobs, failures


def overlapping(runs: Iterable[Run]) -> list[tuple[Run, Run]]:
    ordered = sorted((run for run in runs if run.start_s < run.end_s), key=lambda run: run.start_s)
    return [(one, other) for one, other in pairwise(ordered) if other.start_s < one.end_s]


@OURS
@settings(examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6))
def test_whatever_meets_everybody_has_its_time_within_all_rules_and_is_late_for_a_reason_only(seed: int, ours: str, tmp_path: Path) -> None:
    done, jobs, failures = play(ours, seed, tmp_path)

    ran_s: dict[str, int] = defaultdict(int)
    by_slice: dict[str, list[Run]] = defaultdict(list)
    for run in done.runs:
        ran_s[run.job.id] += run.end_s - run.start_s
        by_slice[run.job.slice or run.job.id].append(run)
    wanted = {job.id: min(job.run_s, (job.idle_from_s or job.run_s) + IDLE_S) for job in jobs if job.id not in done.refused}
    assert ran_s == wanted
    assert most_used(done.runs) <= GPUS
    assert [pair for runs in by_slice.values() for pair in overlapping(runs)] == []
    assert max(held(done.runs, "x", run.start_s) for run in done.runs) <= CEILING
    assert not [run for failure in failures for run in done.runs if stands_on(run, failure)]
    late = {run.job.id for run in done.runs if run.promise_s is None or run.start_s > run.promise_s}
    assert late <= done.repromised
    for id_ in done.refused:
        assert next(job for job in jobs if job.id == id_).booked_s is not None


@OURS
@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_lists_give_the_same_schedule(seed: int, ours: str, tmp_path: Path) -> None:
    assert play(ours, seed, tmp_path)[0] == play(ours, seed, tmp_path)[0]
