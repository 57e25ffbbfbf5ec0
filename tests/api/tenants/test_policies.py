"""policies/: what each sets, what holds and where it comes from, its versions, and which requests break it."""

from __future__ import annotations

from typing import Any

import pytest

from core.clock import db_now
from gpr.models import Gpr
from journal.models import Event
from slices.models import ProjectAdmin, Slice
from slices.policies.services import policy_of
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE


@pytest.fixture
def path(world: World) -> str:
    return f"policies/{policy_of(world.slice).pk}/"


def of(caller: Caller, **query: Any) -> list[str]:
    return [row["name"] for row in caller.get("policies/", **query).json()["results"]]


def test_members_see_their_workspaces_who_runs_a_project_its_own_too_and_an_administrator_all(
    owner: Caller, admin: Caller, world: World
) -> None:
    project = world.slice.project
    runner = factories.user("runner")
    ProjectAdmin.objects.create(project=project, user=runner, created_at=db_now())

    assert of(owner) == ["vision"]
    assert of(Caller(factories.token(runner))) == [project.name, "vision"]
    assert of(admin)[0] == "platform"
    assert {"vision", "canary-slice", "canary-project"} <= set(of(admin))
    assert of(admin, kind="platform") == ["platform"]
    assert of(admin, project=project.name, kind="slice") == of(admin, slice="vision") == ["vision"]
    assert_problem(owner.get(f"policies/{policy_of(project).pk}/"), 404, "not_found")


def test_each_value_says_where_it_comes_from_and_null_inherits_again(admin: Caller, owner: Caller, world: World, path: str) -> None:
    admin.patch(f"policies/{policy_of(None).pk}/", {"nodes_approval": 8, "queued_max": 50})
    admin.patch(f"policies/{policy_of(world.slice.project).pk}/", {"nodes_approval": 4})
    changed = admin.patch(path, {"nodes_approval": 2, "why": "Release week."}).json()

    seen = owner.get(path).json()
    assert seen == changed
    assert (seen["own"]["nodes_approval"], seen["effective"]["nodes_approval"], seen["sources"]["nodes_approval"]) == (2, 2, "slice")
    assert (seen["effective"]["queued_max"], seen["sources"]["queued_max"]) == (50, "platform")
    assert seen["sources"]["pods_max"] == "built-in"
    assert owner.get("slices/vision/").json()["nodes_approval"] == 2

    again = admin.patch(path, {"nodes_approval": None}).json()
    assert (again["effective"]["nodes_approval"], again["sources"]["nodes_approval"]) == (4, "project")
    newest, older, *_ = owner.get(f"{path}versions/").json()["results"]
    assert newest["changes"] == [{"term": "nodes_approval", "before": 2, "after": None}]
    assert (older["made_by"], older["why"], older["changes"][0]["after"]) == ("admin", "Release week.", 2)
    assert newest["id"] == again["version"]
    assert Event.objects.filter(kind="policy.changed", slice_id=world.slice.pk).count() == 2


def test_a_stale_version_and_what_means_nothing_change_nothing(admin: Caller, path: str) -> None:
    before = admin.get(path).json()

    assert_problem(admin.patch(path, {"nodes_approval": 1, "version": before["version"] + 1}), 409, "stale_version")
    assert admin.client.patch(f"/api/v1/{path}", {"nodes_approval": 1}, headers={"If-Match": '"0"'}).status_code == 409
    for body in ({"nodes_approval": -1}, {"shapes": ["NOPE"]}, {"decide_within_s": 5}, {"budget": 1}):
        assert faults(admin.patch(path, body)) == list(body)
    assert admin.get(path).json() == before


def test_what_would_break_a_changed_policy_is_told_before_and_what_breaks_it_after(
    admin: Caller, owner: Caller, world: World, path: str
) -> None:
    people = world.people
    runs = factories.active(world.slice, people.owner, nodes=2, name="runs")
    waits = factories.gpr(world.slice, people.owner, nodes=2, name="waits")
    small = factories.gpr(world.slice, people.owner, name="small")
    granted = factories.gpr(world.slice, people.owner, name="granted", priority=300)
    admin.post(f"gprs/{granted.pk}/approve/")
    ended = factories.gpr(world.slice, people.owner, nodes=2, name="ended")
    owner.delete(f"gprs/{ended.pk}/")
    factories.gpr(world.foreign_slice, people.outsider, nodes=2)
    change = {"nodes_approval": 1, "shapes": [SHAPE]}

    told = admin.post(f"{path}preview/", change).json()

    assert told["count"] == 2
    assert {row["name"]: row["note"].split(";")[0] for row in told["breaches"]} == {
        "runs": "It runs to its end",
        "waits": "It keeps its place and its promise",
    }
    assert told["breaches"][0]["rules"] == ["2 nodes; more than 1 need approval."]
    assert not Slice.objects.filter(nodes_approval=1).exists()
    assert [row["name"] for row in owner.get(f"{path}breaches/").json()["results"]] == ["granted"]

    admin.patch(path, change)
    rows = {row["name"]: row for row in owner.get(f"{path}breaches/").json()["results"]}
    assert set(rows) == {"granted", "waits", "runs"}
    assert rows["granted"]["note"] == "It was approved."
    assert rows["waits"]["note"].startswith(f"It was judged by version {waits.policy_version} of the policies")
    assert {gpr.state for gpr in Gpr.objects.filter(pk__in=[runs.pk, waits.pk, small.pk])} == {"ACTIVE", "QUEUED"}
    assert [row["name"] for row in owner.get(f"{path}breaches/", state="ACTIVE").json()["results"]] == ["runs"]
    of_platform = {row["name"] for row in admin.get(f"policies/{policy_of(None).pk}/breaches/").json()["results"]}
    assert of_platform == set(rows)


def test_whole_nodes_count_as_the_largest_that_a_request_may_get(admin: Caller, world: World, path: str) -> None:
    """Two nodes with 8 GPUs; the request names no number of GPUs."""
    factories.gpr(world.slice, world.people.owner, name="whole")
    factories.gpr(world.slice, world.people.owner, name="half", gpus_per_node=4)

    told = admin.post(f"{path}preview/", {"gpus_approval": 7}).json()

    assert [(row["name"], row["rules"]) for row in told["breaches"]] == [("whole", ["8 GPUs; more than 7 need approval."])]


def test_the_newest_of_more_requests_than_may_wait_break_the_policy(admin: Caller, owner: Caller, world: World, path: str) -> None:
    for name in ("first", "second", "third"):
        factories.gpr(world.slice, world.people.owner, name=name)
    rules = ["Number 3 of those that wait; more than 2 are refused."]

    told = admin.post(f"{path}preview/", {"queued_max": 2}).json()
    assert [(row["name"], row["rules"]) for row in told["breaches"]] == [("third", rules)]

    admin.patch(path, {"queued_max": 2})
    assert [(row["name"], row["rules"]) for row in owner.get(f"{path}breaches/").json()["results"]] == [("third", rules)]


def test_starts_too_far_ahead_are_refused_and_skipped_checks_need_approval(
    admin: Caller, owner: Caller, path: str, ask: dict[str, Any]
) -> None:
    admin.patch(path, {"ahead_max_s": 3600, "may_skip_checks": False})
    far = (db_now().replace(year=db_now().year + 1, month=1, day=1)).isoformat()

    body = assert_problem(owner.post("gprs/", {**ask, "earliest_start_at": far}), 400, "over_policy")
    assert (body["limit"], body["most"]) == ("ahead_max_s", 3600)

    gpr = owner.post("gprs/", {**ask, "run_checks": False}).json()
    assert (gpr["state"], gpr["approval_reasons"]) == (
        "PENDING_APPROVAL",
        ["It skips the checks of nodes; that needs approval in this workspace."],
    )
    assert owner.patch(f"gprs/{gpr['id']}/", {"run_checks": True}).json()["state"] == "QUEUED"
    assert owner.patch(f"gprs/{gpr['id']}/", {"run_checks": False}).json()["state"] == "PENDING_APPROVAL"
