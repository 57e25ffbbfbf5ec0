from __future__ import annotations

from journal.models import Event
from slices.models import Project
from tests.api.conftest import Caller, World, assert_problem


def test_an_administrator_makes_one_and_it_is_recorded(admin: Caller) -> None:
    response = admin.post("projects/", {"name": "perception"})

    assert response.status_code == 201
    assert admin.get("projects/perception/").json() == admin.get(f"projects/{response.json()['id']}/").json() == response.json()
    event = Event.objects.get(kind="project.created")
    assert event.actor is not None
    assert event.actor.name == "admin"


def test_a_name_is_taken_once(admin: Caller) -> None:
    admin.post("projects/", {"name": "p"})

    assert_problem(admin.post("projects/", {"name": "p"}), 409, "conflict")
    assert Project.objects.count() == 1


def test_a_creation_may_be_repeated_with_its_key(admin: Caller) -> None:
    first, second = admin.post("projects/", {"name": "p"}, key="k"), admin.post("projects/", {"name": "p"}, key="k")

    assert first.json() == second.json()
    assert second["Idempotency-Replayed"] == "true"
    assert_problem(admin.post("projects/", {"name": "q"}, key="k"), 409, "conflict")


def test_a_member_sees_the_projects_of_his_slices(owner: Caller, outsider: Caller, admin: Caller, world: World) -> None:
    own = world.slice.project.name

    assert [row["name"] for row in owner.get("projects/").json()["results"]] == [own]
    assert [row["name"] for row in outsider.get("projects/").json()["results"]] == ["canary-project"]
    assert {row["name"] for row in admin.get("projects/").json()["results"]} == {own, "canary-project"}


def test_a_foreign_one_is_as_absent_as_none(owner: Caller, world: World) -> None:
    refs = ["canary-project", world.foreign_slice.project.pk, "nowhere", "%00"]

    assert len({owner.get(f"projects/{ref}/").content for ref in refs}) == 1
    assert_problem(owner.get("projects/canary-project/"), 404, "not_found")
