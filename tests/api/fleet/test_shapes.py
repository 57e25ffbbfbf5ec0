from __future__ import annotations

from typing import Any

from accounts.models import Scope
from core.clock import db_now
from slices.models import ProjectAdmin, Slice
from tests import factories
from tests.api.conftest import Caller, World
from tests.builders import SHAPE

A100 = "A100-80GB"


def shapes(caller: Caller) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in caller.get("shapes/").json()["results"]}


def test_each_shape_says_how_much_there_is_and_is_free_in_each_cluster(owner: Caller, world: World) -> None:
    world.slice.clusters.add(factories.cluster("borealis", nodes=3, gpus=4))
    factories.active(world.foreign_slice, world.people.outsider, gpus_per_node=2)

    row = shapes(owner)[SHAPE]

    assert (row["id"], row["gpu_memory_gib"]) == (SHAPE, 80)
    counts = {c["name"]: (c["nodes"], c["nodes_free"], c["gpus"], c["gpus_free"], c["gpus_per_node"]) for c in row["clusters"]}
    assert counts == {"aurora": (2, 1, 16, 14, 8), "borealis": (3, 3, 12, 12, 4)}


def test_only_what_one_may_use_is_there(owner: Caller, outsider: Caller, admin: Caller, world: World) -> None:
    factories.add_nodes(world.cluster, 1, shape=A100)
    factories.cluster("strange", shape="B200-180GB")
    Slice.objects.filter(name="vision").update(shapes=[A100])

    assert set(shapes(owner)) == {A100}
    assert set(shapes(outsider)) == {A100, SHAPE}
    assert set(shapes(admin)) == {A100, SHAPE, "B200-180GB"}


def test_what_any_of_his_slices_may_use_in_a_cluster_is_there(owner: Caller, world: World) -> None:
    borealis = factories.cluster("borealis", shape=A100)
    Slice.objects.filter(name="vision").update(shapes=[A100])
    factories.make_slice(borealis, owner=world.people.owner)

    assert {name: [c["name"] for c in row["clusters"]] for name, row in shapes(owner).items()} == {A100: ["borealis"]}


def test_a_bound_token_and_a_project_administrator_see_the_shapes_of_their_workspaces(owner: Caller, world: World) -> None:
    borealis = factories.cluster("borealis", shape=A100)
    second = factories.make_slice(borealis, owner=world.people.owner)
    runner = factories.user("runner")
    ProjectAdmin.objects.create(project=second.project, user=runner, created_at=db_now())

    assert set(shapes(owner)) == {SHAPE, A100}
    assert set(shapes(Caller(factories.token(world.people.owner, Scope.READ, slices=[str(world.slice.pk)])))) == {SHAPE}
    assert set(shapes(Caller(factories.token(runner)))) == {A100}


def test_without_a_slice_there_is_nothing(half_admin: Caller, world: World) -> None:
    assert half_admin.get("shapes/").json() == {"next": None, "previous": None, "results": []}
