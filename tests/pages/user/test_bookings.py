"""Booked times in the user's portal: a form that is met exactly or refused with the nearest times, the list, and the end of a series."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import Scope
from core.clock import db_now
from gpr.models import BookingSeries, Gpr, GprState
from gpr.requests.editing import gpr_cancel
from inventory.models import MaintenanceWindow
from tests import factories
from tests.builders import SHAPE
from tests.pages.user_world import CREATE, HTMX, OFFERS, World, form, text

# Each day: tests/api/queue/test_booking_series.py, and tests/browser/test_bookings.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
BOOKINGS, BOOK = "/workspaces/vision/bookings/", "/workspaces/vision/bookings/new/"
DAY = timedelta(days=1)


@pytest.fixture
def start() -> datetime:
    return db_now().replace(second=0, microsecond=0) + DAY


def typed(start: datetime, **changes: Any) -> dict[str, Any]:
    """Writes it in the reader's zone, UTC here."""
    given = {"name": "nightly", "shape": SHAPE, "nodes": "2", "gpus_per_node": "", "duration": "2 h", "repeat": "", "until": ""}
    return {**given, "earliest_start_at": f"{start:%Y-%m-%dT%H:%M}", "key": uuid4().hex, **changes}


def weekly(start: datetime, **changes: Any) -> dict[str, Any]:
    return typed(start, repeat="weekly", until=f"{start + 15 * DAY:%Y-%m-%d}", **changes)


def test_a_time_is_booked_once_however_often_the_form_is_sent(owner: Client, start: datetime) -> None:
    sent = typed(start)

    answers = [owner.post(BOOK, sent) for _ in range(2)]

    gpr = Gpr.objects.get()
    assert [answer["Location"] for answer in answers] == [f"/gprs/{gpr.pk}/"] * 2
    assert (gpr.is_booking, gpr.earliest_start_at, gpr.planned_start_at) == (True, start, start)
    assert "Booked" in text(owner.get(f"/gprs/{gpr.pk}/"))
    assert "nightly" in text(owner.get(BOOKINGS))


@pytest.mark.parametrize("asking", [typed, weekly], ids=["once", "series"])
def test_a_second_booking_alike_is_asked_about(asking: Callable[..., dict[str, Any]], owner: Client, start: datetime) -> None:
    """A person who opens the form anew most often does not mean a second one."""
    assert owner.post(BOOK, asking(start)).status_code == 302
    booked = list(Gpr.objects.all())

    asked = text(owner.post(BOOK, asking(start)), 422)

    assert "You sent the same request within the last hour." in asked
    again = re.search(r'name="again" value="(\w+)"', asked)
    assert again
    assert Gpr.objects.count() == len(booked)
    for gpr in booked:
        gpr_cancel(gpr=gpr, actor=gpr.owner, now=db_now())
    assert owner.post(BOOK, asking(start, again=again[1])).status_code == 302
    assert Gpr.objects.count() == 2 * len(booked)


@pytest.mark.parametrize("page", ["book", "create", "offers"])
def test_a_taken_time_is_refused_with_the_nearest_ones_in_the_readers_zone(page: str, world: World, owner: Client, start: datetime) -> None:
    factories.gpr(world.foreign, world.people.outsider, name="canary", nodes=2, earliest_start_at=start, is_booking=True)
    owner.cookies["egs_zone"] = "Asia/Kolkata"
    asked_at = start + timedelta(hours=5.5)
    request = form(nodes="2", earliest_start_at=f"{asked_at:%Y-%m-%dT%H:%M}", is_booking="on")

    refused = {
        "book": lambda: text(owner.post(BOOK, typed(asked_at)), 422),
        "create": lambda: text(owner.post(CREATE, request), 422),
        "offers": lambda: text(owner.post(OFFERS, request)),
    }[page]()

    assert "The nearest starts with room are" in refused
    assert "UTC" not in refused[refused.index("The nearest starts") :][:120]
    assert "canary" not in refused.replace("canary-slice", "")
    assert not Gpr.objects.filter(slice=world.slice).exists()


def test_a_series_is_listed_with_what_did_not_fit_and_canceled_as_a_whole(world: World, owner: Client, start: datetime) -> None:
    factories.gpr(world.foreign, world.people.outsider, earliest_start_at=start + 7 * DAY, is_booking=True)

    assert owner.post(BOOK, weekly(start))["Location"] == BOOKINGS

    series = BookingSeries.objects.get()
    listed = text(owner.get(BOOKINGS))
    assert "2 booked" in listed
    assert "did not fit; room at" in listed
    cancel = f"/booking-series/{series.pk}/cancel/"
    assert "2 bookings that wait for their time are canceled" in text(owner.get(cancel, headers=HTMX))
    assert owner.post(cancel)["Location"] == BOOKINGS
    assert set(Gpr.objects.filter(slice=world.slice).values_list("state", flat=True)) == {GprState.CANCELED}
    assert owner.post(cancel).status_code == 409


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"earliest_start_at": ""}, "This field is required"),
        ({"earliest_start_at": "2020-01-01T10:00"}, "at least 5 min"),
        ({"repeat": "weekly"}, "Enter the last day"),
        ({"repeat": "daily", "until": "2099-01-01"}, "At most 200 starts within a year"),
        ({"repeat": "daily", "until": "soon"}, "Enter a valid date"),
        ({"nodes": "3"}, "No available cluster is large enough"),
    ],
)
def test_what_cannot_be_booked_says_why_and_keeps_what_was_typed(
    changes: dict[str, str], says: str, owner: Client, start: datetime
) -> None:
    refused = text(owner.post(BOOK, typed(start, **changes)), 422)

    assert says in refused
    assert 'value="nightly"' in refused
    assert not Gpr.objects.exists()


@pytest.mark.daily
@pytest.mark.parametrize(("persona", "codes"), [("owner", (200, 200, 200)), ("teammate", (200, 403, 403)), ("outsider", (404, 404, 404))])
def test_members_see_the_list_and_editors_book(persona: str, codes: tuple[int, ...], world: World, owner: Client, start: datetime) -> None:
    owner.post(BOOK, weekly(start))
    cancel = f"/booking-series/{BookingSeries.objects.get().pk}/cancel/"

    assert tuple(world.client(persona).get(url).status_code for url in (BOOKINGS, BOOK, cancel)) == codes


def test_maintenance_of_its_clusters_is_told_where_times_are_booked(world: World, owner: Client, start: datetime) -> None:
    given = {"starts_at": start, "ends_at": start + DAY, "created_at": start - DAY}
    MaintenanceWindow.objects.create(cluster=world.cluster, reason="New switches", **given)
    MaintenanceWindow.objects.create(cluster=factories.cluster("elsewhere"), reason="canary", **given)

    shown = text(owner.get(BOOKINGS))

    assert "Cluster aurora is closed from" in shown
    assert "New switches" in shown
    assert "canary" not in shown


def test_a_token_that_may_only_read_is_offered_no_act(world: World, owner: Client, start: datetime) -> None:
    owner.post(BOOK, weekly(start))

    shown = text(world.client("owner", Scope.READ).get(BOOKINGS))

    assert "nightly" in shown
    assert BOOK not in shown
    assert "/cancel/" not in shown


def test_more_bookings_cost_no_more_queries(world: World, owner: Client, start: datetime) -> None:
    owner.post(BOOK, weekly(start))
    with CaptureQueriesContext(connection) as few:
        owner.get(BOOKINGS)
    for hours in (3, 6):
        owner.post(BOOK, weekly(start + timedelta(hours=hours)))
    assert Gpr.objects.count() == 9

    with CaptureQueriesContext(connection) as many:
        owner.get(BOOKINGS)

    assert len(many) == len(few)
