from __future__ import annotations

from typing import Any

import pytest

from planner.explain import STRANGER
from tests import factories
from tests.api.conftest import Caller, World


@pytest.fixture
def queue(world: World) -> None:
    people = world.people
    factories.active(world.foreign_slice, people.outsider, nodes=2, name="canary-running")
    other = factories.make_slice(world.cluster, name="canary-2", owner=people.outsider)
    factories.gpr(world.slice, people.owner, name="low", priority=10)
    factories.gpr(world.slice, people.owner, name="first", priority=100)
    factories.gpr(other, people.outsider, name="canary-high", priority=200)
    factories.gpr(world.slice, people.owner, name="second", priority=100)
    factories.gpr(world.slice, people.owner, name="asking", priority=300)


def rows(caller: Caller, query: str = "") -> list[dict[str, Any]]:
    response = caller.get(f"queue/{query}")
    assert response.status_code == 200, response.content
    results: list[dict[str, Any]] = response.json()["results"]
    return results


@pytest.mark.usefixtures("queue")
def test_a_member_sees_his_rows_by_planned_start_and_the_administrator_all(owner: Caller, outsider: Caller, admin: Caller) -> None:
    """Its promise keeps the place of the low one, which was filed first."""
    assert [(row["position"], row["name"]) for row in rows(owner)] == [(1, "low"), (3, "first"), (4, "second")]
    assert [(row["position"], row["name"]) for row in rows(outsider)] == [(2, "canary-high")]
    listed = rows(admin)
    assert [(row["position"], row["name"]) for row in listed] == [(1, "low"), (2, "canary-high"), (3, "first"), (4, "second")]
    assert [row["planned_start_at"] for row in listed] == sorted(row["planned_start_at"] for row in listed)


@pytest.mark.usefixtures("queue")
def test_each_row_has_its_start_its_promise_and_a_sentence(owner: Caller) -> None:
    for row in rows(owner):
        assert row["planned_start_at"] <= row["promised_start_at"]
        assert row["reason"] == row["explanation"]["sentence"]
        assert "canary" not in str(row)
    assert any(STRANGER in row["reason"] for row in rows(owner))


@pytest.mark.usefixtures("queue")
def test_it_comes_in_pages_even_where_all_have_one_priority(owner: Caller, world: World) -> None:
    for _ in range(4):
        factories.gpr(world.slice, world.people.owner, priority=100)
    page = owner.get("queue/?page_size=2").json()
    positions = []
    while True:
        positions += [row["position"] for row in page["results"]]
        if page["next"] is None:
            break
        page = owner.get(page["next"]).json()

    assert positions == [1, 3, 4, 5, 6, 7, 8]
    assert owner.get(page["previous"]).json()["results"][-1]["position"] == 7


def test_an_empty_queue_is_an_empty_list(owner: Caller, world: World) -> None:
    assert rows(owner) == []
