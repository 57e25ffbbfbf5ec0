"""Use is written down when nodes are back, counted on the fly until then, and decides whose turn it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from gpr.allocation.live import snapshot_load
from gpr.models import Gpr, GprState, ProjectUsage
from gpr.quotas.fairness import box_use, decayed, usage_at, usage_rows
from gpr.requests.ending import gpr_release
from gpr.requests.selectors import QUEUE_ORDER
from slices.models import Project, Slice
from slices.quotas.services import quota_create
from tests.builders import NOW, SHAPE, make_project, make_slice
from tests.lifecycle.stage import EXIT, Stage, fresh

pytestmark = pytest.mark.django_db

HOUR_S, DAY_S = 3600, 86_400


@pytest.fixture
def stage() -> Stage:
    return Stage()


def run(stage: Stage, seconds: float, **asked: Any) -> Gpr:
    """A box that holds its nodes for so long, entry and exit included."""
    gpr = stage.active(entry_s=5, duration_s=6 * DAY_S, **asked)
    stage.after(seconds - 5)
    gpr_release(gpr=gpr, actor=stage.owner, now=stage.now)
    stage.say(gpr, *EXIT)
    stage.tick()
    return fresh(gpr)


def test_use_is_added_when_the_nodes_are_back(stage: Stage) -> None:
    run(stage, 3600, nodes=2)

    usage = ProjectUsage.objects.get()
    assert usage.project == stage.slice.project
    assert usage.gpu_s == pytest.approx(box_use(8, 3600))
    assert usage.summed_at == stage.now


@pytest.mark.both_databases
def test_a_second_box_is_added_to_what_is_left_of_the_first(stage: Stage) -> None:
    run(stage, 3600, nodes=1)
    stage.after(12 * HOUR_S)
    run(stage, 7200, nodes=1, gpus_per_node=2)

    assert ProjectUsage.objects.get().gpu_s == pytest.approx(decayed(box_use(4, 3600), 14 * HOUR_S) + box_use(2, 7200))
    assert usage_at(usage_rows(), stage.now + timedelta(days=7))[str(stage.slice.project_id)] == pytest.approx(
        decayed(ProjectUsage.objects.get().gpu_s, 7 * DAY_S)
    )


def test_what_never_started_has_used_nothing(stage: Stage) -> None:
    gpr = stage.submit(nodes=2)
    stage.cluster.nodes.update(gone_at=stage.now)
    stage.tick()

    assert fresh(gpr).state == GprState.QUEUED
    assert not ProjectUsage.objects.exists()


def test_an_end_changes_nobody_s_share(stage: Stage) -> None:
    """A box counts the same the moment before and after its nodes are back."""
    gpr = stage.active(nodes=1, duration_s=5 * DAY_S)
    other = make_slice(stage.cluster, owner=stage.owner)
    stage.submit(other, nodes=2)
    stage.after(18 * HOUR_S)
    gpr_release(gpr=gpr, actor=stage.owner, now=stage.now)
    before = snapshot_load(now=stage.now).shares
    stage.say(gpr, *EXIT)
    stage.tick()

    assert snapshot_load(now=stage.now).shares == before
    assert before[str(stage.slice.project_id)] > before[str(other.project_id)]


def greedy(stage: Stage) -> tuple[Gpr, Gpr]:
    """`stage.slice` has used both nodes for long; behind its next box wait a short one of its own project and a long one of `little`."""
    stage.active(nodes=2, duration_s=6 * DAY_S)
    stage.after(18 * HOUR_S)
    much = make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project)
    little = make_slice(stage.cluster, owner=stage.owner)
    short, long = stage.submit(much, nodes=2, duration_s=3600), stage.submit(little, nodes=2, duration_s=7200)
    stage.tick()
    return fresh(short), fresh(long)


def considered() -> list[Gpr]:
    return list(Gpr.objects.filter(state=GprState.QUEUED).order_by(*QUEUE_ORDER))


@pytest.mark.both_databases
def test_whose_project_used_less_goes_first_among_equals_in_priority(stage: Stage) -> None:
    short, long = greedy(stage)

    assert short.turn_share > 0 > long.turn_share
    assert considered() == [long, short]


def test_priority_stands_above_it(stage: Stage) -> None:
    short, long = greedy(stage)

    first = stage.submit(make_slice(stage.cluster, owner=stage.owner, project=stage.slice.project), nodes=2, priority=150)

    assert considered() == [first, long, short]


def test_a_half_life_of_an_hour_forgets_a_day(stage: Stage, settings: Settings) -> None:
    settings.EGS_FAIRNESS_HALF_LIFE_S = 3600
    run(stage, 3600, nodes=2)
    stage.after(2 * DAY_S)

    assert set(snapshot_load(now=stage.now).shares.values()) == {0}


def test_an_estimate_knows_the_share(stage: Stage) -> None:
    greedy(stage)
    loaded = snapshot_load(now=stage.now)
    gpr = Gpr(slice=stage.slice, shape=SHAPE, nodes=1, duration_s=60, remaining_s=60)

    assert loaded.candidate(gpr, []).share == loaded.shares[str(stage.slice.project_id)] > 0


def test_the_planner_is_told_of_every_quota(stage: Stage) -> None:
    give: list[tuple[Project | Slice, int, int | None]] = [(stage.slice.project, 8, None), (stage.slice, 4, 6)]
    for owner, guaranteed, most in give:
        quota_create(owner=owner, shape=SHAPE, change={"guaranteed_gpus": guaranteed, "most_gpus": most}, actor=None, now=NOW)

    quotas = snapshot_load(now=NOW).snapshot.quotas

    assert {(quota.owner, quota.shape, quota.guaranteed, quota.most) for quota in quotas} == {
        (str(owner.pk), SHAPE, guaranteed, most) for owner, guaranteed, most in give
    }


@pytest.mark.both_databases
@pytest.mark.django_db(transaction=True)
def test_a_snapshot_costs_a_few_queries_however_much_there_is_and_fewer_when_nothing_changed(
    stage: Stage, django_assert_num_queries: Any, django_assert_max_num_queries: Any
) -> None:
    for _ in range(9):
        quota_create(owner=make_project(), shape=SHAPE, change={}, actor=None, now=NOW)
    with django_assert_max_num_queries(16):
        snapshot_load(now=NOW)
    snapshot_load(now=NOW)  # while others write to the same server, it may read again what the first one read
    with django_assert_num_queries(4):
        snapshot_load(now=NOW)
