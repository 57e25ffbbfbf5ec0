from __future__ import annotations

from typing import Any

import pytest

from journal.models import Event
from slices.models import Namespace
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults

PATH = "slices/vision/namespaces/"


def test_an_owner_binds_one_and_its_running_gpr_learns_of_it(owner: Caller, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner)

    response = owner.post(PATH, {"name": "vision-train", "cluster": "aurora"})

    assert (response.status_code, response.json()["name"], response.json()["cluster"]) == (201, "vision-train", "aurora")
    assert owner.get(PATH).json()["results"] == [response.json()]
    assert [row.namespaces for row in factories.held(gpr)] == [["vision-train"]]
    assert Event.objects.get(kind="slice.namespace_bound").actor == world.people.owner


def test_a_bound_one_cannot_be_bound_again_and_nobody_says_by_whom(owner: Caller, outsider: Caller, world: World) -> None:
    outsider.post("slices/canary-slice/namespaces/", {"name": "shared", "cluster": "aurora"})

    body = assert_problem(owner.post(PATH, {"name": "shared", "cluster": "aurora"}), 409, "conflict")

    assert "canary" not in str(body)
    assert owner.get(PATH).json()["results"] == []


@pytest.mark.parametrize("by", ["name", "id"])
def test_an_owner_unbinds_one(by: str, owner: Caller, world: World) -> None:
    namespace = owner.post(PATH, {"name": "train", "cluster": "aurora"}).json()

    assert owner.delete(f"{PATH}{namespace[by]}/").status_code == 204

    assert not Namespace.objects.exists()
    assert_problem(owner.delete(f"{PATH}{namespace[by]}/"), 404, "not_found")


def test_a_name_in_two_clusters_needs_the_id(owner: Caller, world: World) -> None:
    world.slice.clusters.add(factories.cluster("borealis"))
    ids = [owner.post(PATH, {"name": "train", "cluster": cluster}).json()["id"] for cluster in ("aurora", "borealis")]

    assert_problem(owner.delete(f"{PATH}train/"), 409, "conflict")
    assert owner.delete(f"{PATH}{ids[0]}/").status_code == 204


def test_a_foreign_one_cannot_be_unbound_through_one_s_own_slice(owner: Caller, outsider: Caller, world: World) -> None:
    foreign = outsider.post("slices/canary-slice/namespaces/", {"name": "theirs", "cluster": "aurora"}).json()

    for ref in ("theirs", foreign["id"]):
        assert_problem(owner.delete(f"{PATH}{ref}/"), 404, "not_found")
    assert Namespace.objects.count() == 1


def test_a_cluster_must_be_the_slice_s(owner: Caller, world: World) -> None:
    factories.cluster("strange")
    factories.make_slice(factories.cluster("borealis"), owner=world.people.owner)

    assert_problem(owner.post(PATH, {"name": "n", "cluster": "strange"}), 404, "not_found")
    assert_problem(owner.post(PATH, {"name": "n", "cluster": "borealis"}), 400, "invalid_input")


BAD_NAMES: list[Any] = ["", "A", "-a", "a-", "a.b", "a_b", "x" * 64, "a b", "a\n", "\u00e9", 5, None, True, ["a"], "a\u0000"]


def test_a_name_that_is_none_in_kubernetes_is_refused(owner: Caller, world: World) -> None:
    for name in BAD_NAMES:
        assert faults(owner.post(PATH, {"name": name, "cluster": "aurora"})) == ["name"]


@pytest.mark.parametrize(
    ("persona", "status"), [("teammate", 403), ("outsider", 404), ("reader", 403), ("half_admin", 404), ("anonymous", 401)]
)
def test_who_may_not_bind_or_unbind(persona: str, status: int, owner: Caller, world: World, request: pytest.FixtureRequest) -> None:
    owner.post(PATH, {"name": "train", "cluster": "aurora"})
    caller = request.getfixturevalue(persona)

    assert caller.post(PATH, {"name": "n", "cluster": "aurora"}).status_code == status
    assert caller.delete(f"{PATH}train/").status_code == status
    assert Namespace.objects.count() == 1
