"""Quotas in a replay: what is borrowed goes back, ceilings hold, nothing is lost, and a wrong list is told by its line."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from planner.snapshot import Pool, Quota
from simulation.joblist import BadList, TraceJob, read_jobs, read_nodes, read_quotas
from simulation.replay import POLICIES, Replay, Run, replay
from simulation.report import report
from tests.effort import IS_SOAK
from tests.simulate.lists import JOB_HEADER, write, write_nodes
from tests.simulate.test_replay import OURS, OURS_OF, Stored

# Each day: tests/planner/sharing/test_quotas.py
pytestmark = pytest.mark.rotates

QUOTA_HEADER = "owner,shape,guaranteed_gpus,most_gpus"
HOUR_S = 3600


def lists(tmp: Path, jobs: Sequence[str], quotas: Sequence[str]) -> tuple[tuple[Pool, ...], tuple[TraceJob, ...], tuple[Quota, ...]]:
    """There are three nodes of four GPUs."""
    pools = read_nodes(write_nodes(tmp / "nodes.csv"))
    read = read_quotas(write(tmp / "quotas.csv", QUOTA_HEADER, quotas), pools)
    rows = write(tmp / "jobs.csv", f"{JOB_HEADER},slice,may_evict", jobs)
    return pools, read_jobs(rows, pools, early=True, quotas=read), read


def played(policy: str, pools: tuple[Pool, ...], jobs: tuple[TraceJob, ...], quotas: tuple[Quota, ...], *, early: bool = False) -> Replay:
    return replay(POLICIES[policy](pools, quotas=quotas), jobs, early=early, ignore_priority=False, clock=lambda: 0.0)


def random_jobs(seed: int, count: int) -> list[str]:
    """Draws jobs of two projects and some slices, hours long, half again as much work as there is room."""
    dice = random.Random(seed)
    lines, submit_s = [], 0
    for i in range(count):
        submit_s += dice.choice([0, 0, 600, 1800, 2 * HOUR_S])
        run_s = dice.randint(300, 6 * HOUR_S)
        nodes, gpus = dice.choice([(1, 1), (1, 2), (1, 4), (2, 4), (3, 2), (1, 0)])
        who = f"{dice.choice([50, 101, 201])},{dice.choice('xy')},{dice.choice(['', '', 'a', 'b'])},{dice.choice('01')}"
        lines.append(f"j{i},{submit_s},{run_s * dice.randint(1, 3)},{run_s},{nodes},{gpus},{who}")
    return lines


def held(runs: Sequence[Run], owner: str, at_s: int) -> int:
    live = (run for run in runs if run.start_s <= at_s < run.end_s and owner in {run.job.project, run.job.slice})
    return sum(len(run.nodes) * (run.job.gpus_per_node or 4) for run in live)


def starts_and_ends(done: Replay) -> list[tuple[str, int, int, tuple[str, ...]]]:
    return [(run.job.id, run.start_s, run.end_s, run.nodes) for run in done.runs]


@OURS
def test_what_was_borrowed_goes_back_after_notice_and_what_was_left_runs_later(ours: str, tmp_path: Path) -> None:
    jobs = [f"a{i},0,{9 * HOUR_S},{9 * HOUR_S},1,4,101,x,,0" for i in range(3)]
    pools, read, quotas = lists(tmp_path, [*jobs, f"b,{HOUR_S},{HOUR_S},{HOUR_S},1,4,50,y,,0"], ["x,s,8,", "y,s,4,"])

    done = played(ours, pools, read, quotas)

    back_s = HOUR_S + 600  # the notice
    assert [(run.start_s, run.end_s) for run in done.runs if run.job.id == "b"] == [(back_s, back_s + HOUR_S)]
    assert next((run.start_s, run.end_s) for run in done.runs if run.job.id == "a2") == (0, back_s)
    result = report(done, pools)
    assert result["evictions"] == {"count": 1, "victims": 1, "lost_gpu_s": 4 * HOUR_S}
    assert result["wait_s_by_project"]["y"]["mean"] == 600


@OURS
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("most", ["", "8"])
@pytest.mark.parametrize("seed", range(8 if IS_SOAK else 2))
def test_everybody_has_its_time_and_no_ceiling_is_passed(seed: int, early: bool, most: str, ours: str, tmp_path: Path) -> None:
    rows = [row for row in random_jobs(seed, 30) if not most or int(row.split(",")[4]) * int(row.split(",")[5] or 4) <= 8]
    pools, jobs, quotas = lists(tmp_path, rows, [f"x,s,4,{most}", "y,s,8,"])

    done = played(ours, pools, jobs, quotas, early=early)

    spans: dict[str, int] = defaultdict(int)
    for run in done.runs:
        spans[run.job.id] += run.end_s - run.start_s
    assert spans == {job.id: job.run_s for job in jobs}
    if most:
        assert max(held(done.runs, "x", run.start_s) for run in done.runs) <= int(most)


@pytest.mark.parametrize("seed", range(12 if IS_SOAK else 3))
def test_it_gives_the_schedule_of_a_plan_at_every_event(seed: int, tmp_path: Path) -> None:
    """Conservative: what is remembered for slack may differ once boxes were evicted, and with it the promises."""
    pools, jobs, quotas = lists(tmp_path, random_jobs(seed, 25), ["x,s,4,", "y,s,8,"])

    by_plans = replay(Stored(pools, OURS_OF["conservative"], quotas), jobs, early=True, ignore_priority=False, clock=lambda: 0.0)

    by_one_board = played("conservative", pools, jobs, quotas, early=True)
    assert by_one_board.evictions == by_plans.evictions
    assert starts_and_ends(by_one_board) == starts_and_ends(by_plans)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["x,t,4,"], "line 2: no node has the shape 't'"),
        (["x,s,4,3"], "line 2: most_gpus is 3, but must be at least 4"),
        (["x,s,-1,"], "line 2: guaranteed_gpus is -1"),
        (["x,s,4,", "x,s,2,"], "line 3: 'x' has two quotas of 's'"),
        (["x,s,0,2"], "job a can never start: it wants 1 nodes with 4 GPUs each, but at most 1 with 2 each could start."),
    ],
)
def test_a_wrong_list_is_told_by_its_line(rows: list[str], told: str, tmp_path: Path) -> None:
    with pytest.raises(BadList) as caught:
        lists(tmp_path, [f"a,0,{HOUR_S},{HOUR_S},1,4,101,x,,0"], rows)
    assert told in str(caught.value)
