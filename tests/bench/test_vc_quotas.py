"""The benchmark of guarantees counts right, on lists small enough to count by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bench.replays.drawn_lists import draw, pool_of
from bench.replays.vc_quotas import NOTICE_S, entitled_runs, fairness, figures_of, guarantees, jain
from planner.snapshot import Quota
from simulation.joblist import TraceJob
from simulation.replay import POLICIES, Replay, Run, replay

POOL = pool_of(2)
SIZES = {node.id: node.gpu_count for node in POOL.nodes}
HOUR_S = 3600


def job(id_: str, project: str, submit_s: int, run_s: int, *, nodes: int = 1, gpus: int = 8) -> TraceJob:
    return TraceJob(id_, submit_s, run_s, run_s, nodes, gpus, 101, project, (POOL.id,))


def run(of: TraceJob, start_s: int) -> Run:
    return Run(of, of.submit_s, start_s, start_s + of.run_s, ("n0000",), None)


def played(jobs: Sequence[TraceJob], quotas: tuple[Quota, ...]) -> Replay:
    return replay(POLICIES["egs"]((POOL,), quotas=quotas), jobs, early=False, ignore_priority=True, clock=lambda: 0.0)


def test_all_gpus_are_guaranteed_in_proportion_to_use_and_nobody_gets_none() -> None:
    jobs = [job("a", "a", 0, 300), job("b", "b", 0, 100), job("c", "c", 0, 1, gpus=1)]

    given = guarantees(jobs, (POOL,))

    assert [(quota.owner, quota.guaranteed, quota.most) for quota in given] == [("a", 11, None), ("b", 4, None), ("c", 1, None)]


@pytest.mark.parametrize("seed", range(5))
def test_guarantees_add_up_to_the_pool(seed: int) -> None:
    pool = pool_of(30)
    jobs = [replace(each, project=f"p{i * i % 7}") for i, each in enumerate(draw(seed=seed, count=100, load=1, pool=pool))]

    assert sum(quota.guaranteed for quota in guarantees(jobs, (pool,))) == 240


def test_jains_index_goes_from_one_part_to_all_equal() -> None:
    assert jain([3, 3, 3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert jain([1, 0.5]) == pytest.approx(0.9)
    assert jain([0, 0]) == 1


def test_entitled_is_who_fits_into_its_guarantee_beside_what_it_holds_and_waits_for() -> None:
    runs = [run(job("first", "a", 0, 100), 50), run(job("beyond", "a", 10, 100), 60), run(job("after", "a", 200, 100), 200)]

    found = entitled_runs(runs, SIZES, {"a": 8})

    assert [each.job.id for each in found] == ["first", "after"]


def test_fairness_looks_only_while_somebody_waits() -> None:
    holds, waits = run(job("a", "a", 0, 1200, nodes=2), 0), run(job("b", "b", 600, 600), 1200)
    last = run(job("c", "c", 6000, 10), 6000)

    told = fairness([holds, waits, last], SIZES, {"a": 8, "b": 8, "c": 0})

    assert (told.met, told.worst) == (0.5, 0)  # at 600 s: a has its 8 and 8 of b's
    assert told.jain == 0.5


def test_a_guarantee_brings_its_owner_in_after_the_notice_and_the_cost_is_told() -> None:
    jobs = [job("long", "a", 0, 20 * HOUR_S), job("borrowed", "a", 0, 20 * HOUR_S), job("own", "b", HOUR_S, HOUR_S)]
    quotas = (Quota("a", POOL.shape, 8), Quota("b", POOL.shape, 8))

    figures = figures_of("list", played(jobs, quotas), played(jobs, ()), (POOL,), quotas)

    told = {figure.case.removeprefix("list: "): (figure.ours, figure.peer_value) for figure in figures}
    assert told["their GPUs taken back after, mean"][0] == NOTICE_S
    assert told["the same without the notice, mean"][0] == 0
    assert told["wait of those entitled when they came, mean"] == (NOTICE_S / 2, 19 * HOUR_S / 2)
    assert told["evictions in 1,000 jobs"][0] == pytest.approx(1000 / 3)
    assert told["work lost if nobody saved any, of all work"][0] == pytest.approx(100 / 41)
