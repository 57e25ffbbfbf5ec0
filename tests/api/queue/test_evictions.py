"""`evictions/` and the notice on a GPR: both sides read their own, and learn nothing of the other."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.models import Gpr
from tests import factories
from tests.api.conftest import Caller, World, assert_problem


@pytest.fixture(autouse=True, scope="module")
def rules() -> Iterator[None]:
    with override_settings(EGS_EVICTION_NOTICE_S=600, EGS_EVICTION_LEAST_RUN_S=0, EGS_EVICTION_GAIN_S=60):
        yield


@pytest.fixture(autouse=True, scope="module")
def built_sides(rules: None, built_world: World) -> tuple[Gpr, Gpr]:
    people = built_world.people
    return factories.noticed(built_world.slice, people.owner, built_world.foreign_slice, people.outsider)


@pytest.fixture
def sides(built_sides: tuple[Gpr, Gpr], db: None) -> tuple[Gpr, Gpr]:
    """The owner's has notice, the outsider's starts by it."""
    return deepcopy(built_sides)


def rows(caller: Caller, query: str = "") -> list[dict[str, Any]]:
    response = caller.get(f"evictions/{query}")
    assert response.status_code == 200, response.content
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def test_the_victim_s_side_sees_its_own_and_nothing_of_whom_it_is_for(
    owner: Caller, teammate: Caller, world: World, sides: tuple[Gpr, Gpr]
) -> None:
    victim, beneficiary = sides
    for caller in (owner, teammate):
        (row,) = rows(caller)
        assert [row[name] for name in ("gpr_id", "gpr", "start_at", "instead_at", "victim_count")] == [None] * 5
        (told,) = row["victims"]
        assert told["priority"] == 50
        assert (told["gpr_id"], told["gpr"], told["kind"], told["outcome"]) == (str(victim.pk), "victim", "priority", "NOTICED")
        for path in ("evictions/", "gprs/", f"gprs/{victim.pk}/", "events/"):
            text = caller.get(path).content.decode()
            assert not {name for name in ("canary", "outsider", str(beneficiary.pk), str(world.foreign_slice.pk)) if name in text}, path


def test_the_other_side_sees_what_it_wins_and_how_many_pay_for_it(outsider: Caller, world: World, sides: tuple[Gpr, Gpr]) -> None:
    victim, beneficiary = sides
    (row,) = rows(outsider)

    assert (row["gpr_id"], row["gpr"], row["victim_count"], row["victims"]) == (str(beneficiary.pk), "canary", None, [])
    assert row["start_at"] < row["instead_at"]
    for path in ("evictions/", "gprs/", f"gprs/{beneficiary.pk}/", "events/"):
        text = outsider.get(path).content.decode()
        assert not {name for name in ('"vision"', str(victim.pk), str(world.slice.pk)) if name in text}, path


def test_an_administrator_sees_both_sides(admin: Caller, sides: tuple[Gpr, Gpr]) -> None:
    (row,) = rows(admin)

    assert (row["gpr"], row["victim_count"], row["victims"][0]["gpr"]) == ("canary", 1, "victim")


def test_a_gpr_carries_its_notice_while_it_has_it(owner: Caller, outsider: Caller, sides: tuple[Gpr, Gpr]) -> None:
    victim, beneficiary = sides
    tick(now=db_now())
    assert victim.ends_at is not None

    notice = owner.get(f"gprs/{victim.pk}/").json()["eviction_notice"]

    why = "a request of higher priority that may evict needs its GPUs"
    assert notice["restart_at"] > notice["ends_at"]
    assert notice == {
        **{"ends_at": victim.ends_at.isoformat().replace("+00:00", "Z"), "kind": "priority", "why": why},
        "restart_at": notice["restart_at"],
    }
    assert owner.get("gprs/").json()["results"][0]["eviction_notice"] == notice
    assert outsider.get(f"gprs/{beneficiary.pk}/").json()["eviction_notice"] is None
    owner.post(f"gprs/{victim.pk}/release/")
    assert owner.get(f"gprs/{victim.pk}/").json()["eviction_notice"] is None
    assert rows(owner)[0]["victims"][0]["outcome"] == "LEFT"


def test_those_who_may_know_of_it_read_when_what_is_left_would_start_again(
    owner: Caller, teammate: Caller, admin: Caller, outsider: Caller, sides: tuple[Gpr, Gpr]
) -> None:
    """It would start on the nodes that it makes way on, behind the other: it waits with that estimate afterwards."""
    victim, beneficiary = sides
    tick(now=db_now())
    behind_at = beneficiary.promise.promised_start_at + timedelta(seconds=beneficiary.duration_s)

    found = {caller.get(f"gprs/{victim.pk}/").json()["eviction_notice"]["restart_at"] for caller in (owner, teammate, admin)}

    assert len(found) == 1
    assert datetime.fromisoformat(found.pop()) >= behind_at
    assert_problem(outsider.get(f"gprs/{victim.pk}/"), 404, "not_found")


def test_reading_a_notice_plans_nothing(owner: Caller, sides: tuple[Gpr, Gpr]) -> None:
    """It costs as many queries as reading a GPR that has none."""
    victim, _ = sides
    tick(now=db_now())

    def costs() -> int:
        with CaptureQueriesContext(connection) as queries:
            owner.get(f"gprs/{victim.pk}/")
        return len(queries)

    costs()  # the first one notes that the token is used
    with_notice = costs()
    victim.evicted_by.all().delete()
    assert with_notice == costs()


def test_what_does_not_wait_again_has_no_time_to_start_again(owner: Caller, sides: tuple[Gpr, Gpr]) -> None:
    Gpr.objects.filter(pk=sides[0].pk).update(requeue_on_failure=False)
    tick(now=db_now())

    assert owner.get(f"gprs/{sides[0].pk}/").json()["eviction_notice"]["restart_at"] is None


def test_filters_narrow_them(owner: Caller, outsider: Caller, admin: Caller, sides: tuple[Gpr, Gpr]) -> None:
    victim, beneficiary = sides
    soon = quote((db_now() + timedelta(hours=1)).isoformat())
    for caller, query, count in [
        (owner, "?gpr=victim", 1),
        (owner, f"?gpr={victim.pk}", 1),
        (owner, "?gpr=canary", 0),  # not known to him
        (owner, f"?gpr={beneficiary.pk}", 0),
        (outsider, "?gpr=canary", 1),
        (outsider, "?gpr=victim", 0),
        (admin, "?gpr=victim", 1),
        (admin, "?gpr=canary", 1),
        (admin, f"?since={soon}", 0),
        (admin, "?since=2020-01-01T00:00:00Z", 1),
    ]:
        assert len(rows(caller, query)) == count, query
    assert_problem(admin.get("evictions/?slice=vision"), 400, "invalid_input")


def test_what_an_administrator_evicts_is_an_eviction_for_nobody_that_its_members_and_administrators_read(
    admin: Caller, owner: Caller, outsider: Caller, world: World
) -> None:
    cluster, before = factories.cluster("borealis"), rows(outsider)
    gpr = factories.active(factories.make_slice(cluster, owner=world.people.owner), world.people.owner, name="taken")
    assert admin.post(f"gprs/{gpr.pk}/evict/", {"why": "Maintenance."}).status_code == 200

    for caller in (admin, owner):
        (row,) = rows(caller, f"?gpr={gpr.pk}")
        assert [row[name] for name in ("gpr_id", "gpr", "start_at", "instead_at", "victim_count")] == [None, None, None, None, 1]
        (victim,) = row["victims"]
        assert (victim["gpr"], victim["kind"], victim["outcome"]) == ("taken", "admin", "EVICTED")
        assert victim["outcome_at"] == victim["ends_at"]
    assert rows(outsider) == before


def test_an_administrator_who_evicts_one_with_notice_overtakes_the_notice(admin: Caller, sides: tuple[Gpr, Gpr]) -> None:
    victim, _ = sides
    admin.post(f"gprs/{victim.pk}/evict/", {"why": "At once."})

    told = [(each["kind"], each["outcome"]) for row in rows(admin) for each in row["victims"]]
    assert told == [("admin", "EVICTED"), ("priority", "SOONER")]
