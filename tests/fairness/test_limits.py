"""EGS refuses a request beyond a quota's limit at once, with the most that fits; a request beyond a guarantee only borrows."""

from __future__ import annotations

from typing import Any

import pytest

from core.errors import OverPolicy
from gpr.models import Gpr, GprState
from gpr.requests.editing import gpr_edit, spec_of
from inventory.services.inventory import inventory_store
from slices.models import Project, Slice
from slices.quotas.services import quota_create
from tests.builders import NOW, SHAPE, make_cluster, node_view
from tests.lifecycle.stage import Stage

pytestmark = pytest.mark.django_db


@pytest.fixture
def stage() -> Stage:
    """It has 4 nodes of 8 GPUs."""
    return Stage(nodes=4, gpus=8)


def allow(owner: Project | Slice, most: int | None, *, guaranteed: int = 0, shape: str = SHAPE) -> None:
    quota_create(owner=owner, shape=shape, change={"guaranteed_gpus": guaranteed, "most_gpus": most}, actor=None, now=NOW)


def refusal(stage: Stage, **asked: Any) -> OverPolicy:
    with pytest.raises(OverPolicy) as refused:
        stage.submit(**asked)
    assert not Gpr.objects.exists()
    return refused.value


@pytest.mark.parametrize(
    ("most", "asked", "told"),
    [
        (16, {"nodes": 3}, "allows 16 GPUs of H100-80GB at once; 24 GPUs were asked for. Ask for 2 nodes with 8 GPUs each at most."),
        (
            6,
            {"nodes": 2, "gpus_per_node": 4},
            "allows 6 GPUs of H100-80GB at once; 8 GPUs were asked for. Ask for 1 node with 4 GPUs each at most.",
        ),
        (3, {"nodes": 1}, "allows 3 GPUs of H100-80GB at once; 8 GPUs were asked for. Ask for 3 GPUs on one node at most."),
        (
            0,
            {"nodes": 1},
            "allows 0 GPUs of H100-80GB at once; 8 GPUs were asked for. Ask for another shape, or an administrator for more.",
        ),
    ],
)
def test_beyond_the_most_of_its_workspace_it_is_told_what_fits(most: int, asked: dict[str, Any], told: str, stage: Stage) -> None:
    allow(stage.slice, most)

    refused = refusal(stage, **asked)

    assert refused.detail == f"The quota of workspace {stage.slice.name} {told}"
    assert refused.extra == {"limit": "most_gpus", "most": most}


def test_the_tighter_of_workspace_and_project_counts(stage: Stage) -> None:
    allow(stage.slice.project, 8)
    allow(stage.slice, None)

    assert refusal(stage, nodes=2).detail.startswith(f"The quota of project {stage.slice.project.name} allows 8 GPUs")


def test_up_to_the_most_it_is_queued_without_approval_however_little_is_guaranteed(stage: Stage) -> None:
    allow(stage.slice.project, 24, guaranteed=8)
    allow(stage.slice, 24, guaranteed=4)

    assert stage.submit(nodes=3).state == GprState.QUEUED


def test_the_largest_nodes_count_where_whole_ones_are_asked_for(stage: Stage) -> None:
    """A request for a whole node might be given a large one."""
    inventory_store(cluster=stage.cluster, nodes=[node_view("small", gpus=4), node_view("large", gpus=8)], now=NOW)
    allow(stage.slice, 4)

    assert refusal(stage, nodes=1).extra["most"] == 4
    assert stage.submit(nodes=1, gpus_per_node=4).state == GprState.QUEUED


def test_one_that_leaves_the_shape_open_needs_one_that_is_allowed(stage: Stage) -> None:
    other = make_cluster("mars")
    stage.slice.clusters.add(other)
    inventory_store(cluster=other, nodes=[node_view(f"a{n}", gpus=4, shape="A100-80GB") for n in range(4)], now=NOW)
    allow(stage.slice, 8)

    assert stage.submit(nodes=2, shape="", min_gpu_memory_gib=40).state == GprState.QUEUED
    Gpr.objects.all().delete()
    allow(stage.slice, 4, shape="A100-80GB")
    assert refusal(stage, nodes=2, shape="", min_gpu_memory_gib=40).extra["most"] == 8


def test_an_edit_is_held_to_it_as_well(stage: Stage) -> None:
    gpr = stage.submit(nodes=1)
    allow(stage.slice, 8)

    with pytest.raises(OverPolicy):
        gpr_edit(gpr=gpr, actor=stage.owner, spec=spec_of(gpr, nodes=2), now=stage.now)


def test_another_shape_s_limit_is_none_of_its_business(stage: Stage) -> None:
    inventory_store(cluster=make_cluster("mars"), nodes=[node_view("a", shape="A100-80GB")], now=NOW)
    allow(stage.slice, 0, shape="A100-80GB")

    assert stage.submit().state == GprState.QUEUED
