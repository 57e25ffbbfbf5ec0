"""Other estimators of a newcomer's wait stand beside ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.snapshot import Pool, Slot
from simulation.estimators import ESTIMATORS, FADING_S, Estimators
from simulation.failures import Failure
from simulation.joblist import TraceJob, request_of
from simulation.replay import POLICIES, Replay, replay
from simulation.report import report
from tests.simulate.lists import random_jobs
from tests.simulate.test_replay import lists


def told(policy: str, pools: tuple[Pool, ...], jobs: tuple[TraceJob, ...], *failures: Failure) -> Replay:
    scheduler, estimators = POLICIES[policy](pools), Estimators(pools)
    clocked = {"clock": lambda: 0.0, "estimators": estimators}
    return replay(scheduler, jobs, early=False, ignore_priority=False, failures=failures, **clocked)  # type: ignore[arg-type]


def test_slurm_adds_the_work_that_waits_to_the_first_start_that_the_running_leave(tmp_path: Path) -> None:
    lines = ("run,0,100,100,3,4,101,x", "low,5,50,50,3,4,50,x", "same,6,60,60,1,4,101,x", "new,10,20,20,2,4,101,x")
    pools, jobs = lists(tmp_path, *lines)

    done = told("fifo", pools, jobs)

    # The running leave 100; ahead of it are 60 x 4 GPU-seconds on 12 GPUs, and not those of lower priority.
    assert {run.job.id: run.estimates["slurm"] for run in done.runs} == {"run": 0, "low": 95, "same": 94, "new": 90 + 20}


def test_slurm_knows_of_nodes_that_are_away(tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, "new,10,20,20,3,4,101,x")

    (run,) = told("fifo", pools, jobs, Failure(5, 45, "n1")).runs

    assert run.estimates["slurm"] == run.wait_s == 35


def test_delays_are_those_of_whoever_started_last_and_of_the_oldest_that_waits(tmp_path: Path) -> None:
    lines = ("run,0,100,100,3,4,101,x", "next,10,50,50,3,4,101,x", "late,110,50,50,3,4,101,x", "last,130,50,50,3,4,101,x")
    pools, jobs = lists(tmp_path, *lines)

    runs = told("fifo", pools, jobs).runs

    assert {run.job.id: run.estimates["last_wait"] for run in runs} == {"run": 0, "next": 0, "late": 90, "last": 90}
    assert {run.job.id: run.estimates["head_wait"] for run in runs} == {"run": 0, "next": 0, "late": 0, "last": 20}


def test_throughput_is_what_started_of_late(tmp_path: Path) -> None:
    """One start every ten seconds for a long time; then thirty are to wait for thirty such steps."""
    pools, (job,) = lists(tmp_path, "a,0,10,10,3,4,101,x")
    estimators = Estimators(pools)

    def submit(at_s: int) -> int:
        request = request_of(job, rank=0, length_s=10, priority=0)
        return estimators.submitted(request, at_s)["depth_over_throughput"]

    for at_s in range(0, 5 * FADING_S, 10):
        estimate_s = submit(at_s)
        estimators.started("a", Slot("c/s", at_s, ("n0", "n1", "n2")))
        estimators.ended("a", at_s + 10)

    assert estimate_s == pytest.approx(10, abs=1)
    # A month without a start: nobody knows, and nothing breaks.
    assert submit(5 * FADING_S + 30 * 86_400) > 10**6


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_all_are_reported_beside_ours_over_those_that_waited(policy: str, tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, *random_jobs(5, 80))

    done = told(policy, pools, jobs)

    result = report(done, pools)["estimators"]
    assert list(result) == ["waited", *ESTIMATORS, "promise", "expected", "p50"]
    assert result["waited"] == sum(run.wait_s > 0 for run in done.runs)
    assert all(list(result[name]) == ["within_1min", "within_10min", "median_abs_error_s"] for name in result if name != "waited")
    assert all(0 <= result[name]["within_1min"] <= result[name]["within_10min"] for name in ESTIMATORS)
    is_promised = policy in {"egs", "conservative"}
    assert all((result[name]["within_1min"] is not None) == is_promised for name in ("promise", "expected", "p50"))
