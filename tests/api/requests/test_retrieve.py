from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from core.clock import db_now
from gpr.models import Gpr, PromiseMove
from inventory.models import Node
from planner.causes import Cause
from planner.explain import STRANGER
from protocol.assignments import Phase
from tests import factories
from tests.api.conftest import A_STRANGER, Caller, World, assert_problem
from tests.builders import agent_says


def test_a_foreign_gpr_is_as_absent_as_one_that_is_not_there(owner: Caller, world: World) -> None:
    foreign = factories.gpr(world.foreign_slice, world.people.outsider)

    answers = {owner.get(f"gprs/{ref}/").content for ref in [foreign.pk, uuid4(), "nonsense", foreign.name, "%00"]}

    assert len(answers) == 1
    assert_problem(owner.get(f"gprs/{foreign.pk}/"), 404, "not_found")


def test_a_member_and_an_administrator_see_it_alike(owner: Caller, teammate: Caller, admin: Caller, world: World) -> None:
    path = f"gprs/{factories.gpr(world.slice, world.people.owner).pk}/"

    assert owner.get(path).json() == teammate.get(path).json() == admin.get(path).json()


@pytest.mark.parametrize("persona", ["owner", "teammate", "admin"])
def test_what_took_the_place_of_a_node_that_failed_is_told_to_its_members(
    persona: str, admin: Caller, world: World, request: pytest.FixtureRequest
) -> None:
    gpr = factories.active(world.slice, world.people.owner)
    (row,) = factories.held(gpr)
    path, reader = f"gprs/{gpr.pk}/", request.getfixturevalue(persona)
    assert reader.get(path).json()["replacements"] == []

    body = admin.post(f"{path}replace-node/", {"node": str(row.node_id), "why": "Its fan is loud."}).json()
    (told,) = body["replacements"]
    assert (told["node"], told["why"], told["outcome"], told["joined_at"]) == (row.node.name, "Its fan is loud.", "entering", None)
    assert sorted((node["node"], node["is_spare"]) for node in reader.get(path).json()["nodes_assigned"]) == sorted(
        [(row.node.name, False), (told["spare"], True)]
    )

    factories.observe(gpr, Phase.ACTIVE)
    (told,) = reader.get(path).json()["replacements"]
    assert (told["outcome"], told["spare"] != row.node.name, told["joined_at"] is not None) == ("replaced", True, True)
    events = {event["kind"] for event in reader.get(f"events/?gpr={gpr.pk}").json()["results"]}
    assert {"gpr.replacement_asked", "gpr.spare_entering", "gpr.node_replaced"} <= events


def test_a_node_is_replaced_only_where_there_is_another_and_the_answer_says_why(admin: Caller, world: World) -> None:
    gpr = factories.active(world.slice, world.people.owner)
    (row,) = factories.held(gpr)
    Node.objects.exclude(pk=row.node_id).update(cordoned_at=db_now())
    path = f"gprs/{gpr.pk}/replace-node/"

    problem = assert_problem(admin.post(path, {"node": str(row.node_id), "why": "Its fan is loud."}), 409, "conflict")
    assert problem["detail"] == "No other node of its kind is free until its end."
    other = Node.objects.exclude(pk=row.node_id)[0]
    assert_problem(admin.post(path, {"node": str(other.pk), "why": "Its fan is loud."}), 404, "not_found")
    assert_problem(admin.post(path, {"node": str(row.node_id)}), 400, "invalid_input")
    assert admin.get(f"gprs/{gpr.pk}/").json()["replacements"] == []


def test_its_life_shows_step_by_step(owner: Caller, world: World) -> None:
    gpr = factories.started(world.slice, world.people.owner, nodes=2, gpus_per_node=4)
    path = f"gprs/{gpr.pk}/"

    seen = owner.get(path).json()
    assert (seen["state"], seen["cluster"], seen["position"], seen["estimate"], seen["explanation"]) == (
        "PROVISIONING",
        "aurora",
        None,
        None,
        None,
    )
    assert [(row["node"], len(row["gpus"]), row["phase"]) for row in seen["nodes_assigned"]] == [
        ("aurora-0", 4, "PENDING"),
        ("aurora-1", 4, "PENDING"),
    ]
    assert seen["promised_start_at"] is not None

    factories.observe(gpr, Phase.ACTIVE)
    seen = owner.get(path).json()
    assert (seen["state"], seen["end_reason"]) == ("ACTIVE", None)
    assert 3590 < seen["time_left_s"] <= 3600

    owner.post(f"{path}release/")
    seen = owner.get(path).json()
    assert (seen["state"], seen["end_reason"], seen["time_left_s"]) == ("EXITING", "EARLY_RELEASE", None)

    factories.observe(gpr, Phase.RELEASED)
    seen = owner.get(path).json()
    assert (seen["state"], seen["end_reason"], seen["nodes_assigned"]) == ("RELEASED", "EARLY_RELEASE", [])
    assert seen["ended_at"] < seen["ends_at"]


def test_a_node_says_why_it_does_not_go_on(owner: Caller, world: World) -> None:
    gpr = factories.started(world.slice, world.people.owner)
    (row,) = factories.held(gpr)
    agent_says(row, Phase.PENDING, now=db_now(), failure="still held by another")

    (node,) = owner.get(f"gprs/{gpr.pk}/").json()["nodes_assigned"]

    assert (node["phase"], node["failure"]) == ("PENDING", "still held by another")


def test_it_says_whom_it_waits_for_if_the_reader_may_know(owner: Caller, world: World) -> None:
    running = factories.active(world.slice, world.people.owner, name="mine", nodes=2, gpus_per_node=4, duration_s=600)
    waiting = factories.gpr(world.slice, world.people.owner)

    told = owner.get(f"gprs/{waiting.pk}/").json()["explanation"]

    assert told["reason"] == "waits_for_slice"
    assert "mine" in told["sentence"]
    (blocker,) = told["blockers"]
    assert (blocker["id"], blocker["name"], blocker["is_running"]) == (str(running.pk), "mine", True)
    assert (blocker["nodes"], blocker["gpus_per_node"]) == (2, 4)
    assert blocker["until"] > owner.get(f"gprs/{running.pk}/").json()["ends_at"]


def test_an_explanation_that_an_older_version_stored_is_told_without_what_it_lacks(owner: Caller, world: World) -> None:
    running = factories.active(world.slice, world.people.owner, name="mine", duration_s=600)
    waiting = factories.gpr(world.slice, world.people.owner)
    stored = {name: value for name, value in waiting.explanation["blockers"][0].items() if name not in {"node_count", "gpus_per_node"}}
    Gpr.objects.filter(pk=waiting.pk).update(explanation={**waiting.explanation, "blockers": [stored]})

    told = owner.get(f"gprs/{waiting.pk}/").json()["explanation"]

    (blocker,) = told["blockers"]
    assert (blocker["id"], blocker["nodes"], blocker["gpus_per_node"]) == (str(running.pk), None, None)
    assert "mine (its nodes come free in " in told["sentence"]


def test_all_strangers_are_one_without_id_number_or_time(owner: Caller, admin: Caller, world: World) -> None:
    people = world.people
    factories.active(world.foreign_slice, people.outsider, name="canary-1", duration_s=600)
    other = factories.make_slice(world.cluster, name="canary-2", owner=people.outsider)
    factories.active(other, people.outsider, name="canary-3", duration_s=600)
    waiting = factories.gpr(world.slice, people.owner, nodes=2)

    told = owner.get(f"gprs/{waiting.pk}/").json()["explanation"]

    assert told["blockers"] == [A_STRANGER]
    assert told["sentence"].count(STRANGER) == 1
    assert {row["name"] for row in admin.get(f"gprs/{waiting.pk}/").json()["explanation"]["blockers"]} == {"canary-1", "canary-3"}


def test_a_promise_that_was_moved_says_when_and_why_but_not_which_stranger(owner: Caller, admin: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)
    own = factories.gpr(world.slice, world.people.owner)
    foreign = factories.gpr(world.foreign_slice, world.people.outsider)
    node = Node.objects.earliest("name")
    causes = [(Cause.OVERRUN, foreign.pk), (Cause.OVERRUN, own.pk), (Cause.NODE_FAILURE, node.pk)]
    for cause, cause_id in causes:
        now = db_now()
        PromiseMove.objects.create(
            gpr=gpr, at=now, old_start_at=now, new_start_at=now + timedelta(minutes=5), cause=cause, cause_id=str(cause_id)
        )

    def told(caller: Caller) -> list[tuple[Any, Any]]:
        moves = caller.get(f"gprs/{gpr.pk}/").json()["promise_moves"]
        assert all(move["old_start_at"] < move["new_start_at"] for move in moves)
        return [(move["cause"], move["cause_id"]) for move in moves]

    assert told(owner) == [("overrun", None), ("overrun", str(own.pk)), ("node_failure", str(node.pk))]
    assert told(admin) == [(cause.value, str(cause_id)) for cause, cause_id in causes]


def test_the_position_rises_as_those_before_it_go(owner: Caller, outsider: Caller, world: World) -> None:
    first = factories.gpr(world.foreign_slice, world.people.outsider, nodes=2)
    second = factories.gpr(world.slice, world.people.owner, nodes=2)
    assert owner.get(f"gprs/{second.pk}/").json()["position"] == 2

    assert outsider.delete(f"gprs/{first.pk}/").status_code == 204

    assert owner.get(f"gprs/{second.pk}/").json()["position"] == 1


@pytest.mark.parametrize("ref", ["{pk}", "{pk_upper}"])
def test_an_id_is_taken_in_either_case(ref: str, owner: Caller, world: World) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)

    assert owner.get(f"gprs/{ref.format(pk=gpr.pk, pk_upper=str(gpr.pk).upper())}/").status_code == 200
