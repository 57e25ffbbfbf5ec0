"""Quotas contradict neither the inventory nor each other, and who may know of which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from accounts.models import User
from core.errors import Conflict, InvalidInput, NotFound
from inventory.models import Node
from journal.models import Event
from slices.models import Project, Quota, Slice
from slices.quotas.services import quota_change, quota_create, quota_delete
from slices.selectors import QUOTA_ORDER, quota_for, quotas_visible_to
from tests.builders import NOW, SHAPE, make_cluster, make_project, make_slice, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def project() -> Project:
    """40 GPUs of its shape are there: 4 nodes of 10."""
    make_cluster("aurora", nodes=4, gpus=10)
    return make_project("team-a")


@pytest.fixture
def vision(project: Project) -> Slice:
    return make_slice(name="vision", project=project)


@pytest.fixture
def admin() -> User:
    return make_user("admin", is_admin=True)


def give(owner: Project | Slice, guaranteed: int = 0, most: int | None = None, *, shape: str = SHAPE) -> Quota:
    return quota_create(owner=owner, shape=shape, change={"guaranteed_gpus": guaranteed, "most_gpus": most}, actor=None, now=NOW)


def refused(field: str, work: Callable[[], object]) -> str:
    """Returns the only sentence about the only field."""
    with pytest.raises(InvalidInput) as refusal:
        work()
    ((name, (text,)),) = refusal.value.extra["errors"].items()
    assert name == field
    return str(text)


def test_projects_are_guaranteed_what_there_is_and_no_more(project: Project, admin: User) -> None:
    other = make_project("team-b")
    give(project, 24)

    told = refused("guaranteed_gpus", lambda: give(other, 20))

    assert told == "All clusters together have 40 GPUs of H100-80GB; 24 of them are guaranteed to other projects; 16 are left."
    quota = give(other, 16)
    with pytest.raises(InvalidInput):
        quota_change(quota=quota, change={"guaranteed_gpus": 17}, actor=admin, now=NOW)


def test_a_guarantee_may_fall_even_when_nodes_have_gone(project: Project, admin: User) -> None:
    quota = give(project, 40)
    make_cluster_smaller()

    assert quota_change(quota=quota, change={"guaranteed_gpus": 39}, actor=admin, now=NOW).guaranteed_gpus == 39
    told = refused("guaranteed_gpus", lambda: quota_change(quota=quota, change={"guaranteed_gpus": 40}, actor=admin, now=NOW))
    assert told == "All clusters together have 20 GPUs of H100-80GB; 20 are left."


def make_cluster_smaller() -> None:
    for node in Node.objects.order_by("name")[:2]:
        Node.objects.filter(pk=node.pk).update(gone_at=NOW)


def test_workspaces_are_guaranteed_a_part_of_what_their_project_is(project: Project, vision: Slice) -> None:
    speech = make_slice(name="speech", project=project)
    assert refused("guaranteed_gpus", lambda: give(vision, 1)) == "Project team-a is guaranteed 0 GPUs of H100-80GB; 0 are left."
    give(project, 20)
    give(vision, 12)

    told = refused("guaranteed_gpus", lambda: give(speech, 10))

    assert told == "Project team-a is guaranteed 20 GPUs of H100-80GB; 12 of them are guaranteed to its other workspaces; 8 are left."
    give(speech, 8)


def test_a_project_cannot_be_guaranteed_less_than_its_workspaces_are(project: Project, vision: Slice, admin: User) -> None:
    quota = give(project, 20)
    give(vision, 12)

    told = refused("guaranteed_gpus", lambda: quota_change(quota=quota, change={"guaranteed_gpus": 11}, actor=admin, now=NOW))

    assert told == "Its workspaces are guaranteed 12 of them: it cannot be less."
    with pytest.raises(Conflict, match="12 of its GPUs are guaranteed to workspaces of project team-a"):
        quota_delete(quota=quota, actor=admin, now=NOW)
    quota_change(quota=quota, change={"guaranteed_gpus": 12}, actor=admin, now=NOW)


def test_no_workspace_may_hold_more_than_its_project(project: Project, vision: Slice, admin: User) -> None:
    of_project, of_slice = give(project, 0, 20), give(vision, 0, 16)

    more = refused("most_gpus", lambda: quota_change(quota=of_slice, change={"most_gpus": 21}, actor=admin, now=NOW))
    less = refused("most_gpus", lambda: quota_change(quota=of_project, change={"most_gpus": 15}, actor=admin, now=NOW))

    assert more == "Project team-a may hold 20 at most, and so may its workspaces."
    assert less == "Workspace vision may hold 16: let it hold less first."
    quota_change(quota=of_slice, change={"most_gpus": None}, actor=admin, now=NOW)
    quota_change(quota=of_project, change={"most_gpus": 15}, actor=admin, now=NOW)


def test_nobody_may_hold_less_than_he_is_guaranteed(project: Project, admin: User) -> None:
    told = refused("most_gpus", lambda: give(project, 8, 7))

    assert told == "Must not be less than what is guaranteed, 8 GPUs."
    quota = give(project, 8, 8)
    quota_change(quota=quota, change={"guaranteed_gpus": 9, "most_gpus": None}, actor=admin, now=NOW)


def test_every_contradiction_is_told_at_once(project: Project) -> None:
    with pytest.raises(InvalidInput) as refusal:
        give(project, 41, 8)

    assert sorted(refusal.value.extra["errors"]) == ["guaranteed_gpus", "most_gpus"]


def test_an_unknown_shape_is_refused_with_the_known_ones(project: Project) -> None:
    assert refused("shape", lambda: give(project, shape="A100")) == "No cluster has A100. There are: H100-80GB."


def test_there_is_one_quota_for_each_owner_and_shape(project: Project, vision: Slice) -> None:
    for owner in (project, vision):
        give(owner)
        with pytest.raises(Conflict, match=f"There is already a quota of H100-80GB for .* {owner.name}"):
            give(owner)


def test_the_database_itself_keeps_it_to_one_owner_and_its_limits_in_order(project: Project, vision: Slice) -> None:
    for fields in ({}, {"project": project, "slice": vision}, {"project": project, "guaranteed_gpus": 2, "most_gpus": 1}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Quota.objects.create(shape=SHAPE, created_at=NOW, **fields)


def test_each_change_says_who_why_and_what_it_was(project: Project, vision: Slice, admin: User) -> None:
    give(project, 8)
    quota = quota_create(owner=vision, shape=SHAPE, change={"guaranteed_gpus": 4}, actor=admin, now=NOW, why="A deadline.")
    quota_change(quota=quota, change={"most_gpus": 6}, actor=admin, now=NOW)
    quota_delete(quota=quota, actor=admin, now=NOW, why="It is over.")

    events = list(Event.objects.filter(slice_id=vision.pk, kind__startswith="quota.").order_by("id"))
    assert [event.message for event in events] == [
        "The quota of H100-80GB for workspace vision was made: 4 GPUs guaranteed, no limit. A deadline.",
        "The quota of H100-80GB for workspace vision was changed: 4 GPUs guaranteed, 6 at most; before it was 4 GPUs guaranteed, no limit.",
        "The quota of H100-80GB for workspace vision was deleted; it was 4 GPUs guaranteed, 6 at most. It is over.",
    ]
    assert {event.actor for event in events} == {admin}
    assert events[0].data == {
        "project": "team-a",
        "slice": "vision",
        "shape": SHAPE,
        "guaranteed_gpus": 4,
        "most_gpus": None,
        "why": "A deadline.",
    }


def test_a_change_that_changes_nothing_is_no_event(project: Project, admin: User) -> None:
    quota = give(project, 8, 16)

    quota_change(quota=quota, change={"guaranteed_gpus": 8}, actor=admin, now=NOW)
    quota_change(quota=quota, change={}, actor=admin, now=NOW)

    assert not Event.objects.filter(kind="quota.changed").exists()


def test_what_is_gone_is_not_changed(project: Project, admin: User) -> None:
    quota = give(project)
    quota_delete(quota=quota, actor=admin, now=NOW)

    with pytest.raises(NotFound):
        quota_change(quota=quota, change={}, actor=admin, now=NOW)
    with pytest.raises(NotFound):
        quota_delete(quota=quota, actor=admin, now=NOW)


@pytest.mark.parametrize(
    ("persona", "seen"),
    [
        ("owner", ["team-a H100-80GB", "vision H100-80GB"]),
        ("teammate", ["team-a H100-80GB", "vision H100-80GB"]),
        ("outsider", ["canary H100-80GB", "canary-slice H100-80GB"]),
        ("admin", ["canary H100-80GB", "canary-slice H100-80GB", "team-a H100-80GB", "neighbor H100-80GB", "vision H100-80GB"]),
    ],
)
def test_a_member_sees_those_of_his_workspaces_and_of_their_projects(persona: str, seen: list[str], project: Project) -> None:
    people: dict[str, Any] = {name: make_user(name, is_admin=name == "admin") for name in ("owner", "teammate", "outsider", "admin")}
    stranger = make_project("canary")
    slices = [
        make_slice(name="vision", project=project, owner=people["owner"], viewers=[people["teammate"]]),
        make_slice(name="neighbor", project=project),
        make_slice(name="canary-slice", project=stranger, owner=people["outsider"]),
    ]
    quotas = [*(give(owner) for owner in (project, stranger)), *(give(owner) for owner in slices)]

    assert [str(quota) for quota in quotas_visible_to(people[persona]).order_by(*QUOTA_ORDER)] == seen
    for quota in quotas:
        if str(quota) in seen:
            assert quota_for(people[persona], str(quota.pk)) == quota
        else:
            with pytest.raises(NotFound):
                quota_for(people[persona], quota.pk)
