"""`usage/`, its prices and its league: by what one may count, what it costs, and what each may know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from gpr.models import Gpr
from slices.models import Project, ProjectAdmin, Slice
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE
from tests.factories import usage_day

FIRST = datetime.now(UTC).date().replace(day=1)


@pytest.fixture
def gprs(world: World) -> list[Gpr]:
    """The workspace ran two GPRs and a stranger one, on the first and the second of the month."""
    people = world.people
    mine = [factories.gpr(world.slice, people.owner, name=name) for name in ("long", "short")]
    foreign = factories.gpr(world.foreign_slice, people.outsider, name="canary-gpr")
    for gpr, held, job in zip([*mine, foreign], (80, 20, 500), ("", "Job eval", "Job canary"), strict=True):
        of = {"workload": uuid4(), "workload_name": job} if job else {}
        usage_day(gpr, FIRST, held=held, measured=held / 2, worked=held / 4, **of)
    usage_day(mine[0], FIRST + timedelta(days=1), held=10)
    return [*mine, foreign]


def told(caller: Caller, **query: Any) -> list[tuple[Any, ...]]:
    answer = caller.get("usage/", **query)
    assert answer.status_code == 200, answer.content
    return [
        (row["name"], row["held_hours"], row["used_hours"], row["wasted_hours"], row["unmeasured_hours"])
        for row in answer.json()["results"]
    ]


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("gpr", [("long", 90, 20, 20, 50), ("short", 20, 5, 5, 10)]),
        ("workload", [("No workload", 90, 20, 20, 50), ("Job eval", 20, 5, 5, 10)]),
        ("slice", [("vision", 110, 25, 25, 60)]),
        ("person", [("owner", 110, 25, 25, 60)]),
        ("shape", [(SHAPE, 110, 25, 25, 60)]),
        ("cluster", [("aurora", 110, 25, 25, 60)]),
    ],
)
def test_a_member_counts_the_hours_of_his_workspaces_by_what_he_likes(
    by: str, rows: list[Any], gprs: list[Gpr], teammate: Caller, admin: Caller
) -> None:
    assert told(teammate, by=by) == rows
    assert sum(row[1] for row in told(admin, by=by)) == 610


def test_steps_filters_and_pages(gprs: list[Gpr], owner: Caller, admin: Caller) -> None:
    days = owner.get("usage/", step="day", by="gpr").json()["results"]
    assert [(row["since"], row["name"], row["of"]) for row in days] == [
        (str(FIRST), "long", "vision"),
        (str(FIRST), "short", "vision"),
        (str(FIRST + timedelta(days=1)), "long", "vision"),
    ]
    assert [row["since"] for row in owner.get("usage/", step="month").json()["results"]] == [str(FIRST)]
    assert told(owner, since=str(FIRST + timedelta(days=1)), gpr="long") == [("vision", 10, 0, 0, 10)]
    assert told(owner, until=str(FIRST)) == []
    (eval_id,) = (row["id"] for row in owner.get("usage/", by="workload").json()["results"] if row["name"] == "Job eval")
    assert told(owner, workload="Job eval") == told(owner, workload=eval_id) == [("vision", 20, 5, 5, 10)]
    assert told(owner, workload="Job canary") == []
    assert told(owner, slice="canary-slice") == told(owner, owner="outsider") == told(owner, gpr="canary-gpr") == []
    assert [row[0] for row in told(admin, by="gpr", owner="me")] == []

    names, answer = [], admin.get("usage/", by="gpr", page_size=1).json()
    while True:
        names += [row["name"] for row in answer["results"]]
        if not answer["next"]:
            break
        answer = admin.get(answer["next"]).json()
    assert names == ["canary-gpr", "long", "short"]


def test_what_is_no_day_and_no_dimension_is_refusage_day(owner: Caller) -> None:
    for query in ({"since": "yesterday"}, {"until": "2026-13-01"}, {"by": "mood"}, {"step": "hour"}):
        assert set(faults(owner.get("usage/", **query))) == set(query)


def test_prices_have_a_history_and_a_price_of_the_past_changes_what_that_time_cost(
    gprs: list[Gpr], admin: Caller, owner: Caller, outsider: Caller
) -> None:
    def cost() -> tuple[str, float]:
        (row,) = owner.get("usage/").json()["results"]
        return row["cost"], row["unpriced_hours"]

    assert cost() == ("0.00", 110)
    second = FIRST + timedelta(days=1)
    later = admin.post("usage/prices/", {"shape": SHAPE, "gpu_hour_price": "3.25", "from_day": str(second)})
    assert later.status_code == 201
    assert cost() == ("32.50", 100)
    for price in ("2", "2.5"):  # the second one replaces the first
        admin.post("usage/prices/", {"shape": SHAPE, "gpu_hour_price": price, "from_day": str(FIRST)})
    assert cost() == ("282.50", 0)
    history = [(row["from_day"], row["gpu_hour_price"]) for row in owner.get("usage/prices/").json()["results"]]
    assert history == [(str(second), "3.2500"), (str(FIRST), "2.5000")]
    admin.delete(f"usage/prices/{later.json()['id']}/")
    assert cost() == ("275.00", 0)

    assert_problem(owner.post("usage/prices/", {"shape": SHAPE, "gpu_hour_price": "1"}), 403, "not_allowed")
    assert set(faults(admin.post("usage/prices/", {"shape": "Z9", "gpu_hour_price": "-1"}))) == {"gpu_hour_price"}
    assert set(faults(admin.post("usage/prices/", {"shape": "Z9", "gpu_hour_price": "1"}))) == {"shape"}


def test_a_price_of_a_shape_in_a_strangers_cluster_is_not_told(world: World, admin: Caller, owner: Caller) -> None:
    factories.cluster("elsewhere", shape="B200-192GB")
    made = admin.post("usage/prices/", {"shape": "B200-192GB", "gpu_hour_price": "9"}).json()

    assert owner.get("usage/prices/").json()["results"] == []
    assert owner.get(f"usage/prices/{made['id']}/").status_code == 404


@pytest.mark.both_databases
def test_the_league_shows_members_their_places_and_a_project_may_stay_out_of_it(
    world: World, gprs: list[Gpr], admin: Caller, owner: Caller, outsider: Caller, as_user: Any
) -> None:
    second = factories.make_slice(world.cluster, name="second", owner=world.people.admin, of=world.slice.project)
    usage_day(factories.gpr(second, world.people.admin), FIRST, held=9, measured=8, worked=6)
    idle = factories.make_slice(world.cluster, name="hardly-there", owner=world.people.admin, of=world.slice.project)
    usage_day(factories.gpr(idle, world.people.admin), FIRST, held=9, measured=0.5, worked=0.5)
    runner = factories.user("runner")
    ProjectAdmin.objects.create(project=world.slice.project, user=runner, created_at=world.slice.created_at)

    def places(caller: Caller) -> list[tuple[str, int, float]]:
        return [(row["name"], row["place"], row["efficiency"]) for row in caller.get("usage/league/").json()["results"]]

    assert places(owner) == [("vision", 2, 0.5)]
    assert places(outsider) == [("canary-slice", 1, 0.5)]
    assert places(as_user(runner)) == [("second", 1, 0.75), ("vision", 2, 0.5)]
    assert [name for name, *_ in places(admin)] == ["canary-slice", "second", "vision"]

    project = Project.objects.get(pk=world.slice.project_id)
    assert as_user(runner).patch(f"projects/{project.name}/", {"in_league": False}).json()["in_league"] is False
    assert places(owner) == places(as_user(runner)) == []
    assert [name for name, *_ in places(admin)] == ["canary-slice"]
    assert_problem(owner.patch(f"projects/{project.name}/", {"in_league": True}), 403, "not_allowed")
    assert_problem(as_user(runner).patch(f"projects/{project.name}/", {"ends_at": None}), 403, "not_allowed")


def test_who_leaves_a_workspace_sees_its_usage_no_longer_and_a_bound_token_only_its_own(
    world: World, gprs: list[Gpr], owner: Caller
) -> None:
    other = factories.make_slice(world.cluster, name="other", owner=world.people.owner)
    bound = Caller(factories.token(world.people.owner, slices=[str(other.pk)]))
    assert told(bound) == []
    Slice.objects.get(pk=world.slice.pk).memberships.filter(user=world.people.owner).delete()

    assert told(owner) == []
