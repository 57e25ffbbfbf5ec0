"""Defragmentation in the admin portal: proposals with cost and value, the question about a booking, and the act with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from accounts.models import Scope
from core.clock import db_now
from gpr.models import Eviction, EvictionVictim, Gpr
from gpr.requests.editing import gpr_cancel
from journal.models import Event
from tests import factories
from tests.builders import SHAPE
from tests.pages.admin_world import HTMX
from tests.pages.user_world import World, client_of, text

# Each day: tests/api/queue/test_defragmentation.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
PAGE, BOOKING = "/admin/defragmentation/", "/admin/defragmentation/booking/"


@pytest.fixture(autouse=True, scope="module")
def rules() -> Iterator[None]:
    with override_settings(EGS_EVICTION_NOTICE_S=600, EGS_EVICTION_LEAST_RUN_S=0, EGS_EVICTION_GAIN_S=60):
        yield


@pytest.fixture
def admin(world: World) -> Client:
    return client_of(world.people.admin)


@pytest.fixture(autouse=True, scope="module")
def built_sides(rules: None, built_world: World) -> tuple[Gpr, Gpr]:
    people = built_world.people
    return factories.scattered(built_world.cluster, people.owner, built_world.foreign, people.outsider)


@pytest.fixture
def sides(built_sides: tuple[Gpr, Gpr], db: None) -> tuple[Gpr, Gpr]:
    """One that could move, and the outsider's that waits for a whole node."""
    return deepcopy(built_sides)


def apply_url(gpr: Gpr) -> str:
    return f"{PAGE}{gpr.pk}/apply/"


def fingerprint(markup: str) -> str:
    found = re.search(r'name="fingerprint" value="([0-9a-f]+)"', markup)
    assert found, markup
    return found[1]


def typed(*, in_hours: int = 5, **changes: Any) -> dict[str, Any]:
    given = {"shape": SHAPE, "cluster": "", "nodes": "1", "gpus_per_node": "", "duration": "4 h", "priority": "101"}
    return {**given, "starts_at": f"{db_now() + timedelta(hours=in_hours):%Y-%m-%dT%H:%M}", **changes}


def test_it_tells_for_whom_who_moves_where_and_what_it_costs_and_saves(admin: Client, sides: tuple[Gpr, Gpr]) -> None:
    moves, waits = sides

    for markup in (text(admin.get(PAGE)), text(admin.get(PAGE, {"part": "rows"}, headers=HTMX))):
        for told in ("whole-node", "canary-slice", ">scattered<", "earlier", "frees", "<small>GPU h", "Make room"):
            assert told in markup, told
        assert apply_url(waits) in markup
        assert f"/admin/queue/{moves.pk}/" in markup
    assert PAGE in text(admin.get("/admin/queue/"))
    assert not Eviction.objects.exists()


def test_where_there_is_nothing_to_move_it_says_so(admin: Client, world: World, sides: tuple[Gpr, Gpr]) -> None:
    gpr_cancel(gpr=sides[1], actor=world.people.outsider, now=db_now())

    assert "Nothing to move" in text(admin.get(PAGE))


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "dialog"])
def test_the_question_names_everybody_and_the_act_needs_a_reason(headers: dict[str, str], admin: Client, sides: tuple[Gpr, Gpr]) -> None:
    url = apply_url(sides[1])
    asked = text(admin.get(url, headers=headers))
    for told in ("Make room for whole-node?", "scattered", "runs again about", "GPU h of waiting", "Recorded with your name."):
        assert told in asked, told

    refused = admin.post(url, {"fingerprint": fingerprint(asked), "why": ""}, headers=headers)
    assert refused.status_code == (200 if headers else 422)
    assert not Eviction.objects.exists()

    done = admin.post(url, {"fingerprint": fingerprint(asked), "why": "Release week."}, headers=headers)
    assert done.status_code == (204 if headers else 302)
    assert EvictionVictim.objects.get().gpr == sides[0]
    assert "Release week." in Event.objects.get(kind="queue.defragmented").message
    assert "Nothing to move" in text(admin.get(PAGE))
    assert "moved to free whole nodes" in text(admin.get("/admin/evictions/"))


def test_what_was_shown_before_the_queue_changed_is_refused_and_asked_anew(admin: Client, sides: tuple[Gpr, Gpr]) -> None:
    again = admin.post(apply_url(sides[1]), {"fingerprint": "0" * 16, "why": "Release week."})

    assert "It has changed since you read it" in text(again, 409)
    assert "Release week." in text(again, 409)
    assert not Eviction.objects.exists()


def test_when_there_is_nothing_to_agree_to_any_more_it_says_why(admin: Client, world: World, sides: tuple[Gpr, Gpr]) -> None:
    gpr_cancel(gpr=sides[1], actor=world.people.outsider, now=db_now())

    asked, sent = admin.get(apply_url(sides[1])), admin.post(apply_url(sides[1]), {"fingerprint": "0" * 16, "why": "x"})

    assert "This proposal no longer exists" in text(asked, 409)
    assert "By now its state is “Canceled”." in text(sent, 409)


def test_a_wanted_booking_is_answered_with_its_moves_and_no_act(admin: Client, world: World, sides: tuple[Gpr, Gpr]) -> None:
    gpr_cancel(gpr=sides[1], actor=world.people.outsider, now=db_now())
    assert 'id="answer"' not in text(admin.get(BOOKING))

    answered = text(admin.get(BOOKING, typed()))

    assert "It does not fit at that time as it is; the next time is" in answered
    assert ">scattered<" in answered
    assert "Make room</a>" not in answered
    assert not Eviction.objects.exists()


def test_one_that_fits_is_told_so(admin: Client, world: World) -> None:
    assert "No request has to move" in text(admin.get(BOOKING, typed(in_hours=48)))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"starts_at": "2020-01-01T00:00"}, "Must lie between"),
        ({"duration": "long"}, "Write 90 min"),
        ({"nodes": "9"}, "No available cluster is large enough"),
        ({"nodes": ""}, "This field is required"),
    ],
)
def test_what_cannot_be_asked_is_said_and_what_was_typed_stays(changes: dict[str, Any], says: str, admin: Client, world: World) -> None:
    refused = admin.get(BOOKING, typed(**changes))

    assert says in text(refused, 422)


def test_who_may_only_read_is_offered_no_act(world: World, sides: tuple[Gpr, Gpr]) -> None:
    reader = client_of(world.people.admin, Scope.READ, Scope.ADMIN)

    shown = text(reader.get(PAGE))

    assert ">scattered<" in shown
    assert "Your access token may only read" in shown
    assert apply_url(sides[1]) not in shown
    assert reader.post(apply_url(sides[1]), {"fingerprint": "x", "why": "x"}).status_code == 403


def test_for_all_others_there_is_no_such_page(world: World, sides: tuple[Gpr, Gpr]) -> None:
    for persona in ("owner", "teammate", "outsider"):
        client = client_of(getattr(world.people, persona))

        assert [client.get(url).status_code for url in (PAGE, BOOKING, apply_url(sides[1]))] == [404, 404, 404]
        assert client.post(apply_url(sides[1]), {"fingerprint": "x", "why": "x"}).status_code == 404
    assert not Eviction.objects.exists()


def test_more_proposals_cost_no_more_queries(admin: Client, world: World, sides: tuple[Gpr, Gpr]) -> None:
    with CaptureQueriesContext(connection) as few:
        admin.get(PAGE)
    other = factories.cluster("second")
    factories.scattered(other, world.people.owner, factories.make_slice(other, owner=world.people.owner), world.people.owner)

    with CaptureQueriesContext(connection) as many:
        shown = text(admin.get(PAGE))

    assert shown.count("Make room</a>") == 2
    assert len(many) <= len(few)
