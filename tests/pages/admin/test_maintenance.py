"""Maintenance in the admin portal: announced with its preview, listed with whom it meets, taken back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from core.clock import db_now
from inventory.models import MaintenanceWindow
from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.user_world import client_of

# Each day: tests/api/fleet/test_maintenance.py, and tests/browser/test_bookings.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
PAGE, ANNOUNCE = "/admin/maintenance/", "/admin/maintenance/announce/"


def typed(admin_world: AdminWorld, **changes: Any) -> dict[str, Any]:
    """Writes it in the reader's zone, UTC here."""
    starts_at = db_now() + timedelta(hours=1)
    times = {"starts_at": f"{starts_at:%Y-%m-%dT%H:%M}", "ends_at": f"{starts_at + timedelta(hours=4):%Y-%m-%dT%H:%M}"}
    return {"place": str(admin_world.cluster.pk), "reason": "New firmware", **times, **changes}


def window(admin_world: AdminWorld, begin: timedelta = timedelta(hours=1)) -> MaintenanceWindow:
    starts_at = db_now() + begin
    times = {"starts_at": starts_at, "ends_at": starts_at + timedelta(hours=4), "created_at": db_now()}
    return MaintenanceWindow.objects.create(cluster=admin_world.cluster, reason="New firmware", **times)


def text(response: Any) -> str:
    return str(response.content.decode())


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "dialog"])
def test_the_preview_names_who_runs_into_it_and_whose_promise_moves_and_writes_nothing(
    headers: dict[str, str], admin_world: AdminWorld, admin: Client
) -> None:
    asked = text(admin.post(ANNOUNCE, typed(admin_world, act="preview"), headers=headers))

    assert "1 running request reaches into it" in asked
    assert "runs" in asked
    assert "1 promise would move to a later start" in asked
    assert ">waits<" in asked
    assert not MaintenanceWindow.objects.exists()


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "dialog"])
def test_what_is_announced_stands_in_the_list_with_whom_it_meets_and_in_the_schedule(
    headers: dict[str, str], admin_world: AdminWorld, admin: Client
) -> None:
    done = admin.post(ANNOUNCE, typed(admin_world), headers=headers)

    assert done.status_code == (204 if headers else 302)
    listed = text(admin.get(PAGE))
    assert "Cluster aurora" in listed
    assert f"/admin/queue/{admin_world.runs.pk}/" in listed
    assert "Maintenance: New firmware" in text(admin.get("/admin/schedule/", {"as": "table"}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"place": "nowhere"}, "Select a valid choice"),
        ({"ends_at": "2020-01-01T00:00"}, "Must lie after the start"),
        ({"starts_at": "2020-01-01T00:00"}, "Must lie between now and a year from now"),
        ({"reason": ""}, "This field is required"),
    ],
)
def test_what_cannot_be_is_said_and_what_was_typed_stays(
    changes: dict[str, str], says: str, admin_world: AdminWorld, admin: Client
) -> None:
    refused = admin.post(ANNOUNCE, typed(admin_world, **changes))

    assert refused.status_code == 422
    assert says in text(refused)
    assert "New firmware" in text(refused) or "reason" in changes
    assert not MaintenanceWindow.objects.exists()


def test_the_form_names_the_time_zone_and_offers_the_nodes_that_there_are(admin_world: AdminWorld, admin: Client) -> None:
    admin.cookies["egs_zone"] = "Europe/Berlin"
    node = admin_world.cluster.nodes.first()
    assert node

    asked = text(admin.get(ANNOUNCE))
    admin.post(ANNOUNCE, typed(admin_world, place=str(node.pk)))

    assert asked.count("Time zone: Europe/Berlin.") == 2
    assert f'<option value="{node.pk}">{node.name}</option>' in asked
    assert MaintenanceWindow.objects.get().node == node


def test_an_overlap_names_the_other(admin_world: AdminWorld, admin: Client) -> None:
    window(admin_world)

    refused = admin.post(ANNOUNCE, typed(admin_world))

    assert refused.status_code == 409
    assert "Cluster aurora is closed already" in text(refused)


def test_while_it_goes_on_its_free_nodes_are_told_as_closed(admin_world: AdminWorld, admin: Client) -> None:
    window(admin_world, -timedelta(minutes=5))

    assert "Closed for maintenance" in text(admin.get("/admin/inventory/"))
    assert "In progress" in text(admin.get(PAGE))


def test_it_is_canceled_once(admin_world: AdminWorld, admin: Client) -> None:
    made = window(admin_world)
    assert "Cancel the maintenance of cluster aurora?" in text(admin.get(f"{PAGE}{made.pk}/cancel/", headers=HTMX))

    assert admin.post(f"{PAGE}{made.pk}/cancel/").status_code == 302

    made.refresh_from_db()
    assert made.canceled_at is not None
    assert admin.post(f"{PAGE}{made.pk}/cancel/").status_code == 409
    assert "Canceled" in text(admin.get(PAGE))


@pytest.mark.parametrize("persona", ["owner", "teammate", "outsider"])
def test_for_all_others_there_is_no_such_page(persona: str, admin_world: AdminWorld) -> None:
    client = client_of(getattr(admin_world.people, persona))

    assert [client.get(url).status_code for url in (PAGE, ANNOUNCE)] == [404, 404]
    assert client.post(ANNOUNCE, typed(admin_world)).status_code == 404


def test_more_windows_cost_no_more_queries(admin_world: AdminWorld, admin: Client) -> None:
    window(admin_world)
    with CaptureQueriesContext(connection) as few:
        admin.get(PAGE)
    for days in range(1, 6):
        window(admin_world, timedelta(days=days))

    with CaptureQueriesContext(connection) as many:
        admin.get(PAGE)

    assert len(many) == len(few)
