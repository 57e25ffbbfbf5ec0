"""`check-policies/`: what administrators set for checks, refused where it cannot be, and what an agent is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from inventory.models import CheckPolicy, Reservation
from inventory.services.sync import desired_set
from journal.models import Event
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import NOW, SHAPE

pytestmark = pytest.mark.django_db

PATH = "check-policies/"
NEW: dict[str, Any] = {
    "cluster": "aurora",
    "shape": SHAPE,
    "limits": {"nccl_bandwidth": 430.0},
    "images": {"nccl": "registry.example:5000/team/nccl-tests:2.17"},
    "skipped_steps": ["storage"],
    "storage_class": "fast-ssd",
    "rdma_subnet": "fe80:0000:0000:0001",
    "runtime_class": "nvidia",
    "pull_secret": "registry.example",
}


def test_what_is_set_is_read_as_it_was_said_and_told_in_the_journal(world: World, admin: Caller) -> None:
    made = admin.post(PATH, NEW).json()

    assert made == admin.get(f"{PATH}{made['id']}/").json() == admin.get(PATH).json()["results"][0]
    assert {name: made[name] for name in NEW} == NEW
    assert made["name"] == f"aurora, {SHAPE}"
    event = Event.objects.get(kind="check_policy.created")
    assert event.actor == world.people.admin
    assert "nccl_bandwidth 430" in event.message
    assert "without storage" in event.message


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"limits": {"warp": 1}}, "limits", "There is no limit warp; there are gpu_temperature"),
        ({"limits": {"gpu_temperature": -1}}, "limits", "gpu_temperature must be a number from 0 to 150 °C."),
        ({"limits": {"gpu_temperature": 151}}, "limits", "from 0 to 150"),
        ({"limits": {"gpu_temperature": "hot"}}, "limits", "number"),
        ({"limits": {"gpu_temperature": "nan"}}, "limits", "number"),
        ({"limits": [1]}, "limits", "a JSON object"),
        ({"images": {"virus": "a/b"}}, "images", "There is no image virus"),
        ({"images": {"nccl": "a b"}}, "images", "must be the reference of an image"),
        ({"images": {"nccl": "http://a/b"}}, "images", "must be the reference of an image"),
        ({"images": {"nccl": "a/" + "b" * 300}}, "images", "must be the reference of an image"),
        ({"skipped_steps": ["drain"]}, "skipped_steps", "drain cannot be left out; these can: gpu_health"),
        ({"skipped_steps": ["node_ready"]}, "skipped_steps", "cannot be left out"),
        ({"storage_class": "Fast SSD"}, "storage_class", "name of a storage class"),
        ({"rdma_subnet": "fe80::"}, "rdma_subnet", "first half of a GID"),
        ({"runtime_class": "NVIDIA"}, "runtime_class", "name of a runtime class"),
        ({"runtime_class": "nvidia-"}, "runtime_class", "name of a runtime class"),
        ({"pull_secret": "egs-system/mine"}, "pull_secret", "name of a Secret in egs-system"),
        ({"cluster": "nowhere"}, None, ""),
        ({"color": "red"}, "color", "no such field"),
    ],
)
def test_nonsense_is_refused_with_the_field_and_what_may_be(
    changes: dict[str, Any], field: str | None, says: str, world: World, admin: Caller
) -> None:
    refused = admin.post(PATH, {**NEW, **changes})

    if field is None:
        assert_problem(refused, 404, "not_found")
    else:
        assert faults(refused) == [field]
        assert says in str(refused.json()["errors"])
    assert not CheckPolicy.objects.exists()


def test_a_shape_of_a_cluster_has_one_policy(world: World, admin: Caller) -> None:
    assert admin.post(PATH, NEW).status_code == 201

    assert "already" in assert_problem(admin.post(PATH, NEW), 409, "conflict")["detail"]
    assert admin.post(PATH, {**NEW, "shape": ""}).status_code == 201


def test_a_change_leaves_the_rest_and_a_deletion_leaves_nothing(world: World, admin: Caller) -> None:
    made = admin.post(PATH, NEW).json()

    changed = admin.patch(f"{PATH}{made['id']}/", {"limits": {}, "why": "It was too low."}).json()

    assert (changed["limits"], changed["images"]) == ({}, NEW["images"])
    assert "Reason: It was too low." in Event.objects.get(kind="check_policy.changed").message
    assert admin.delete(f"{PATH}{made['id']}/").status_code == 204
    assert admin.get(PATH).json()["results"] == []


def test_an_agent_is_told_at_once_and_the_words_of_the_shape_go_before_the_cluster_s(world: World, admin: Caller) -> None:
    factories.started(world.slice, world.people.owner, nodes=1)
    world.cluster.refresh_from_db()
    before = world.cluster.generation
    factories.check_policy(
        world.cluster, limits={"nccl_bandwidth": 1.0, "rdma_rate": 100.0}, images={"probe": "a/b"}, runtime_class="runc", pull_secret="mine"
    )
    factories.check_policy(world.cluster, shape=SHAPE, limits={"nccl_bandwidth": 2.0}, runtime_class="nvidia")
    factories.check_policy(world.cluster, shape="B300-288GB", limits={"nccl_bandwidth": 3.0})

    (told,) = desired_set(cluster_id=world.cluster.pk, now=NOW)

    assert (told.checks.limits, told.checks.images) == ({"nccl_bandwidth": 2.0, "rdma_rate": 100.0}, {"probe": "a/b"})
    assert (told.checks.runtime_class, told.checks.pull_secret) == ("nvidia", "mine")
    world.cluster.refresh_from_db()
    assert world.cluster.generation > before


def test_a_box_goes_without_the_steps_that_are_left_out(world: World, admin: Caller) -> None:
    factories.check_policy(world.cluster, skipped_steps=["storage", "exit_nccl"])

    gpr = factories.started(world.slice, world.people.owner, nodes=1)

    row = Reservation.objects.get(gpr=gpr)
    assert "storage" not in row.entry_steps
    assert "exit_nccl" not in row.exit_steps
    assert {"node_ready", "network"} <= set(row.entry_steps)
    assert {"drain", "node_clean"} <= set(row.exit_steps)
