from __future__ import annotations

from copy import deepcopy
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from core.clock import db_now
from gpr.models import Gpr
from protocol.assignments import Phase
from tests import factories
from tests.api.conftest import Caller, World, assert_problem


@pytest.fixture(autouse=True, scope="module")
def built_gprs(built_world: World) -> tuple[Gpr, Gpr]:
    people, mine, foreign = built_world.people, built_world.slice, built_world.foreign_slice
    return factories.active(mine, people.owner, name="mine"), factories.active(foreign, people.outsider, name="canary")


@pytest.fixture
def gprs(built_gprs: tuple[Gpr, Gpr], db: None) -> tuple[Gpr, Gpr]:
    """His, and a stranger's, side by side."""
    return deepcopy(built_gprs)


def rows(caller: Caller, query: str = "") -> list[dict[str, Any]]:
    response = caller.get(f"schedule/{query}")
    assert response.status_code == 200, response.content
    found: list[dict[str, Any]] = response.json()["results"]
    return found


def test_one_s_own_is_told_in_full(owner: Caller, world: World, gprs: tuple[Gpr, Gpr]) -> None:
    (row,) = [row for row in rows(owner) if row["id"] is not None]

    assert (row["name"], row["gpr"], row["gpr_id"], row["slice"], row["state"]) == ("mine", "mine", str(gprs[0].pk), "vision", "HELD")
    assert (row["node"], row["cluster"], row["run"], row["phase"]) == ("aurora-0", "aurora", 1, "ACTIVE")
    assert row["gpus"] == [f"GPU-aurora-0-{n}" for n in range(8)]
    assert row["starts_at"] < row["active_at"] < row["not_after_at"] < row["ends_at"]


def test_a_stranger_s_is_busy_and_nothing_else(owner: Caller, gprs: tuple[Gpr, Gpr]) -> None:
    (row,) = [row for row in rows(owner) if row["id"] is None]

    told = {name for name, value in row.items() if value not in (None, [])}
    assert told == {"name", "node_id", "node", "cluster_id", "cluster", "state", "starts_at", "ends_at"}
    assert (row["name"], row["node"]) == ("busy", "aurora-1")


def test_an_administrator_sees_all_in_full(admin: Caller, gprs: tuple[Gpr, Gpr]) -> None:
    assert [row["gpr"] for row in rows(admin)] == ["mine", "canary"]


def test_the_past_of_strangers_is_not_told_and_one_s_own_is(owner: Caller, outsider: Caller, gprs: tuple[Gpr, Gpr]) -> None:
    for gpr in gprs:
        factories.observe(gpr, Phase.RELEASED)

    assert [(row["gpr"], row["state"], row["released_at"] is not None) for row in rows(owner)] == [("mine", "RELEASED", True)]
    assert [row["gpr"] for row in rows(outsider)] == ["canary"]


def test_filters_narrow_it_and_betray_nobody(owner: Caller, gprs: tuple[Gpr, Gpr]) -> None:
    for query, found in [
        ("?node=aurora-0", ["mine"]),
        ("?node=aurora-1", ["busy"]),
        ("?cluster=aurora", ["mine", "busy"]),
        ("?cluster=borealis", []),
        ("?gpr=mine", ["mine"]),
        ("?gpr=canary", []),
        ("?slice=vision", ["mine"]),
        ("?slice=canary-slice", []),
        ("?state=HELD", ["mine", "busy"]),
        ("?state=RELEASED,PLANNED", []),
    ]:
        assert [row["name"] for row in rows(owner, query)] == found


def test_a_stranger_s_ids_find_nothing(owner: Caller, world: World, gprs: tuple[Gpr, Gpr]) -> None:
    assert rows(owner, f"?gpr={gprs[1].pk}") == rows(owner, f"?slice={world.foreign_slice.pk}") == []
    assert len(rows(owner, f"?gpr={gprs[0].pk}")) == 1


def test_a_window_keeps_what_overlaps_it(owner: Caller, gprs: tuple[Gpr, Gpr]) -> None:
    def between(start: timedelta, end: timedelta) -> int:
        now = db_now()
        return len(rows(owner, f"?from={quote((now + start).isoformat())}&to={quote((now + end).isoformat())}"))

    hour, day = timedelta(hours=1), timedelta(days=1)
    assert between(-hour, hour) == between(hour / 2, hour) == 2
    assert between(-day, -hour) == between(hour * 2, day) == 0


def test_a_filter_that_means_nothing_is_an_error(owner: Caller, world: World) -> None:
    for query in ["?from=yesterday", "?to=5", "?from=0001-01-01T00:00:00%2B23:59", "?until=x", "?state=BUSY", "?to=%00"]:
        assert_problem(owner.get(f"schedule/{query}"), 400, "invalid_input")


def test_a_gang_that_starts_at_one_moment_comes_in_whole_pages(owner: Caller, world: World) -> None:
    factories.add_nodes(world.cluster, 5)
    factories.active(factories.make_slice(world.cluster, owner=world.people.owner), world.people.owner, nodes=5)

    page, seen = owner.get("schedule/?page_size=2").json(), []
    while True:
        seen += [row["node"] for row in page["results"]]
        if page["next"] is None:
            break
        page = owner.get(page["next"]).json()

    assert sorted(seen) == [f"aurora-{n}" for n in range(7)]


def test_a_cursor_carries_no_stranger_s_id(outsider: Caller, gprs: tuple[Gpr, Gpr]) -> None:
    import base64
    from urllib.parse import parse_qs, urlsplit

    (row,) = factories.held(gprs[0])

    link = outsider.get("schedule/?page_size=1").json()["next"]

    (cursor,) = parse_qs(urlsplit(link).query)["cursor"]
    assert str(row.pk).encode() not in base64.urlsafe_b64decode(cursor)
