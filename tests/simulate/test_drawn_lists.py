"""The lists that the benchmark draws anew are what its page says they are."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.replays.drawn_lists import HOUR_S, draw, pool_of, resample

POOL = pool_of(80)
LISTS = pytest.mark.parametrize("load", [0.7, 1.05])


def test_a_seed_draws_the_same_list_again_and_another_seed_another() -> None:
    first, again, other = (draw(seed=seed, count=200, load=0.9, pool=POOL) for seed in (1, 1, 2))

    assert first == again != other


@LISTS
def test_boxes_arrivals_and_load_are_as_told(load: float) -> None:
    jobs = draw(seed=5, count=4_000, load=load, pool=POOL)

    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
    assert len({job.id for job in jobs}) == 4_000
    assert all(HOUR_S <= job.run_s <= 72 * HOUR_S and job.run_s <= job.reserve_s for job in jobs)
    gangs = [job.node_count for job in jobs if job.node_count > 1]
    assert len(gangs) / len(jobs) == pytest.approx(0.2, abs=0.04)
    assert (min(gangs), max(gangs)) == (2, 16)
    work_gpu_s = sum(job.run_s * job.node_count * (job.gpus_per_node or 8) for job in jobs)
    assert work_gpu_s / (640 * jobs[-1].submit_s) == pytest.approx(load, rel=0.03)
    by_day = [job for job in jobs if 8 <= job.submit_s // HOUR_S % 24 < 18]
    assert len(by_day) > len(jobs) / 2


def test_a_resampled_list_has_the_boxes_of_the_old_one_at_its_times() -> None:
    jobs = draw(seed=5, count=100, load=0.9, pool=POOL)

    made = resample(jobs, seed=1, count=60)

    assert [job.submit_s for job in made] == [job.submit_s for job in jobs[:60]]
    assert [job.id for job in made] == [f"d{number:05}" for number in range(60)]
    old = Counter((job.run_s, job.node_count) for job in jobs)
    assert {(job.run_s, job.node_count) for job in made} <= old.keys()
    assert [job.run_s for job in made] != [job.run_s for job in jobs[:60]]
