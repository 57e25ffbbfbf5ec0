"""`insights/`: how promises turned out, by role, as the pages show it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from core.clock import db_now
from planner.causes import Cause
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.calibration.outcomes import moved, settled, waited


@pytest.fixture(autouse=True)
def history(world: World) -> None:
    """Three foreign projects have 60 that waited, 3 of them too long; the owner has one that was moved."""
    at = db_now() - timedelta(days=1)
    waited(world.foreign_slice, world.people.outsider, at, [300] * 55 + [4_000] * 3, name="canary")
    for _ in range(2):
        waited(factories.make_slice(world.cluster, of=factories.project()), world.people.outsider, at, [300], name="canary")
    (mine,) = settled(world.slice, world.people.owner, at, name="mine", margin_s=-600)
    moved(mine, Cause.NODE_FAILURE)


def promises(caller: Caller, **query: Any) -> dict[str, Any]:
    response = caller.get("insights/", **query)
    assert response.status_code == 200, response.content
    assert set(response.json()) == {"promises"}
    found: dict[str, Any] = response.json()["promises"]
    return found


def test_members_read_whole_percents_of_all_and_the_promises_of_their_own(owner: Caller, teammate: Caller, half_admin: Caller) -> None:
    for caller, own in ((owner, ["mine"]), (teammate, ["mine"]), (half_admin, [])):
        found = promises(caller)
        total = found["total"]
        assert (total["due_count"], total["kept_share"], total["kept_count"], total["moved_count"]) == (60, 0.93, None, None)
        assert (total["p90_coverage"], total["p50_coverage"], total["width_p50_s"]) == (0.95, 0.95, 1_200.0)
        assert [row["gpr"] for row in found["last"]] == own
        assert (found["causes"], found["worst"]) == ([], [])
        assert "canary" not in str(found)


def test_an_administrator_reads_all_counts_and_the_worst_misses(admin: Caller) -> None:
    found = promises(admin)

    assert (found["total"]["due_count"], found["total"]["kept_count"], found["total"]["waited_count"]) == (61, 57, 60)
    assert found["causes"] == [{"cause": "node_failure", "count": 1, "share": 1 / 61}]
    assert [(row["gpr"], row["slice"], row["margin_s"], row["is_kept"]) for row in found["worst"]] == [
        ("mine", "vision", -600, False),
        *[("canary", "canary-slice", -400, False)] * 3,
    ]
    assert [move["cause"] for move in found["worst"][0]["moves"]] == ["node_failure"]
    (only,) = found["classes"]
    assert (only["length_from_s"], only["length_below_s"], only["is_gang"], only["score"]["due_count"]) == (3_600, 14_400, False, 61)


@pytest.mark.parametrize(("days", "spans"), [(7, 7), (30, 30), (90, 13)])
def test_the_time_is_chosen(days: int, spans: int, owner: Caller) -> None:
    found = promises(owner, days=days)

    assert (found["days"], len(found["spans"])) == (days, spans)


def test_what_is_no_choice_is_a_problem_that_names_it(owner: Caller) -> None:
    for days in ("0", "31", "x", ""):
        problem = assert_problem(owner.get("insights/", days=days), 400, "invalid_input")
        assert list(problem["errors"]) == ["days"]
    assert list(assert_problem(owner.get("insights/", since="1"), 400, "invalid_input")["errors"]) == ["since"]
