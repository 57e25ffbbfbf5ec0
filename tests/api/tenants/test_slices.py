from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.clock import db_now
from gpr.allocation.allocator import tick
from journal.models import Event
from slices.models import Slice
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults


def test_an_administrator_makes_one_by_names_or_ids(admin: Caller, world: World) -> None:
    project = world.slice.project

    by_name = admin.post("slices/", {"name": "a", "project": project.name, "clusters": ["aurora"]})
    by_id = admin.post("slices/", {"name": "b", "project": str(project.pk), "clusters": [str(world.cluster.pk)]})

    assert (by_name.status_code, by_id.status_code) == (201, 201)
    assert by_name.json()["clusters"] == by_id.json()["clusters"] == ["aurora"]
    assert by_name.json()["project_id"] == str(project.pk)
    assert Event.objects.filter(kind="slice.created", actor=world.people.admin).count() == 2


@pytest.mark.parametrize(("field", "value"), [("project", "nowhere"), ("clusters", ["nowhere"])])
def test_what_it_refers_to_must_be_there(field: str, value: Any, admin: Caller, world: World) -> None:
    body = {"name": "a", "project": world.slice.project.name, "clusters": ["aurora"], field: value}

    assert_problem(admin.post("slices/", body), 404, "not_found")
    assert not Slice.objects.filter(name="a").exists()


def test_a_creation_may_be_repeated_with_its_key(admin: Caller, world: World) -> None:
    body = {"name": "a", "project": world.slice.project.name}

    first, second = admin.post("slices/", body, key="k"), admin.post("slices/", body, key="k")

    assert first.json() == second.json()
    assert second["Idempotency-Replayed"] == "true"
    assert_problem(admin.post("slices/", body), 409, "conflict")


def test_a_member_sees_his_slices_his_role_and_their_policy(owner: Caller, teammate: Caller, admin: Caller, world: World) -> None:
    (row,) = owner.get("slices/").json()["results"]

    assert (row["name"], row["role"], row["clusters"], row["nodes_approval"], row["shapes"]) == ("vision", "owner", ["aurora"], 16, [])
    assert owner.get("slices/vision/").json() == owner.get(f"slices/{world.slice.pk}/").json() == row
    assert teammate.get("slices/vision/").json()["role"] == "viewer"
    assert {(row["name"], row["role"]) for row in admin.get("slices/").json()["results"]} == {("vision", None), ("canary-slice", None)}


def test_a_foreign_one_is_as_absent_as_none(owner: Caller, world: World) -> None:
    for tail in ("", "members/", "namespaces/"):
        refs = ["canary-slice", world.foreign_slice.pk, "nowhere", "%00"]
        assert len({owner.get(f"slices/{ref}/{tail}").content for ref in refs}) == 1
        assert_problem(owner.get(f"slices/canary-slice/{tail}"), 404, "not_found")


def test_an_administrator_changes_the_policy_for_requests_from_now_on(admin: Caller, owner: Caller, world: World, ask: Any) -> None:
    before = admin.get("slices/vision/").json()

    after = admin.patch("slices/vision/", {"nodes_approval": 0, "priority_approval": 50, "may_evict": True}).json()

    terms = {"nodes_approval": 0, "priority_approval": 50, "may_evict": True}
    assert after == {**before, **terms, "policy_version": after["policy_version"]}
    gpr = owner.post("gprs/", ask).json()
    assert (len(gpr["approval_reasons"]), gpr["policy_version"]) == (2, after["policy_version"])
    assert Event.objects.get(kind="policy.changed").data["after"] == terms


def test_shapes_that_the_policy_does_not_name_cannot_be_asked_for(admin: Caller, owner: Caller, world: World, ask: Any) -> None:
    factories.cluster(shape="A100-80GB")
    admin.patch("slices/vision/", {"shapes": ["A100-80GB"]})

    assert faults(owner.post("gprs/", ask)) == ["shape"]
    assert owner.get("shapes/").json()["results"] == []


def test_a_narrower_policy_leaves_what_waits_as_it_was_promised(admin: Caller, owner: Caller, world: World, ask: Any) -> None:
    factories.cluster(shape="A100-80GB")
    waiting = owner.post("gprs/", {**ask, "earliest_start_at": (db_now() + timedelta(hours=2)).isoformat()}).json()

    admin.patch("slices/vision/", {"shapes": ["A100-80GB"]})
    tick(now=db_now())

    after = owner.get(f"gprs/{waiting['id']}/").json()
    assert (after["promised_start_at"], after["promise_moves"]) == (waiting["promised_start_at"], [])
    assert after["explanation"]["reason"] == "waits_for_start_time"


def test_a_policy_cannot_name_shapes_that_nobody_has(admin: Caller, world: World) -> None:
    body = assert_problem(admin.patch("slices/vision/", {"shapes": ["H100-80GB", "nope"]}), 400, "invalid_input")

    assert body["errors"]["shapes"] == ["No cluster has nope. There are: H100-80GB."]


def test_an_administrator_gives_a_workspace_another_cluster(admin: Caller, owner: Caller, world: World, ask: Any) -> None:
    factories.cluster("mars", shape="A100-80GB")
    names = [world.cluster.name, "mars"]

    assert sorted(admin.patch("slices/vision/", {"clusters": names}).json()["clusters"]) == sorted(names)

    assert owner.post("gprs/", {**ask, "shape": "A100-80GB"}).status_code == 201
    assert Event.objects.filter(kind="slice.clusters_changed").count() == 1


def test_a_cluster_that_a_workspace_uses_is_not_taken_away(admin: Caller, world: World) -> None:
    factories.started(world.slice, world.people.owner)

    assert_problem(admin.patch("slices/vision/", {"clusters": []}), 409, "conflict")

    assert admin.get("slices/vision/").json()["clusters"] == [world.cluster.name]


def test_members_do_not_choose_their_clusters(owner: Caller, world: World) -> None:
    assert owner.patch("slices/vision/", {"clusters": []}).status_code == 403


def test_an_administrator_names_the_home_of_a_workspace(admin: Caller, owner: Caller, world: World) -> None:
    assert admin.patch("slices/vision/", {"home": "aurora", "burst_gain_s": 600}).json()["home"] == "aurora"

    assert owner.get("slices/vision/").json()["burst_gain_s"] == 600
    assert Event.objects.filter(kind="slice.home_changed").count() == 1
    assert admin.patch("slices/vision/", {"home": None}).json()["home"] is None


def test_a_home_is_one_of_its_clusters_and_is_gone_with_it(admin: Caller, world: World) -> None:
    factories.cluster("mars")
    body = assert_problem(admin.patch("slices/vision/", {"home": "mars"}), 400, "invalid_input")
    assert body["errors"]["home"] == ["Workspace vision may not use cluster mars. Give it the cluster first."]

    assert admin.patch("slices/vision/", {"clusters": ["aurora", "mars"], "home": "mars"}).json()["home"] == "mars"
    assert admin.patch("slices/vision/", {"clusters": ["aurora"]}).json()["home"] is None


def test_members_do_not_choose_their_home(owner: Caller, world: World) -> None:
    assert owner.patch("slices/vision/", {"home": "aurora"}).status_code == 403


def test_approval_cannot_begin_beyond_the_maximum(admin: Caller, world: World) -> None:
    body = assert_problem(admin.patch("slices/vision/", {"duration_max_s": 60}), 400, "invalid_input")

    assert list(body["errors"]) == ["duration_approval_s"]
    world.slice.refresh_from_db()
    assert world.slice.duration_max_s == 90 * 86_400


BAD: list[dict[str, Any]] = [{"nodes_approval": -1}, {"gpus_approval": 2**31}, {"duration_max_s": 0}, {"duration_max_s": 2**60}]
BAD += [{"priority_approval": 301}, {"priority_approval": 0}, {"shapes": "H100"}, {"shapes": [5]}, {"shapes": ["a\u0000"]}, {"name": "new"}]
BAD += [{"nodes_approval": "x"}, {"nodes_approval": True}, {"gpus_approval": "5"}, {"clusters": "mars"}, {"shapes": ["x" * 64]}]
BAD += [{"may_evict": "sometimes"}, {"ahead_max_s": 5}]


def test_a_policy_that_means_nothing_is_refused(admin: Caller, world: World) -> None:
    for body in BAD:
        assert faults(admin.patch("slices/vision/", body)) == list(body)
        assert not Event.objects.filter(kind="policy.changed").exists()


def test_an_empty_policy_change_changes_nothing(admin: Caller, world: World) -> None:
    assert admin.patch("slices/vision/", {}).json() == admin.get("slices/vision/").json()
    assert not Event.objects.filter(kind="policy.changed").exists()


def test_a_slice_cannot_take_the_id_of_another_for_its_name(admin: Caller, world: World) -> None:
    body = {"name": str(world.slice.pk), "project": world.slice.project.name}

    assert faults(admin.post("slices/", body)) == ["name"]


def test_a_user_in_several_slices_sees_each_once(owner: Caller, world: World) -> None:
    factories.make_slice(world.cluster, name="speech", owner=world.people.owner, of=world.slice.project)

    assert [row["name"] for row in owner.get("slices/").json()["results"]] == ["speech", "vision"]
    assert len(owner.get("projects/").json()["results"]) == 1
    assert len(owner.get("clusters/").json()["results"]) == 1
    assert len(owner.get("nodes/").json()["results"]) == 2
