"""EGS compares a project's recent use with its share."""

from __future__ import annotations

import pytest
from pytest_django.fixtures import Settings

from gpr.quotas.fairness import CREDIT_S, STEPS_MOST, box_use, decayed, held_gpus, shares_of
from planner.snapshot import Quota, Running

HOUR, DAY = 3600, 86_400
NOW_S = 100 * DAY
GPU_COUNTS = {f"n{i}": 8 for i in range(4)}


@pytest.fixture(autouse=True)
def _a_week(settings: Settings) -> None:
    settings.EGS_FAIRNESS_HALF_LIFE_S = 7 * DAY


def box(project: str, *, nodes: int = 1, gpus_per_node: int = 0, began_s: int) -> Running:
    names = tuple(f"n{i}" for i in range(nodes))
    return Running("r", "s", project, 101, "p0", names, gpus_per_node, NOW_S + HOUR, started_s=NOW_S - began_s)


def shares(*running: Running, quotas: tuple[Quota, ...] = (), **ended: float) -> dict[str, int]:
    return shares_of(ended, held_gpus(running, GPU_COUNTS), quotas, NOW_S)


def test_half_of_what_was_used_is_forgotten_after_a_half_life() -> None:
    assert decayed(1000, 7 * DAY) == pytest.approx(500)
    assert decayed(1000, 14 * DAY) == pytest.approx(250)
    assert decayed(1000, -5) == 1000


def test_a_running_box_counts_second_by_second() -> None:
    """The closed form against the sum that it stands for."""
    for ran_s in (0, 60, 5 * HOUR, 30 * DAY):
        step_s = max(ran_s // 2000, 1)
        summed = sum(decayed(4 * step_s, age_s + step_s / 2) for age_s in range(0, ran_s, step_s))
        assert box_use(4, ran_s) == pytest.approx(summed, rel=1e-3)


def test_one_that_ended_long_ago_fades_as_if_it_had_been_counted_second_by_second() -> None:
    assert decayed(box_use(4, 10 * DAY), 3 * DAY) == pytest.approx(box_use(4, 13 * DAY) - box_use(4, 3 * DAY))


def test_without_any_use_nobody_is_ahead() -> None:
    assert shares(a=0, b=0, c=0) == {"a": 0, "b": 0, "c": 0}


def test_a_project_alone_has_its_share() -> None:
    assert shares(a=10**9) == {"a": 0}


def test_two_steps_are_a_factor_of_two() -> None:
    base = CREDIT_S * 1000
    told = shares(a=base, b=2 * base, c=4 * base, d=base)

    assert told["b"] - told["a"] == told["c"] - told["b"] == 2
    assert told["a"] == told["d"] < 0 < told["c"]


def test_projects_near_each_other_are_equal() -> None:
    assert set(shares(a=1_000_000, b=1_100_000, c=950_000).values()) == {0}


def test_the_first_minutes_of_a_new_system_order_nobody() -> None:
    assert set(shares(box("a", nodes=1, gpus_per_node=8, began_s=60), a=0, b=0).values()) == {0}
    assert shares(box("a", nodes=1, gpus_per_node=8, began_s=12 * HOUR), a=0, b=0)["a"] > 0


def test_more_is_due_to_whom_more_is_guaranteed() -> None:
    quotas = (Quota("a", "H100-80GB", 20), Quota("a", "A100-80GB", 10), Quota("b", "H100-80GB", 10), Quota("slice-of-b", "H100-80GB", 10))

    told = shares(a=3e6, b=1e6)

    assert told["a"] > told["b"]
    assert set(shares(quotas=quotas, a=3e6, b=1e6).values()) == {0}


def test_who_is_guaranteed_nothing_weighs_as_one_gpu() -> None:
    assert set(shares(quotas=(Quota("a", "H100-80GB", 9),), a=9e6, b=1e6).values()) == {0}


def test_whole_nodes_count_all_their_gpus() -> None:
    assert shares(box("a", nodes=2, began_s=DAY), a=0, b=0) == shares(box("a", nodes=2, gpus_per_node=8, began_s=DAY), a=0, b=0)


def test_the_scale_has_ends() -> None:
    quotas = (Quota("b", "H100-80GB", 10**6),)
    assert shares(quotas=quotas, a=1e30, b=0) == {"a": STEPS_MOST, "b": -STEPS_MOST}
