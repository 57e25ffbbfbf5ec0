"""Quotas by REST: who sees which, what stands under each, and what an administrator is refused."""

from __future__ import annotations

from typing import Any

import pytest

from journal.models import Event
from slices.models import Quota
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE


@pytest.fixture
def project(world: World) -> str:
    return str(world.slice.project.name)


def made(admin: Caller, **body: Any) -> dict[str, Any]:
    answer = admin.post("quotas/", {"shape": SHAPE, **body})
    assert answer.status_code == 201, answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_one_for_a_project_and_one_for_a_slice_out_of_it(admin: Caller, world: World, project: str) -> None:
    of_project = made(admin, project=project, guaranteed_gpus=8, most_gpus=16)
    of_slice = made(admin, slice=str(world.slice.pk), guaranteed_gpus=4)

    assert (of_project["name"], of_project["project"], of_project["slice"]) == (f"{project} {SHAPE}", project, None)
    assert (of_slice["name"], of_slice["project"], of_slice["slice"]) == (f"vision {SHAPE}", project, "vision")
    assert (of_slice["guaranteed_gpus"], of_slice["most_gpus"], of_slice["note"]) == (4, None, "")
    assert admin.get(f"quotas/{of_slice['id']}/").json() == of_slice


def test_what_is_held_borrowed_and_wanted_stands_beside_it(admin: Caller, owner: Caller, world: World, project: str, ask: Any) -> None:
    made(admin, project=project, guaranteed_gpus=16)
    made(admin, slice="vision", guaranteed_gpus=5)
    factories.started(world.slice, world.people.owner)
    owner.post("gprs/", {**ask, "nodes": 2, "gpus_per_node": 3})
    owner.post("gprs/", ask)
    factories.started(world.foreign_slice, world.people.outsider)

    rows = owner.get("quotas/").json()["results"]

    told = [(row["slice"], row["held_gpus"], row["borrowed_gpus"], row["wanted_gpus"]) for row in rows]
    assert told == [(None, 8, 0, 14), ("vision", 8, 3, 14)]


def test_a_project_s_counts_all_of_its_slices(admin: Caller, world: World, project: str) -> None:
    made(admin, project=project, guaranteed_gpus=8)
    speech = factories.make_slice(world.cluster, name="speech", owner=world.people.owner, of=world.slice.project)
    for slice_ in (world.slice, speech):
        factories.started(slice_, world.people.owner)

    (row,) = admin.get("quotas/").json()["results"]

    assert (row["held_gpus"], row["borrowed_gpus"]) == (16, 8)


def test_a_limit_below_what_is_held_is_taken_and_says_what_follows(admin: Caller, world: World) -> None:
    quota = made(admin, slice="vision")
    gpr = factories.started(world.slice, world.people.owner)

    after = admin.patch(f"quotas/{quota['id']}/", {"most_gpus": 4}).json()

    assert after["note"] == "8 are held, more than the 4 allowed: nothing is taken away, and nothing new starts until less is held."
    gpr.refresh_from_db()
    assert gpr.state == "PROVISIONING"
    assert admin.patch(f"quotas/{quota['id']}/", {"most_gpus": None}).json()["note"] == ""


def test_a_change_leaves_the_rest_and_is_recorded_with_its_reason(admin: Caller, project: str, world: World) -> None:
    quota = made(admin, project=project, guaranteed_gpus=8, most_gpus=16)

    after = admin.patch(f"quotas/{quota['id']}/", {"guaranteed_gpus": 12, "why": "A deadline."}).json()

    assert after == {**quota, "guaranteed_gpus": 12}
    event = Event.objects.get(kind="quota.changed")
    assert event.actor == world.people.admin
    assert event.message.endswith("12 GPUs guaranteed, 16 at most; before it was 8 GPUs guaranteed, 16 at most. A deadline.")


def test_a_contradiction_is_refused_in_its_field(admin: Caller, project: str) -> None:
    body = assert_problem(admin.post("quotas/", {"project": project, "shape": SHAPE, "guaranteed_gpus": 17}), 400, "invalid_input")

    assert body["errors"] == {"guaranteed_gpus": ["All clusters together have 16 GPUs of H100-80GB; 16 are left."]}
    assert not Quota.objects.exists()


BAD: list[tuple[str, dict[str, Any]]] = [
    ("project", {}),
    ("project", {"project": "canary-project", "slice": "vision"}),
    ("shape", {"slice": "vision", "shape": "A100"}),
    ("shape", {"slice": "vision", "shape": 5}),
    ("guaranteed_gpus", {"slice": "vision", "guaranteed_gpus": -1}),
    ("guaranteed_gpus", {"slice": "vision", "guaranteed_gpus": None}),
    ("most_gpus", {"slice": "vision", "most_gpus": "5"}),
    ("most_gpus", {"slice": "vision", "most_gpus": 2**31}),
    ("why", {"slice": "vision", "why": "a\u0000"}),
    ("owner", {"slice": "vision", "owner": "vision"}),
]


@pytest.mark.parametrize(("field", "body"), BAD)
def test_what_means_nothing_is_refused(field: str, body: dict[str, Any], admin: Caller, world: World) -> None:
    assert faults(admin.post("quotas/", {"shape": SHAPE, **body})) == [field]
    assert not Quota.objects.exists()


def test_what_it_is_for_must_be_there(admin: Caller, world: World) -> None:
    for owner in ({"slice": "nowhere"}, {"project": "nowhere"}):
        assert_problem(admin.post("quotas/", {"shape": SHAPE, **owner}), 404, "not_found")


def test_there_is_one_for_each_owner_and_shape_but_a_creation_may_be_repeated(admin: Caller, world: World) -> None:
    body = {"slice": "vision", "shape": SHAPE}

    first, second = admin.post("quotas/", body, key="k"), admin.post("quotas/", body, key="k")

    assert first.json() == second.json()
    assert_problem(admin.post("quotas/", body), 409, "conflict")


def test_a_deleted_one_is_gone_and_its_reason_is_kept(admin: Caller, world: World) -> None:
    quota = made(admin, slice="vision")

    assert admin.delete(f"quotas/{quota['id']}/?why=Over").status_code == 204

    assert_problem(admin.get(f"quotas/{quota['id']}/"), 404, "not_found")
    assert Event.objects.get(kind="quota.deleted").data["why"] == "Over"
    assert faults(admin.delete(f"quotas/{made(admin, slice='vision')['id']}/?why=%00")) == ["why"]


def test_the_list_can_be_narrowed(admin: Caller, world: World, project: str) -> None:
    factories.cluster(shape="A100-80GB")
    made(admin, project=project)
    made(admin, slice="vision", shape="A100-80GB")
    made(admin, project="canary-project")
    made(admin, slice="canary-slice")

    def names(**query: Any) -> list[str]:
        return [row["name"] for row in admin.get("quotas/", **query).json()["results"]]

    assert names() == ["canary-project H100-80GB", "canary-slice H100-80GB", f"{project} {SHAPE}", "vision A100-80GB"]
    assert names(project=project) == [f"{project} {SHAPE}", "vision A100-80GB"]
    assert names(project=str(world.slice.project_id)) == names(project=project)
    assert names(slice="vision") == ["vision A100-80GB"]
    assert names(shape="A100-80GB") == ["vision A100-80GB"]


def test_the_list_goes_on_page_by_page(admin: Caller, world: World, project: str) -> None:
    for owner in ({"project": project}, {"slice": "vision"}, {"project": "canary-project"}):
        made(admin, **owner)

    pages = [admin.get("quotas/", page_size=1)]
    while following := pages[-1].json()["next"]:
        pages.append(admin.get(following))

    assert [row["name"] for page in pages for row in page.json()["results"]] == [
        row["name"] for row in admin.get("quotas/").json()["results"]
    ]


def test_a_member_sees_his_own_and_his_project_s_and_changes_none(admin: Caller, owner: Caller, world: World, project: str) -> None:
    factories.make_slice(world.cluster, name="neighbor", of=world.slice.project)
    ids = {name: made(admin, slice=name)["id"] for name in ("vision", "neighbor", "canary-slice")}
    ids["project"] = made(admin, project=project)["id"]

    assert [row["id"] for row in owner.get("quotas/").json()["results"]] == [ids["project"], ids["vision"]]
    for name in ("neighbor", "canary-slice"):
        assert owner.get(f"quotas/{ids[name]}/").content == owner.get("quotas/nothing/").content
    assert owner.patch(f"quotas/{ids['vision']}/", {"most_gpus": 99}).status_code == 403
    assert owner.delete(f"quotas/{ids['vision']}/").status_code == 403


def test_what_a_limit_never_allows_is_refused_before_and_at_the_submit(admin: Caller, owner: Caller, world: World, ask: Any) -> None:
    made(admin, slice="vision", most_gpus=8)

    for path in ("gprs/estimate/", "gprs/"):
        body = assert_problem(owner.post(path, {**ask, "nodes": 2}), 400, "over_policy")
        assert (body["limit"], body["most"]) == ("most_gpus", 8)
