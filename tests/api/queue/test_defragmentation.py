"""`defragmentation/`: an administrator reads what could be moved for whom, asks about a booking, and agrees with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from core.clock import db_now
from gpr.models import Eviction, Gpr
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE


@pytest.fixture(autouse=True, scope="module")
def rules() -> Iterator[None]:
    with override_settings(EGS_EVICTION_NOTICE_S=600, EGS_EVICTION_LEAST_RUN_S=0, EGS_EVICTION_GAIN_S=60):
        yield


@pytest.fixture(autouse=True, scope="module")
def built_sides(rules: None, built_world: World) -> tuple[Gpr, Gpr]:
    people = built_world.people
    return factories.scattered(built_world.cluster, people.owner, built_world.foreign_slice, people.outsider)


@pytest.fixture
def sides(built_sides: tuple[Gpr, Gpr], db: None) -> tuple[Gpr, Gpr]:
    """The owner's could move, the outsider's waits for a whole node."""
    return deepcopy(built_sides)


def listed(caller: Caller) -> list[dict[str, Any]]:
    response = caller.get("defragmentation/")
    assert response.status_code == 200, response.content
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def path_of(gpr: Gpr) -> str:
    return f"defragmentation/{gpr.pk}/apply/"


def test_a_proposal_says_who_moves_where_for_whom_and_what_it_costs(admin: Caller, sides: tuple[Gpr, Gpr]) -> None:
    moves, waits = sides

    (row,) = listed(admin)

    assert (row["gpr_id"], row["gpr"], row["cluster"], row["shape"]) == (str(waits.pk), "whole-node", "aurora", SHAPE)
    assert row["freed"] == row["nodes"] == ["aurora-0"]
    (move,) = row["moves"]
    assert (move["gpr_id"], move["from_nodes"], move["to_nodes"]) == (str(moves.pk), ["aurora-0"], ["aurora-1"])
    assert move["ends_at"] < move["frees_at"] <= move["restarts_at"]
    assert row["start_at"] < row["instead_at"]
    assert 0 < row["cost_gpu_s"] == move["lost_gpu_s"] + move["idle_gpu_s"] < row["value_gpu_s"]


def test_it_is_done_once_with_a_reason(admin: Caller, owner: Caller, sides: tuple[Gpr, Gpr]) -> None:
    moves, waits = sides
    body = {"fingerprint": listed(admin)[0]["fingerprint"], "why": "Release week."}

    done = admin.post(path_of(waits), body)

    assert done.status_code == 200, done.content
    assert (done.json()["gpr"], [victim["kind"] for victim in done.json()["victims"]]) == ("whole-node", ["defrag"])
    notice = owner.get(f"gprs/{moves.pk}/").json()["eviction_notice"]
    assert (notice["kind"], "whole nodes come free" in notice["why"]) == ("defrag", True)
    assert "Release week." in admin.get("events/?kind=queue.defragmented").json()["results"][0]["message"]
    assert owner.get("events/?kind=queue.defragmented").json()["results"] == []
    assert_problem(admin.post(path_of(waits), body), 409, "stale_version")
    assert listed(admin) == []


def test_another_fingerprint_than_today_s_is_refused_and_nothing_is_done(admin: Caller, sides: tuple[Gpr, Gpr]) -> None:
    assert_problem(admin.post(path_of(sides[1]), {"fingerprint": "0" * 16, "why": "Release week."}), 409, "stale_version")
    assert_problem(admin.post(path_of(sides[0]), {"fingerprint": "0" * 16, "why": "It runs."}), 409, "wrong_state")
    assert not Eviction.objects.exists()


def test_a_reason_and_a_fingerprint_are_owed(admin: Caller, sides: tuple[Gpr, Gpr]) -> None:
    assert faults(admin.post(path_of(sides[1]), {})) == ["fingerprint", "why"]


def wanted(**changes: Any) -> dict[str, Any]:
    return {"shape": SHAPE, "nodes": 1, "starts_at": (db_now() + timedelta(hours=5)).isoformat(), "duration_s": "4h", **changes}


def test_a_wanted_booking_is_answered_with_moves_and_nothing_is_written(admin: Caller, sides: tuple[Gpr, Gpr]) -> None:
    admin.delete(f"gprs/{sides[1].pk}/")

    answer = admin.post("defragmentation/question/", wanted()).json()

    assert answer["fits"] is False
    assert answer["instead_at"] == answer["suggestion"]["instead_at"]
    assert (answer["suggestion"]["gpr_id"], answer["suggestion"]["gpr"]) == (None, None)
    assert [move["gpr"] for move in answer["suggestion"]["moves"]] == ["scattered"]
    assert not Eviction.objects.exists()


def test_one_that_fits_needs_no_moves(admin: Caller, world: World) -> None:
    later = (db_now() + timedelta(days=2)).isoformat()

    assert admin.post("defragmentation/question/", wanted(cluster="aurora", starts_at=later)).json() == {
        "fits": True,
        "instead_at": None,
        "suggestion": None,
    }


def test_what_cannot_be_asked_is_said(admin: Caller, world: World) -> None:
    assert faults(admin.post("defragmentation/question/", wanted(shape="none", nodes=0))) == ["nodes", "shape"]
    assert_problem(admin.post("defragmentation/question/", wanted(nodes=9)), 400, "can_never_start")
    assert_problem(admin.post("defragmentation/question/", wanted(cluster="nowhere")), 404, "not_found")
