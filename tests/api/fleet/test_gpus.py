from __future__ import annotations

from typing import Any

import pytest

from inventory.models import Gpu, Reservation
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.builders import SHAPE


def gpus(caller: Caller, query: str = "") -> list[dict[str, Any]]:
    response = caller.get(f"gpus/{query}")
    assert response.status_code == 200, response.content
    rows: list[dict[str, Any]] = response.json()["results"]
    return rows


def test_they_are_listed_by_node_and_index(owner: Caller, world: World) -> None:
    rows = gpus(owner)

    assert [(row["node"], row["index"]) for row in rows] == [(f"aurora-{n}", i) for n in range(2) for i in range(8)]
    first = rows[0]
    assert (first["uuid"], first["name"], first["cluster"], first["shape"]) == ("GPU-aurora-0-0",) * 2 + ("aurora", SHAPE)
    assert (first["model"], first["memory_gib"], first["is_healthy"], first["state"], first["held_by"]) == ("H100", 80, True, "free", None)


def test_a_held_one_names_its_gpr_to_those_who_may_know(owner: Caller, outsider: Caller, world: World) -> None:
    factories.active(world.slice, world.people.owner, name="mine", gpus_per_node=2)

    own, foreign = gpus(owner, "?state=held"), gpus(outsider, "?state=held")

    assert [row["held_by"]["gpr"] for row in own] == ["mine", "mine"]
    assert [row["held_by"] for row in foreign] == [None, None]


@pytest.fixture
def read_by_checks(world: World) -> None:
    """A check has told what each GPU is called by its driver."""
    for gpu in Gpu.objects.all():
        gpu.hardware_uuid = f"GPU-driver-{gpu.uuid.removeprefix('GPU-')}"
        gpu.save()


def hardware(caller: Caller, query: str = "") -> set[str]:
    return {row["hardware_uuid"].removeprefix("GPU-driver-") for row in gpus(caller, query)} - {""}


@pytest.mark.usefixtures("read_by_checks")
def test_hardware_is_told_to_administrators_and_of_whole_nodes_to_those_whose_workspace_holds_them(
    owner: Caller, teammate: Caller, outsider: Caller, admin: Caller, world: World
) -> None:
    factories.active(world.slice, world.people.owner)
    node = Reservation.objects.get().node.name
    own = {f"{node}-{index}" for index in range(8)}

    assert hardware(owner) == hardware(teammate) == own
    assert hardware(outsider) == set()
    assert len(hardware(admin)) == 16


@pytest.mark.usefixtures("read_by_checks")
def test_of_a_node_that_is_held_in_parts_no_holder_learns_which_hardware_there_is(
    owner: Caller, teammate: Caller, outsider: Caller, admin: Caller, world: World
) -> None:
    """The others' GPUs are among them."""
    factories.active(world.slice, world.people.owner, gpus_per_node=4)
    factories.active(world.foreign_slice, world.people.outsider, gpus_per_node=4)
    assert Reservation.objects.values("node").distinct().count() == 1

    assert hardware(owner) == hardware(teammate) == hardware(outsider) == set()
    assert len(hardware(admin)) == 16
    for caller, name in ((owner, "vision"), (teammate, "vision"), (outsider, "canary-slice")):
        assert {row["held_by"]["slice"] for row in gpus(caller) if row["held_by"]} == {name}


@pytest.mark.usefixtures("read_by_checks")
def test_nobody_finds_out_by_the_filter_where_hardware_is_that_he_is_not_told_of(owner: Caller, admin: Caller) -> None:
    query = "?hardware_uuid=GPU-driver-aurora-1-7"

    assert gpus(owner, query) == []
    assert [row["name"] for row in gpus(admin, query)] == ["GPU-aurora-1-7"]


def test_filters_narrow_the_list(owner: Caller, world: World) -> None:
    factories.cluster("strange", nodes=1)
    factories.active(world.slice, world.people.owner, gpus_per_node=2)
    Gpu.objects.filter(uuid="GPU-aurora-1-7").update(is_healthy=False)

    for query, count in [
        ("?cluster=aurora", 16),
        ("?node=aurora-1", 8),
        ("?node=strange-0", 0),
        ("?state=free", 6),
        ("?state=held", 2),
        ("?state=unusable", 8),
        ("?state=free,held", 8),
        ("?uuid=GPU-aurora-1-7", 1),
        ("?uuid=GPU-strange-0-0", 0),
    ]:
        assert len(gpus(owner, query)) == count


def test_a_sick_one_closes_the_others_of_its_node_too(owner: Caller, world: World) -> None:
    """Nothing starts on a node with a sick GPU."""
    Gpu.objects.filter(uuid="GPU-aurora-1-7").update(is_healthy=False)

    assert {row["state"] for row in gpus(owner, "?node=aurora-1")} == {"unusable"}


def test_a_member_sees_none_of_other_clusters(owner: Caller, admin: Caller, world: World) -> None:
    factories.cluster("strange", nodes=1, gpus=4)

    assert (len(gpus(owner)), len(gpus(admin))) == (16, 20)


def test_they_come_in_pages(owner: Caller, world: World) -> None:
    first = owner.get("gpus/?page_size=10").json()
    second = owner.get(first["next"]).json()

    assert [len(page["results"]) for page in (first, second)] == [10, 6]
    assert owner.get(second["previous"]).json()["results"] == first["results"]


def test_a_filter_that_means_nothing_is_an_error(owner: Caller, world: World) -> None:
    assert_problem(owner.get("gpus/?state=hot"), 400, "invalid_input")
