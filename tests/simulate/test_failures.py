"""Nodes that fail in a replay: nothing is lost, nobody stands on a dead node, and broken promises are counted as such."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.snapshot import PolicyName, Pool
from simulation.failures import DAY_S, Failure, draw_failures
from simulation.joblist import TraceJob, read_nodes
from simulation.replay import POLICIES, Replay, Run, replay
from simulation.report import report
from tests.simulate.lists import random_jobs, write_nodes
from tests.simulate.test_replay import MODES, SLOW, Stored, lists

# Each day: tests/simulation, and tests/planner/promises/test_failure_reserve.py
pytestmark = pytest.mark.rotates

EACH = pytest.mark.parametrize("policy", sorted(POLICIES))


def failing(policy: str, pools: tuple[Pool, ...], jobs: tuple[TraceJob, ...], *failures: Failure, early: bool = False) -> Replay:
    return replay(POLICIES[policy](pools), jobs, early=early, ignore_priority=True, clock=lambda: 0.0, failures=failures)


def some_failures(pools: tuple[Pool, ...], seed: int) -> tuple[Failure, ...]:
    return tuple(islice(draw_failures(pools, every_days=600 / DAY_S, repair_s=100, seed=seed, since_s=0), 30))


def spans(done: Replay) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for run in done.runs:
        found[run.job.id].append((run.start_s, run.end_s))
    return dict(found)


@EACH
def test_what_ran_on_a_node_that_fails_comes_back_for_what_is_left_with_its_old_rank(policy: str, tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, "a,0,100,100,3,4,101,x", "b,10,70,70,3,4,101,x")

    done = failing(policy, pools, jobs, Failure(40, 90, "n0"))

    # Where b was promised to start at 100, what is left of a may not overtake it.
    is_promised = policy in {"egs", "conservative"}
    assert spans(done)["a"] == [(0, 40), (160, 220) if is_promised else (90, 150)]
    assert spans(done)["b"] == [(90, 160) if is_promised else (150, 220)]


def test_a_promise_on_a_node_that_fails_moves_and_is_counted_as_broken(tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, "a,0,100,100,1,4,101,x", "b,0,300,300,2,4,101,x", "c,10,50,50,1,4,101,x")

    done = failing("conservative", pools, jobs, Failure(60, 500, "n0"))

    assert spans(done) == {"a": [(0, 60), (300, 340)], "b": [(0, 300)], "c": [(300, 350)]}
    result = report(done, pools)
    assert result["failures"] == {"count": 1, "repromised_count": 1, "killed_count": 1}
    # Four promises were made: to a twice, to b and to c, who was promised 100.
    assert (result["estimate"]["promise_kept"], result["estimate"]["repromised"]) == (0.75, 1)
    # All the time that a stood in the queue is its wait.
    assert result["jobs"] == 3
    assert result["wait_s"]["mean"] == pytest.approx((240 + 0 + 290) / 3)


@EACH
@MODES
@SLOW
@given(seed=st.integers(0, 10**6))
def test_every_job_runs_its_full_time_on_nodes_that_are_there(seed: int, policy: str, early: bool, tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, *random_jobs(seed, 40))
    failures = some_failures(pools, seed)

    done = failing(policy, pools, jobs, *failures, early=early)

    ran_s: dict[str, int] = defaultdict(int)
    for run in done.runs:
        ran_s[run.job.id] += run.end_s - run.start_s
    assert ran_s == {job.id: job.run_s for job in jobs}
    assert not [(run, failure) for failure in failures for run in done.runs if stands_on(run, failure)]
    assert most_used(done.runs) <= 4


@MODES
@pytest.mark.parametrize("policy", ["egs", "conservative"])
@SLOW
@given(seed=st.integers(0, 10**6))
def test_nobody_is_late_but_by_a_failure_that_moved_its_promise(seed: int, policy: str, early: bool, tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, *random_jobs(seed, 60))

    done = failing(policy, pools, jobs, *some_failures(pools, seed), early=early)

    late = {run.job.id for run in done.runs if run.promise_s is None or run.start_s > run.promise_s}
    assert late <= done.repromised


@MODES
@SLOW
@given(seed=st.integers(0, 10**6))
def test_slots_are_mended_as_a_plan_from_what_is_stored_would(seed: int, early: bool, tmp_path: Path) -> None:
    """The plan has no slack, which rests on memories that a failure blurs."""
    pools, jobs = lists(tmp_path, *random_jobs(seed, 40))
    failures = some_failures(pools, seed)

    by_plans = replay(Stored(pools, PolicyName.CONSERVATIVE), jobs, early=early, ignore_priority=True, clock=lambda: 0.0, failures=failures)

    assert spans(failing("conservative", pools, jobs, *failures, early=early)) == spans(by_plans)


def test_failures_hang_on_the_seed_alone_and_come_as_often_as_told(tmp_path: Path) -> None:
    pools = read_nodes(write_nodes(tmp_path / "nodes.csv", count=20))

    def drawn(seed: int) -> list[Failure]:
        return list(islice(draw_failures(pools, every_days=30, repair_s=14_400, seed=seed, since_s=1_000), 2_000))

    first = drawn(1)
    assert first == drawn(1) != drawn(2)
    assert [failure.at_s for failure in first] == sorted(failure.at_s for failure in first)
    assert first[-1].at_s == pytest.approx(30 * DAY_S * 2_000 / 20, rel=0.1)
    assert {failure.until_s - failure.at_s for failure in first} == {14_400}
    for node in {failure.node for failure in first}:
        of_node = [failure for failure in first if failure.node == node]
        assert all(before.until_s < after.at_s for before, after in pairwise(of_node))


def stands_on(run: Run, failure: Failure) -> bool:
    return failure.node in run.nodes and run.start_s < failure.until_s and run.end_s > failure.at_s


def most_used(runs: Sequence[Run]) -> int:
    """Returns the most GPUs that any node has in use at any moment."""
    most = 0
    for run in runs:
        for node in run.nodes:
            there = (other for other in runs if node in other.nodes and other.start_s <= run.start_s < other.end_s)
            most = max(most, sum(other.job.gpus_per_node or 4 for other in there))
    return most
