"""The pages on which it stands what promises are worth, for each of the four."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from planner.causes import Cause
from portal_shared.parts.promises import percent
from tests import factories
from tests.calibration.outcomes import moved, settled, waited
from tests.pages.user_world import World, text

# Each day: tests/promises, tests/api/queue/test_insights.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

USER, ADMIN = "/promises/", "/admin/promises/"
QUERIES_MAX = 15


@pytest.fixture
def at(world: World) -> datetime:
    """Yesterday, so that it is within the time asked for, whatever the time of day."""
    return db_now() - timedelta(days=1)


def shown(world: World, persona: str, path: str = USER) -> str:
    return text(world.client(persona).get(path))


def test_before_any_promise_has_come_due_the_pages_say_so(world: World) -> None:
    for persona, path in (("owner", USER), ("admin", USER), ("admin", ADMIN)):
        markup = shown(world, persona, path)
        assert "No history yet" in markup
        assert "By length and size" not in markup
    assert "No promise has come due" in shown(world, "owner")


def test_everybody_reads_how_promises_of_all_workspaces_turned_out(world: World, at: datetime) -> None:
    people = world.people
    waited(world.foreign, people.outsider, at, [300] * 20 + [1_200] * 16 + [3_000] * 2)
    for _ in range(2):  # of one project alone nothing would be told
        waited(factories.make_slice(world.cluster, of=factories.project()), people.outsider, at, [1_200])
    settled(world.foreign, people.outsider, at, 1, margin_s=-2_700, name="canary-late")

    for persona in ("owner", "teammate"):
        markup = shown(world, persona)
        assert '<dd class="late">' in markup
        assert "97 %" in markup  # kept
        assert "40 requests had to wait and got a range" in markup
        assert "95 %, the target is 90 %" in markup
        assert "canary" not in markup
        assert "of them" not in markup
    admins = shown(world, "admin", ADMIN)
    assert "40 of them" in admins
    assert "canary-late" in admins
    assert "45 min late" in admins


def test_each_sees_the_promises_of_his_own_workspaces_and_what_moved_them(world: World, at: datetime) -> None:
    (mine,) = settled(world.slice, world.people.owner, at, name="mine", margin_s=-600)
    moved(mine, Cause.NODE_FAILURE)
    settled(world.slice, world.people.owner, at, name="gave-up", margin_s=-120, started_at=None)
    settled(world.foreign, world.people.outsider, at, name="canary")

    for persona in ("owner", "teammate"):
        markup = shown(world, persona)
        assert f'href="/gprs/{mine.gpr_id}/"' in markup
        assert "10 min late" in markup
        assert "a node that it was planned on went away" in markup
        assert "withdrawn" in markup
        assert "canary" not in markup
    assert "mine" not in shown(world, "outsider")


def test_the_worst_misses_lead_an_administrator_to_their_requests(world: World, at: datetime) -> None:
    (late,) = settled(world.foreign, world.people.outsider, at, margin_s=-9_000, name="canary-late")

    assert f'href="/admin/queue/{late.gpr_id}/"' in shown(world, "admin", ADMIN)
    for persona in ("owner", "teammate", "outsider"):
        assert world.client(persona).get(ADMIN).status_code == 404


@pytest.mark.parametrize("path", [USER, ADMIN])
def test_the_time_is_chosen_and_what_is_no_choice_is_a_month(path: str, world: World, at: datetime) -> None:
    settled(world.slice, world.people.owner, at - timedelta(days=40), 25)
    admin = world.client("admin")

    assert "No history yet" in text(admin.get(path))
    assert "No history yet" in text(admin.get(path, {"days": "365"}))
    assert "By the week" in text(admin.get(path, {"days": "90"}))


@pytest.mark.parametrize(("persona", "path"), [("owner", USER), ("admin", ADMIN)])
def test_a_hundred_promises_cost_what_ten_cost(persona: str, path: str, world: World, at: datetime) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as made:
            assert client.get(path).status_code == 200
        return len(made)

    client = world.client(persona)
    for outcome in waited(world.slice, world.people.owner, at, [4_000] * 10):
        moved(outcome, Cause.OVERRUN)
    few = cost()
    for outcome in waited(world.slice, world.people.owner, at, [4_000] * 90):
        moved(outcome, Cause.OVERRUN)

    assert cost() == few <= QUERIES_MAX


def test_both_portals_lead_there(world: World) -> None:
    assert f'href="{USER}"' in shown(world, "owner", "/")
    assert f'href="{ADMIN}"' in shown(world, "admin", "/admin/queue/")


def test_nothing_short_of_all_is_called_all() -> None:
    assert [percent(share) for share in (1.0, 0.99999, 0.9876, 0.0, None)] == ["100 %", "99.9 %", "98.8 %", "0 %", "too few"]
