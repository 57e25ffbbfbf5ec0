"""A replay is what the planner would have done, tick by tick."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.board.board import Started
from planner.causes import PlannedEviction
from planner.engine import plan
from planner.snapshot import Memory, PlanPolicy, PolicyName, Pool, Quota, Request, Running, Snapshot, Window
from simulation.failures import Failure
from simulation.joblist import TraceJob, read_jobs, read_nodes, request_of
from simulation.replay import POLICIES, Replay, replay
from simulation.report import report, schedule_csv
from tests.effort import examples
from tests.planner.build import ended, remembered, run, stored
from tests.simulate.checker import check
from tests.simulate.lists import random_jobs, write_jobs, write_nodes

# Each day: test_command.py, which replays a list, and tests/planner, whose rules it shows
pytestmark = pytest.mark.rotates

OURS_OF = {"egs": PolicyName.GUARDED, "conservative": PolicyName.CONSERVATIVE}
OURS = pytest.mark.parametrize("ours", sorted(OURS_OF))
MODES = pytest.mark.parametrize("early", [False, True], ids=["exact", "early"])
SLOW = settings(examples(64), suppress_health_check=[HealthCheck.function_scoped_fixture])


class Stored:
    """The planner as the allocator uses it: a snapshot at every event; slots, promises and what is remembered stored in between."""

    def __init__(self, pools: tuple[Pool, ...], name: PolicyName, quotas: tuple[Quota, ...] = ()) -> None:
        self.pools = pools
        self.quotas = quotas
        self.evictions: tuple[PlannedEviction, ...] = ()
        self.policy = PlanPolicy(name=name)
        self.memory = Memory()
        self.started_s: dict[str, int] = {}
        self.queue: tuple[Request, ...] = ()
        self.running: dict[str, Running] = {}
        self.promises: dict[str, int | None] = {}
        self.has_freed = False

    def submit(self, request: Request, now_s: int) -> None:
        self.queue += (request,)

    def release(self, request_id: str, now_s: int) -> None:
        box, start_s = self.running.pop(request_id), self.started_s[request_id]
        self.has_freed |= box.end_s > now_s
        self.memory = ended(self.memory, request_id, now_s=now_s, ran_s=now_s - start_s, booked_s=box.end_s - start_s)

    def close(self, failure: Failure) -> None:
        """The tick plans anew after it."""
        self.has_freed = True
        window = Window(failure.at_s, failure.until_s)
        self.pools = tuple(
            replace(pool, nodes=tuple(replace(node, closed=(window,)) if node.id == failure.node else node for node in pool.nodes))
            for pool in self.pools
        )

    def reopen(self, failure: Failure) -> None:
        """Its window is over."""

    def tick(self, now_s: int) -> list[Started]:
        snapshot = Snapshot(now_s, self.pools, tuple(self.running.values()), self.queue, self.policy, self.memory, self.quotas)
        snapshot = replace(snapshot, has_freed=self.has_freed)
        made = plan(snapshot)
        self.has_freed = False
        self.evictions = made.evictions
        for victim in (victim for eviction in made.evictions for victim in eviction.victims):
            self.running[victim.id] = replace(self.running[victim.id], end_s=victim.frees_s)
        self.memory = remembered(snapshot, made)
        going = {placement.id for placement in made.starts}
        queue = stored(snapshot, made)
        self.promises |= {request.id: request.promise_s for request in queue}
        self.started_s |= dict.fromkeys(going, now_s)
        self.queue = tuple(request for request in queue if request.id not in going)
        self.running |= {request.id: run(request) for request in queue if request.id in going}
        by_id = {request.id: request for request in queue}
        return [Started(by_id[p.id], p.slot, by_id[p.id].promise_s or 0) for p in made.starts if p.slot]

    def next_start_s(self) -> int | None:
        return min((request.slot.start_s for request in self.queue if request.slot), default=None)

    def promise_s(self, request_id: str) -> int | None:
        return self.promises[request_id]

    def refused(self) -> list[str]:
        return []

    def evicted(self) -> list[PlannedEviction]:
        return list(self.evictions)

    def repromised(self) -> frozenset[str]:
        return frozenset()

    def forecast(self, request_id: str) -> None:
        """A forecast is no matter of the schedule."""


def lists(tmp: Path, *lines: str) -> tuple[tuple[Pool, ...], tuple[TraceJob, ...]]:
    pools = read_nodes(write_nodes(tmp / "nodes.csv"))
    return pools, read_jobs(write_jobs(tmp / "jobs.csv", *lines), pools, early=True)


def played(policy: str, pools: tuple[Pool, ...], jobs: tuple[TraceJob, ...], *, early: bool, equal: bool = False) -> Replay:
    ticks: Iterator[int] = itertools.count()
    return replay(POLICIES[policy](pools), jobs, early=early, ignore_priority=equal, clock=lambda: float(next(ticks)))


def starts(done: Replay) -> dict[str, int]:
    return {run.job.id: run.start_s for run in done.runs}


@MODES
@OURS
@SLOW
@given(seed=st.integers(0, 10**6), equal=st.booleans())
def test_it_gives_the_schedule_of_a_plan_at_every_event(seed: int, equal: bool, ours: str, early: bool, tmp_path: Path) -> None:
    """They agree to the second and the node, promises too: the slack of all newcomers is the same, so what is remembered is enough."""
    pools, jobs = lists(tmp_path, *random_jobs(seed, 40))

    by_plans = replay(Stored(pools, OURS_OF[ours]), jobs, early=early, ignore_priority=equal, clock=lambda: 0.0)

    by_one_board = played(ours, pools, jobs, early=early, equal=equal)
    assert {run.job.id: replace(run, forecast=None) for run in by_one_board.runs} == {run.job.id: run for run in by_plans.runs}


@OURS
@MODES
@SLOW
@given(seed=st.integers(0, 10**6), equal=st.booleans())
def test_nobody_who_promises_starts_anybody_late(seed: int, equal: bool, ours: str, early: bool, tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, *random_jobs(seed, 60))

    done = played(ours, pools, jobs, early=early, equal=equal)

    assert all(run.promise_s is not None and run.start_s <= run.promise_s for run in done.runs)
    estimate = report(done, pools)["estimate"]
    assert (estimate["promise_kept"], estimate["repromised"]) == (1.0, 0)


def test_in_a_long_queue_some_are_promised_slack_and_others_overtake_them(tmp_path: Path) -> None:
    """Otherwise the statements above would be about conservative backfill."""
    pools, jobs = lists(tmp_path, *random_jobs(3, 400))

    ours, conservative = (played(policy, pools, jobs, early=False, equal=True) for policy in ("egs", "conservative"))

    margins = [run.promise_s - run.start_s for run in ours.runs if run.promise_s is not None]
    assert sum(margin > 0 for margin in margins) > 40
    mean = [report(done, pools)["wait_s"]["mean"] for done in (ours, conservative)]
    assert mean[0] < mean[1]


@MODES
@pytest.mark.parametrize("policy", sorted(POLICIES))
@SLOW
@given(seed=st.integers(0, 10**6))
def test_an_independent_checker_finds_nothing_wrong_with_any_schedule(seed: int, policy: str, early: bool, tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, *random_jobs(seed, 60))

    (tmp_path / "s.csv").write_text(schedule_csv(played(policy, pools, jobs, early=early), pools))

    assert check(tmp_path / "nodes.csv", tmp_path / "jobs.csv", tmp_path / "s.csv") == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("a,0,10,n0,4\nb,9,19,n0,4", ["n0 is over-full"]),
        ("a,0,10,n0,4\nb,9,19,n0,1", ["b has the wrong GPUs", "n0 is over-full"]),
        ("a,0,10,n0,4\nb,10,19,n0,4", ["b does not run at its full length"]),
        ("b,4,14,n0,4\na,14,24,n0,4", ["b starts before it was submitted"]),
        ("a,0,10,n0,4", ["b never ran"]),
        ("a,0,10,n0,4\nb,10,20,n0 n0,4", ["b has the wrong nodes", "n0 is over-full"]),
        ("a,0,10,n0,4\nb,10,20,n0,4\nb,20,30,n0,4", ["b is unknown or ran twice"]),
        ("a,0,10,n0,4\nb,10,20,n0,4", []),
    ],
)
def test_the_checker_finds_what_is_wrong(line: str, problem: list[str], tmp_path: Path) -> None:
    nodes = write_nodes(tmp_path / "nodes.csv", count=1)
    jobs = write_jobs(tmp_path / "jobs.csv", "a,0,10,10,1,4,101,x", "b,5,10,10,1,4,101,x")
    (tmp_path / "s.csv").write_text(f"id,start_s,end_s,nodes,gpus_per_node\n{line}\n")

    assert check(nodes, jobs, tmp_path / "s.csv") == problem


# Three nodes of four GPUs. A long box takes two of them, a gang wants three, two short boxes come last.
RIVALS = ("long,0,100,100,2,4,101,x", "gang,1,100,100,3,4,101,x", "fits,2,90,90,1,4,101,x", "fits_not,3,150,150,1,4,101,x")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fifo", {"long": 0, "gang": 100, "fits": 200, "fits_not": 200}),
        ("easy", {"long": 0, "gang": 100, "fits": 2, "fits_not": 200}),
        ("conservative", {"long": 0, "gang": 100, "fits": 2, "fits_not": 200}),
        ("egs", {"long": 0, "gang": 100, "fits": 2, "fits_not": 200}),
        ("sjf", {"long": 0, "gang": 100, "fits": 2, "fits_not": 200}),
        ("least-work", {"long": 0, "gang": 242, "fits": 2, "fits_not": 92}),
    ],
)
def test_who_starts_before_a_gang_that_waits(policy: str, expected: dict[str, int], tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, *RIVALS)

    assert starts(played(policy, pools, jobs, early=False)) == expected


def test_easy_keeps_the_place_of_the_head_only(tmp_path: Path) -> None:
    """The second in line is overtaken by a long box that conservative backfill holds back for its sake."""
    lines = ("run,0,100,100,2,4,101,x", "head,1,50,50,2,4,101,x", "second,2,50,50,3,4,101,x", "long,3,200,200,1,4,101,x")
    pools, jobs = lists(tmp_path, *lines)

    easy, conservative = (starts(played(policy, pools, jobs, early=False)) for policy in ("easy", "conservative"))

    assert easy == {"run": 0, "head": 100, "second": 203, "long": 3}
    assert conservative == {"run": 0, "head": 100, "second": 150, "long": 200}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_priority_goes_first_unless_it_is_ignored(policy: str, tmp_path: Path) -> None:
    lines = ("run,0,10,10,3,4,101,x", "low,0,10,10,3,4,50,x", "high,0,10,10,3,4,201,x")
    pools, jobs = lists(tmp_path, *lines)

    assert starts(played(policy, pools, jobs, early=False)) == {"high": 0, "run": 10, "low": 20}
    assert starts(played(policy, pools, jobs, early=False, equal=True)) == {"run": 0, "low": 10, "high": 20}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_with_early_ends_the_policy_knows_only_what_is_reserved(policy: str, tmp_path: Path) -> None:
    """The short box would fit before the gang if the planner knew how soon it ends. It does not; by work it is the smaller one."""
    lines = ("long,0,200,100,2,4,101,x", "gang,1,100,100,3,4,101,x", "short,2,250,20,1,4,101,x")
    pools, jobs = lists(tmp_path, *lines)

    done = played(policy, pools, jobs, early=True)

    short_s = 2 if policy == "least-work" else 200
    assert starts(done) == {"long": 0, "gang": 100, "short": short_s}
    assert {run.job.id: run.end_s for run in done.runs} == {"long": 100, "gang": 200, "short": short_s + 20}
    promised = {run.job.id: run.promise_s for run in done.runs}
    assert promised == ({"long": 0, "gang": 200, "short": 300} if policy in OURS_OF else dict.fromkeys(promised))


def test_the_report_measures_what_happened(tmp_path: Path) -> None:
    lines = ("long,100,200,100,2,4,101,x", "gang,101,100,100,3,4,50,x", "short,102,250,20,1,4,50,x")
    pools, jobs = lists(tmp_path, *lines)

    result = report(played("egs", pools, jobs, early=True), pools)

    # Starts at 100, 200, 300; promised 100, 300, 400.
    assert result["jobs"] == 3
    assert result["wait_s"] == {"mean": 99.0, "p50": 99, "p90": pytest.approx(178.2), "p99": pytest.approx(196.02), "max": 198}
    assert result["wait_s_by_priority"]["50"] | {"p90": 0, "p99": 0} == {
        "jobs": 2, "mean": 148.5, "p50": 148.5, "p90": 0, "p99": 0, "max": 198,
    }  # fmt: skip
    assert result["makespan_s"] == 220
    assert result["utilization"] == pytest.approx((2 * 4 * 100 + 3 * 4 * 100 + 4 * 20) / (12 * 220))
    assert result["estimate"] | {"basis": ""} == {
        "basis": "",
        "waited": 2,
        "p50_coverage": 1.0,
        "promise_kept": 1.0,
        "repromised": 0,
        "promised_wait_s": {"mean": pytest.approx((0 + 199 + 298) / 3)},
        "margin_s": {"p50": 100, "p90": 100},
        "p90_coverage": 1.0,
        "p90_width_s": {"p50": 0.0},
        "within_1min": pytest.approx(1 / 3),
        "within_10min": 1.0,
        "median_abs_error_s": 100,
    }
    # The clock of this test ticks once a call.
    assert result["plan_s"] == {"mean": 1.0, "p99": 1.0, "max": 1.0}


def test_whoever_promises_nothing_is_not_measured_by_promises(tmp_path: Path) -> None:
    pools, jobs = lists(tmp_path, *RIVALS)

    estimate = report(played("fifo", pools, jobs, early=False), pools)["estimate"]

    assert estimate["basis"] == "no promise"
    assert estimate["promise_kept"] is estimate["p90_coverage"] is estimate["median_abs_error_s"] is None


def test_no_job_waits_for_another_of_its_slice(tmp_path: Path) -> None:
    _, jobs = lists(tmp_path, *RIVALS)

    assert {request_of(job, rank=0, length_s=1, priority=0).slice for job in jobs} == {""}
    assert request_of(replace(jobs[0], project="y"), rank=0, length_s=1, priority=0).project == "y"
