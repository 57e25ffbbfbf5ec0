"""PATCH gprs/{id}/: change a request while it waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.clock import db_now
from gpr.models import Gpr, GprState
from journal.models import Event
from tests import factories
from tests.api.conftest import Caller, World, assert_problem


@pytest.fixture
def gpr(world: World) -> Gpr:
    return factories.gpr(world.slice, world.people.owner, name="old")


def test_what_is_sent_changes_and_all_else_stays(owner: Caller, gpr: Gpr) -> None:
    before = owner.get(f"gprs/{gpr.pk}/").json()

    after = owner.patch(f"gprs/{gpr.pk}/", {"name": "new", "nodes": 2, "duration_s": "2h"}).json()

    changed = {name for name in after if after[name] != before[name]} - {"explanation", "promised_start_at", "estimate"}
    assert changed == {"name", "nodes", "duration_s", "remaining_s", "version"}
    assert (after["name"], after["nodes"], after["duration_s"], after["version"]) == ("new", 2, 7200, 2)
    assert after["queued_at"] == before["queued_at"]


def test_asking_for_less_or_ranking_higher_costs_nobody_his_place(owner: Caller, world: World) -> None:
    """The slots behind it must not move up into its own while it is planned anew."""
    runs = factories.started(world.slice, world.people.owner, nodes=2)
    waiting = [factories.gpr(factories.make_slice(world.cluster, owner=world.people.owner), world.people.owner, nodes=2) for _ in range(3)]
    before = [owner.get(f"gprs/{gpr.pk}/").json()["promised_start_at"] for gpr in waiting]

    assert runs.state == "PROVISIONING"
    for change in ({"name": "other"}, {"duration_s": 3600}, {"duration_s": 3599}, {"priority": 150}):
        after = owner.patch(f"gprs/{waiting[0].pk}/", change).json()
        assert (after["promised_start_at"], after["promise_moves"]) == (before[0], [])
        assert [owner.get(f"gprs/{gpr.pk}/").json()["promised_start_at"] for gpr in waiting] == before


def test_a_smaller_request_that_may_start_sooner_is_promised_that(owner: Caller, world: World) -> None:
    for duration_s in (3600, 3 * 3600):
        factories.started(world.slice, world.people.owner, nodes=1, duration_s=duration_s)
    other = factories.make_slice(world.cluster, owner=world.people.owner)
    waiting = factories.gpr(other, world.people.owner, nodes=2)
    before = owner.get(f"gprs/{waiting.pk}/").json()

    told = owner.post(f"gprs/{waiting.pk}/estimate-change/", {"nodes": 1}).json()
    assert owner.get(f"gprs/{waiting.pk}/").json() == before
    after = owner.patch(f"gprs/{waiting.pk}/", {"nodes": 1}).json()

    assert [offer["promised_start_at"] for offer in told["offers"]] == [after["promised_start_at"]]
    assert after["promised_start_at"] < before["promised_start_at"]
    assert after["promised_start_at"] == after["estimate"]["start_at"]


def test_a_larger_request_that_starts_later_says_that_its_change_moved_it(owner: Caller, world: World) -> None:
    waits_for = factories.started(world.slice, world.people.owner, nodes=1)
    other = factories.make_slice(world.cluster, owner=world.people.owner)
    waiting = factories.gpr(other, world.people.owner, nodes=1)

    after = owner.patch(f"gprs/{waiting.pk}/", {"nodes": 2}).json()

    (move,) = after["promise_moves"]
    assert (move["cause"], move["cause_id"], move["new_start_at"]) == ("changed", str(waiting.pk), after["promised_start_at"])
    assert [blocker["id"] for blocker in after["explanation"]["blockers"]] == [str(waits_for.pk)]


def test_what_waits_for_approval_cannot_be_changed_into_what_never_starts(owner: Caller, world: World) -> None:
    asking = factories.gpr(world.slice, world.people.owner, priority=300)

    assert_problem(owner.patch(f"gprs/{asking.pk}/", {"nodes": 9999}), 400, "can_never_start")

    assert owner.get(f"gprs/{asking.pk}/").json()["nodes"] == 1


def test_what_was_granted_once_needs_no_second_approval(owner: Caller, admin: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)
    admin.post(f"gprs/{gpr.pk}/priority/", {"priority": 250})

    assert owner.patch(f"gprs/{gpr.pk}/", {"duration_s": 1800}).json()["state"] == "QUEUED"
    assert owner.patch(f"gprs/{gpr.pk}/", {"priority": 240}).json()["state"] == "QUEUED"
    assert owner.patch(f"gprs/{gpr.pk}/", {"priority": 260}).json()["state"] == "PENDING_APPROVAL"


@pytest.mark.parametrize(("header", "status"), [('"1"', 200), ("*", 200), ('"7"', 409), ('"x"', 409), ("1", 400)])
def test_the_version_may_come_as_if_match(header: str, status: int, owner: Caller, gpr: Gpr) -> None:
    url = f"/api/v1/gprs/{gpr.pk}/"

    assert owner.client.patch(url, {"name": "new"}, headers={"If-Match": header}).status_code == status


def test_an_empty_change_changes_nothing_but_the_version(owner: Caller, gpr: Gpr) -> None:
    assert owner.patch(f"gprs/{gpr.pk}/", {}).status_code == 200


def test_a_stale_version_is_a_conflict_and_changes_nothing(owner: Caller, gpr: Gpr) -> None:
    assert owner.patch(f"gprs/{gpr.pk}/", {"name": "new", "version": 1}).status_code == 200

    body = assert_problem(owner.patch(f"gprs/{gpr.pk}/", {"name": "newer", "version": 1}), 409, "stale_version")

    assert body["version"] == 2
    assert owner.get(f"gprs/{gpr.pk}/").json()["name"] == "new"


BAD: list[dict[str, Any]] = [
    {"version": "1"},
    {"version": True},
    {"slice": "vision"},
    {"state": "ACTIVE"},
    {"nodes": 0},
    {"clusters": "aurora"},
]
BAD += [{"nodes": None}, {"name": ""}, {"shape": "H200"}, {"shape": ""}, {"duration_s": 0}, {"priority": 301}, {"model": []}, {"typo": 1}]
BAD += [{"earliest_start_at": "2001-01-01T00:00:00Z"}, {"gpus_per_node": 0}, {"owner": "teammate"}, {"name": "a\u0000"}]


def test_a_change_is_checked_as_a_request_is(owner: Caller, gpr: Gpr) -> None:
    for body in BAD:
        errors = assert_problem(owner.patch(f"gprs/{gpr.pk}/", body), 400, "invalid_input")["errors"]

        assert list(errors) == list(body)
        gpr.refresh_from_db()
        assert (gpr.version, gpr.name) == (1, "old")


def test_what_could_never_start_is_refused_and_the_old_request_stands(owner: Caller, gpr: Gpr) -> None:
    before = owner.get(f"gprs/{gpr.pk}/").json()

    assert_problem(owner.patch(f"gprs/{gpr.pk}/", {"nodes": 3}), 400, "can_never_start")

    assert owner.get(f"gprs/{gpr.pk}/").json() == before


def test_beyond_the_policy_it_goes_back_to_approval_and_within_it_into_the_queue(owner: Caller, gpr: Gpr) -> None:
    told = owner.post(f"gprs/{gpr.pk}/estimate-change/", {"priority": 250}).json()
    waiting = owner.patch(f"gprs/{gpr.pk}/", {"priority": 250}).json()
    assert told["approval_reasons"] == waiting["approval_reasons"]
    assert (waiting["state"], waiting["estimate"], waiting["promised_start_at"]) == ("PENDING_APPROVAL", None, None)
    assert len(waiting["approval_reasons"]) == 1

    queued = owner.patch(f"gprs/{gpr.pk}/", {"priority": 50}).json()
    assert (queued["state"], queued["approval_reasons"]) == ("QUEUED", [])
    assert queued["promised_start_at"] is not None


def test_clusters_are_set_and_cleared_by_name(owner: Caller, gpr: Gpr) -> None:
    assert owner.patch(f"gprs/{gpr.pk}/", {"clusters": ["aurora"]}).json()["clusters"] == ["aurora"]
    assert owner.patch(f"gprs/{gpr.pk}/", {"clusters": []}).json()["clusters"] == []
    assert_problem(owner.patch(f"gprs/{gpr.pk}/", {"clusters": ["nowhere"]}), 404, "not_found")


def test_a_gpr_that_no_longer_waits_cannot_be_changed(owner: Caller, world: World) -> None:
    gpr = factories.started(world.slice, world.people.owner)

    body = assert_problem(owner.patch(f"gprs/{gpr.pk}/", {"name": "new"}), 409, "wrong_state")

    assert body["state"] == "PROVISIONING"
    assert_problem(owner.post(f"gprs/{gpr.pk}/estimate-change/", {"name": "new"}), 409, "wrong_state")


@pytest.mark.parametrize(("persona", "status"), [("owner", 200), ("teammate", 403), ("outsider", 404), ("admin", 200), ("reader", 403)])
def test_who_may_change_it(persona: str, status: int, gpr: Gpr, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue(persona).patch(f"gprs/{gpr.pk}/", {"name": "new"}).status_code == status


def test_the_change_is_recorded_with_who_did_it(admin: Caller, gpr: Gpr) -> None:
    admin.patch(f"gprs/{gpr.pk}/", {"name": "new"})

    event = Event.objects.get(kind="gpr.edited")
    assert (event.actor.name if event.actor else None, event.data) == ("admin", {"before": {"name": "old"}, "after": {"name": "new"}})


def test_a_start_time_that_has_passed_since_does_not_stand_in_the_way(owner: Caller, gpr: Gpr) -> None:
    """It waits for GPUs now; its owner may still rename it."""
    Gpr.objects.filter(pk=gpr.pk).update(earliest_start_at=db_now() - timedelta(hours=1))

    response = owner.patch(f"gprs/{gpr.pk}/", {"name": "new"})

    assert response.status_code == 200, response.content


def test_a_gpr_that_waits_for_approval_can_be_changed_too(owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner, priority=250)

    assert owner.patch(f"gprs/{gpr.pk}/", {"name": "new"}).json()["state"] == GprState.PENDING_APPROVAL
