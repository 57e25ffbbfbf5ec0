from __future__ import annotations

from typing import Any

import pytest

from journal.models import Event
from slices.models import Namespace
from slices.tenancy import SliceTenants
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


def test_a_taken_name_is_answered_alike_whoever_has_it(owner: Caller, admin: Caller, world: World) -> None:
    for slice_, name in (("canary-slice", "vision-1"), ("vision", "vision-2")):
        assert admin.post(f"slices/{slice_}/namespaces/", {"name": name, "cluster": "aurora"}).status_code == 201

    answers = [owner.post(PATH, {"name": name, "cluster": "aurora"}) for name in ("vision-1", "vision-2")]

    bodies = [assert_problem(answer, 409, "conflict")["detail"] for answer in answers]
    assert bodies[0].replace("vision-1", "vision-2") == bodies[1]
    assert [row["name"] for row in owner.get(PATH).json()["results"]] == ["vision-2"]


def test_a_name_outside_the_pattern_waits_for_an_administrator_and_grants_nothing(owner: Caller, admin: Caller, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner)
    admin.post("slices/canary-slice/namespaces/", {"name": "monitoring", "cluster": "aurora"})

    asked = [owner.post(PATH, {"name": name, "cluster": "aurora"}) for name in ("gpu-operator", "monitoring", "visionary")]

    assert [(answer.status_code, answer.json()["state"]) for answer in asked] == [(201, "PENDING")] * 3
    assert world.slice.namespaces.count() == 0
    assert [row.namespaces for row in factories.held(gpr)] == [[]]
    assert [each for each in SliceTenants().workspaces(world.cluster.pk) if each.name == "vision"] == []
    assert_problem(owner.post(f"{PATH}gpu-operator/approve/"), 403, "not_allowed")
    assert_problem(admin.post(f"{PATH}monitoring/approve/"), 409, "conflict")

    approved = admin.post(f"{PATH}gpu-operator/approve/").json()

    assert approved["state"] == "WAITING"
    assert [row.namespaces for row in factories.held(gpr)] == [["gpu-operator"]]
    assert admin.post(f"{PATH}monitoring/refuse/", {"why": "It is the cluster's own."}).status_code == 204
    assert_problem(admin.post(f"{PATH}gpu-operator/refuse/", {"why": "Too late."}), 409, "conflict")
    assert owner.delete(f"{PATH}visionary/").status_code == 204
    assert [row["name"] for row in owner.get(PATH).json()["results"]] == ["gpu-operator"]
    told = [row["kind"].removeprefix("slice.namespace_") for row in owner.get("events/?slice=vision").json()["results"]]
    assert told[:6] == ["withdrawn", "refused", "approved", "asked", "asked", "asked"]
    assert "It is the cluster's own." in owner.get("events/?kind=slice.namespace_refused").json()["results"][0]["message"]


def test_an_administrator_says_which_names_and_how_many_a_workspace_may_have(owner: Caller, admin: Caller, world: World) -> None:
    assert owner.get("slices/vision/").json()["namespace_patterns"] == ["vision", "vision-*"]
    for pattern in ("a*b", "*-x", "A", "a b", "-*", ""):
        assert faults(admin.patch("slices/vision/", {"namespace_patterns": [pattern]})) == ["namespace_patterns"]

    admin.patch("slices/vision/", {"namespace_patterns": ["ml-*"], "namespaces_max": 2})

    states = [owner.post(PATH, {"name": name, "cluster": "aurora"}).json().get("state") for name in ("ml-1", "vision")]
    assert states == ["WAITING", "PENDING"]
    refused = assert_problem(owner.post(PATH, {"name": "ml-2", "cluster": "aurora"}), 400, "over_policy")
    assert (refused["limit"], refused["most"]) == ("namespaces_max", 2)
    for name in ("kube-system", "default", "egs-system"):
        assert faults(admin.post(PATH, {"name": name, "cluster": "aurora"})) == ["name"]


def test_a_name_that_belongs_more_closely_to_another_workspace_waits_for_approval(owner: Caller, world: World) -> None:
    factories.make_slice(world.cluster, name="vision-lab")

    asked = ("vision-lab", "vision-lab-1", "vision-labor")
    states = [owner.post(PATH, {"name": name, "cluster": "aurora"}).json()["state"] for name in asked]

    assert states == ["PENDING", "PENDING", "WAITING"]


@pytest.mark.parametrize("by", ["name", "id"])
def test_an_owner_unbinds_one(by: str, owner: Caller, world: World) -> None:
    namespace = owner.post(PATH, {"name": "vision-train", "cluster": "aurora"}).json()

    assert owner.delete(f"{PATH}{namespace[by]}/").status_code == 204

    assert not Namespace.objects.exists()
    assert_problem(owner.delete(f"{PATH}{namespace[by]}/"), 404, "not_found")


def test_a_name_in_two_clusters_needs_the_id(owner: Caller, world: World) -> None:
    world.slice.clusters.add(factories.cluster("borealis"))
    ids = [owner.post(PATH, {"name": "vision-train", "cluster": cluster}).json()["id"] for cluster in ("aurora", "borealis")]

    assert_problem(owner.delete(f"{PATH}vision-train/"), 409, "conflict")
    assert owner.delete(f"{PATH}{ids[0]}/").status_code == 204


def test_a_foreign_one_cannot_be_unbound_through_one_s_own_slice(owner: Caller, outsider: Caller, world: World) -> None:
    foreign = outsider.post("slices/canary-slice/namespaces/", {"name": "canary-slice-1", "cluster": "aurora"}).json()

    for ref in ("canary-slice-1", foreign["id"]):
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
    owner.post(PATH, {"name": "vision-train", "cluster": "aurora"})
    caller = request.getfixturevalue(persona)

    assert caller.post(PATH, {"name": "n", "cluster": "aurora"}).status_code == status
    assert caller.delete(f"{PATH}vision-train/").status_code == status
    assert Namespace.objects.count() == 1
