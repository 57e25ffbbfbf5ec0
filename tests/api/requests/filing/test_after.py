"""A request that starts after another one: who may name which, and what others see of it."""

from __future__ import annotations

from typing import Any

import pytest

from gpr.allocation.allocator import tick
from planner.explain import STRANGER
from slices.models import Role
from slices.services import member_set
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import NOW


@pytest.fixture
def prep(owner: Caller, ask: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = owner.post("gprs/", {**ask, "name": "prep"}).json()
    return made


def test_it_names_the_other_by_name_or_id_and_says_why_it_waits(owner: Caller, ask: dict[str, Any], prep: dict[str, Any]) -> None:
    (offer, *_) = owner.post("gprs/estimate/", {**ask, "after": "prep"}).json()["offers"]
    assert offer["explanation"]["reason"] == "waits_for_predecessor"
    behind = [owner.post("gprs/", {**ask, "name": "train", "after": word}).json() for word in ("prep", prep["id"])]

    for gpr in behind:
        assert (gpr["after"], gpr["after_id"], gpr["after_condition"]) == ("prep", prep["id"], "any")
        assert gpr["promised_start_at"] > prep["promised_start_at"]
    tick()
    told = owner.get(f"gprs/{behind[0]['id']}/").json()["explanation"]
    assert (told["reason"], told["blockers"][0]["id"]) == ("waits_for_predecessor", prep["id"])
    assert told["sentence"].startswith("It starts after prep, which ends in ")
    assert owner.get("gprs/").json()["results"][0]["after"] == "prep"


def test_it_can_be_changed_while_it_waits_but_never_into_a_circle(owner: Caller, ask: dict[str, Any], prep: dict[str, Any]) -> None:
    then = owner.post("gprs/", {**ask, "name": "train", "after": "prep", "after_condition": "success"}).json()

    assert faults(owner.patch(f"gprs/{prep['id']}/", {"after": "train"})) == ["after"]
    free = owner.patch(f"gprs/{then['id']}/", {"after": None}).json()
    assert free["after_condition"] == "any"
    again = owner.patch(f"gprs/{then['id']}/", {"after": "prep"}).json()
    assert owner.patch(f"gprs/{then['id']}/", {"after": ""}).json()["after"] is None

    assert (free["after"], free["after_id"]) == (None, None)
    assert free["promised_start_at"] <= then["promised_start_at"]
    assert (again["after"], again["after_condition"]) == ("prep", "any")
    assert faults(owner.post("gprs/", {**ask, "after": "prep", "after_condition": "never"})) == ["after_condition"]


def test_a_condition_without_a_predecessor_is_refused_beside_its_field(owner: Caller, ask: dict[str, Any], prep: dict[str, Any]) -> None:
    for path in ("gprs/", "gprs/estimate/"):
        assert faults(owner.post(path, {**ask, "after_condition": "success"})) == ["after_condition"]
    assert faults(owner.patch(f"gprs/{prep['id']}/", {"after_condition": "success"})) == ["after_condition"]
    then = owner.post("gprs/", {**ask, "name": "train", "after": "prep"}).json()
    assert owner.patch(f"gprs/{then['id']}/", {"after_condition": "success"}).json()["after_condition"] == "success"
    assert faults(owner.patch(f"gprs/{then['id']}/", {"after": None, "after_condition": "success"})) == ["after_condition"]
    assert owner.post("gprs/", {**ask, "name": "free", "after_condition": "any"}).status_code == 201


def test_nobody_starts_after_what_they_may_not_see_or_what_is_of_a_project_that_is_not_theirs(
    owner: Caller, outsider: Caller, admin: Caller, world: World, ask: dict[str, Any], prep: dict[str, Any]
) -> None:
    elsewhere = {**ask, "slice": world.foreign_slice.name}

    for word in ("prep", prep["id"]):
        assert_problem(outsider.post("gprs/", {**elsewhere, "after": word}), 404, "not_found")
    assert faults(admin.post("gprs/", {**elsewhere, "after": prep["id"]})) == ["after"]
    member_set(slice_=world.slice, user=world.people.outsider, role=Role.VIEWER, actor=None, now=NOW)
    assert outsider.post("gprs/", {**elsewhere, "after": prep["id"]}).status_code == 201


def test_who_may_not_see_the_other_learns_nothing_of_it_but_that_there_is_one(
    world: World, ask: dict[str, Any], prep: dict[str, Any], owner: Caller, as_user: Any
) -> None:
    reader = factories.user("reader")
    beside = factories.make_slice(world.cluster, name="beside", owner=world.people.owner, viewers=[reader], of=world.slice.project)
    made = owner.post("gprs/", {**ask, "slice": beside.name, "name": "train", "after": "prep", "after_condition": "success"}).json()
    tick()
    reads = as_user(reader)

    seen = reads.get(f"gprs/{made['id']}/").json()
    assert (seen["after"], seen["after_id"]) == (STRANGER, None)
    assert seen["explanation"]["sentence"] == f"It starts after {STRANGER}, which has to end first."
    assert owner.post(f"gprs/{prep['id']}/release/", {}).status_code in {200, 409}
    for path in (f"gprs/{made['id']}/", "gprs/", "queue/", f"events/?gpr={made['id']}", "events/"):
        answer = reads.get(path)
        assert answer.status_code == 200
        assert prep["id"] not in answer.content.decode()
        assert "prep" not in answer.content.decode()


def test_after_one_that_waits_for_approval_no_start_is_offered_and_it_may_be_filed(
    owner: Caller, ask: dict[str, Any], world: World
) -> None:
    first = owner.post("gprs/", {**ask, "name": "long", "duration_s": world.slice.duration_approval_s + 1}).json()
    assert first["state"] == "PENDING_APPROVAL"

    assert owner.post("gprs/estimate/", {**ask, "after": "long"}).json()["offers"] == []
    then = owner.post("gprs/", {**ask, "name": "train", "after": "long"}).json()

    assert (then["state"], then["promised_start_at"], then["estimate"]) == ("QUEUED", None, None)
    assert then["explanation"]["sentence"] == "It starts after long, which has no place in the plan yet, and nothing is promised to it."
    assert then["explanation"]["blockers"][0]["until"] is None
