"""`maintenance/`: announced closures, whom they meet, and what is refused."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from core.clock import db_now
from core.errors import Conflict
from gpr.allocation.allocator import tick
from gpr.models import GprState, Promise, PromiseMove
from inventory.models import MaintenanceWindow
from journal.models import Event
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import hold

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def window(begin: timedelta = 2 * HOUR, length: timedelta = HOUR, **place: Any) -> dict[str, Any]:
    starts_at = db_now() + begin
    return {
        **(place or {"cluster": "aurora"}),
        "starts_at": starts_at.isoformat(),
        "ends_at": (starts_at + length).isoformat(),
        "reason": "New firmware.",
    }


@pytest.mark.parametrize("persona", ["owner", "teammate", "outsider", "admin"])
def test_who_may_use_the_cluster_reads_what_is_announced_and_only_administrators_learn_whom_it_meets(
    persona: str, world: World, admin: Caller, as_user: Any
) -> None:
    factories.active(world.slice, world.people.owner, duration_s=3 * 3600)
    made = admin.post("maintenance/", window()).json()

    told = as_user(getattr(world.people, persona)).get(f"maintenance/{made['id']}/").json()

    assert (told["name"], told["state"], told["reason"]) == ("Cluster aurora", "PLANNED", "New firmware.")
    assert (told["effects"] is not None) == (persona == "admin")


def test_whose_clusters_it_does_not_meet_never_learns_of_it(world: World, admin: Caller, owner: Caller) -> None:
    factories.cluster("elsewhere", nodes=1)
    made = admin.post("maintenance/", window(cluster="elsewhere")).json()

    assert owner.get("maintenance/").json()["results"] == []
    assert_problem(owner.get(f"maintenance/{made['id']}/"), 404, "not_found")


def test_nothing_starts_that_would_reach_into_it_and_what_is_over_before_does(world: World, admin: Caller) -> None:
    admin.post("maintenance/", window(2 * HOUR))

    short = factories.gpr(world.slice, world.people.owner, duration_s=3600)
    long = factories.gpr(world.foreign_slice, world.people.outsider, duration_s=3 * 3600)
    tick(now=db_now())

    for gpr in (short, long):
        gpr.refresh_from_db()
    assert (short.state, long.state) == (GprState.PROVISIONING, GprState.QUEUED)
    assert long.planned_start_at is not None
    assert long.planned_start_at >= MaintenanceWindow.objects.get().ends_at - timedelta(seconds=1)
    assert long.explanation["reason"] == "waits_for_maintenance"


def test_a_promise_that_it_meets_moves_with_it_as_the_cause_and_the_preview_said_so(world: World, admin: Caller) -> None:
    waits = factories.gpr(world.slice, world.people.owner, nodes=2, duration_s=3600, earliest_start_at=db_now() + HOUR)
    tick(now=db_now())
    asked = window(90 * timedelta(minutes=1), 4 * HOUR)

    preview = admin.post("maintenance/preview/", asked).json()
    assert MaintenanceWindow.objects.count() == 0
    made = admin.post("maintenance/", asked).json()
    tick(now=db_now())

    (move,) = PromiseMove.objects.filter(gpr=waits)
    assert (move.cause, move.cause_id) == ("maintenance", made["id"])
    assert [(row["gpr"], row["slice"], row["owner"]) for row in preview["moved"]] == [(waits.name, "vision", "owner")]
    assert datetime.fromisoformat(preview["moved"][0]["new_start_at"]) == move.new_start_at
    assert [row["gpr"] for row in admin.get(f"maintenance/{made['id']}/").json()["effects"]["moved"]] == [waits.name]
    assert Promise.objects.get(gpr=waits).promised_start_at == move.new_start_at


def test_running_boxes_that_reach_into_it_are_named_and_run_on(world: World, admin: Caller) -> None:
    runs = factories.active(world.slice, world.people.owner, duration_s=3 * 3600)
    factories.active(world.foreign_slice, world.people.outsider, duration_s=600)

    made = admin.post("maintenance/", window()).json()
    tick(now=db_now())

    assert [row["gpr"] for row in made["effects"]["boxes"]] == [runs.name]
    runs.refresh_from_db()
    assert runs.state == GprState.ACTIVE


def test_a_running_box_is_not_extended_into_it(world: World, owner: Caller, admin: Caller) -> None:
    runs = factories.active(world.slice, world.people.owner, duration_s=3600)
    admin.post("maintenance/", window())

    body = assert_problem(owner.post(f"gprs/{runs.pk}/extend/", {"extra_s": 7200}), 409, "conflict")

    assert "maintenance" in body["detail"]
    assert owner.post(f"gprs/{runs.pk}/extend/", {"extra_s": 60}).status_code == 200


def test_a_box_whose_plan_is_older_than_the_announcement_is_not_held(world: World, admin: Caller) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)
    node = world.cluster.nodes.get(name="aurora-0")
    starts_at = db_now()
    admin.post("maintenance/", window(HOUR, node="aurora-0"))

    with pytest.raises(Conflict, match="closed for maintenance"):
        hold(gpr, node, starts_at=starts_at, ends_at=starts_at + 2 * HOUR)
    assert hold(gpr, node, starts_at=starts_at, ends_at=starts_at + HOUR / 2)


@pytest.mark.parametrize(
    ("begin", "length", "field"),
    [
        (-2 * HOUR, HOUR, "starts_at"),
        (timedelta(days=400), HOUR, "starts_at"),
        (HOUR, timedelta(0), "ends_at"),
        (HOUR, -HOUR, "ends_at"),
        (HOUR, timedelta(days=91), "ends_at"),
    ],
)
def test_a_time_that_cannot_be_is_refused(begin: timedelta, length: timedelta, field: str, world: World, admin: Caller) -> None:
    asked = window(begin, length)

    assert faults(admin.post("maintenance/", asked)) == [field]
    assert faults(admin.post("maintenance/preview/", asked)) == [field]


def test_two_for_the_same_place_do_not_overlap_and_a_node_is_not_its_cluster(world: World, admin: Caller) -> None:
    assert admin.post("maintenance/", window(node="aurora-0")).status_code == 201

    body = assert_problem(admin.post("maintenance/", window(2.5 * HOUR, node="aurora-0")), 409, "conflict")

    assert "Node aurora-0 is closed already" in body["detail"]
    for other in (window(2.5 * HOUR, node="aurora-1"), window(2.5 * HOUR, cluster="aurora")):
        assert admin.post("maintenance/", other).status_code == 201
    assert admin.post("maintenance/", window(3 * HOUR + timedelta(minutes=1), node="aurora-0")).status_code == 201


def test_a_node_or_a_cluster_is_named_and_not_both(world: World, admin: Caller) -> None:
    asked = window()
    both, neither = {**asked, "node": "aurora-0"}, {name: value for name, value in asked.items() if name != "cluster"}

    assert faults(admin.post("maintenance/", both)) == ["cluster"]
    assert faults(admin.post("maintenance/", neither)) == ["cluster"]


def test_what_is_canceled_closes_nothing_any_more_and_stays_in_the_list(world: World, admin: Caller) -> None:
    made = admin.post("maintenance/", window(timedelta(0))).json()
    assert {row["state"] for row in admin.get("nodes/").json()["results"]} == {"unusable"}

    assert admin.delete(f"maintenance/{made['id']}/").status_code == 204

    assert_problem(admin.delete(f"maintenance/{made['id']}/"), 409, "wrong_state")
    assert {row["state"] for row in admin.get("nodes/").json()["results"]} == {"free"}
    assert [row["state"] for row in admin.get("maintenance/", canceled="true").json()["results"]] == ["CANCELED"]
    assert factories.started(world.slice, world.people.owner).state == GprState.PROVISIONING
    assert list(Event.objects.filter(kind__startswith="maintenance").order_by("pk").values_list("kind", flat=True)) == [
        "maintenance.announced",
        "maintenance.canceled",
    ]
