"""Supplies in the admin portal: added, changed, switched off; and their orders, with whom they are for, ended with a reason."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.models import Gpr
from inventory.models import Supply, SupplyOrder, SupplyOrderState
from slices.models import Slice
from tests import factories
from tests.builders import SHAPE
from tests.pages.admin_world import HTMX, AdminWorld
from tests.pages.user_world import client_of

# Each day: tests/api/fleet/test_supplies.py, and test_every_page.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]
PAGE, CREATE = "/admin/supplies/", "/admin/supplies/create/"


def typed(**changes: Any) -> dict[str, Any]:
    given = {"cluster": "aurora", "name": "spot", "kind": "NODE_POOL", "shape": SHAPE, "gpus_per_node": "8", "gpu_memory_gib": "80"}
    return {**given, "node_count": "4", "lead_time": "20 min", "gain": "10 min", **changes}


def ordered(admin_world: AdminWorld) -> tuple[Gpr, SupplyOrder]:
    """Orders for a request that waits behind the one that runs."""
    factories.supply(admin_world.cluster, name="spot")
    slice_ = factories.make_slice(admin_world.cluster, name="robots", owner=admin_world.people.outsider)
    Slice.objects.filter(pk=slice_.pk).update(may_order=True)
    slice_.refresh_from_db()
    gpr = factories.gpr(slice_, admin_world.people.outsider, name="walks")
    return gpr, SupplyOrder.objects.get()


def text(response: Any) -> str:
    return str(response.content.decode())


def test_without_any_the_page_says_what_a_supply_is_and_offers_to_add_one(admin: Client) -> None:
    assert "No supplies yet" in text(admin.get(PAGE))
    assert "Add a supply" in text(admin.get(PAGE))


@pytest.mark.parametrize("headers", [{}, HTMX], ids=["page", "dialog"])
def test_what_is_added_stands_in_the_list_with_what_is_ordered_and_possible(headers: dict[str, str], admin: Client) -> None:
    done = admin.post(CREATE, typed(), headers=headers)

    assert done.status_code == (204 if headers else 302)
    listed = text(admin.get(PAGE))
    assert "spot" in listed
    assert f"8 × {SHAPE}" in listed
    assert "20 min" in listed
    assert "A node pool that can grow" in listed


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"node_count": "0"}, "greater than or equal to 1"),
        ({"node_count": "5000"}, "Must be from 1 to 1,000"),
        ({"lead_time": "365 d"}, "Must be from 1 s to 30 d"),
        ({"lead_time": "soon"}, "Write 90 min"),
        ({"shape": ""}, "This field is required"),
        ({"cluster": "nowhere"}, "Select a valid choice"),
    ],
)
def test_what_cannot_be_is_said_and_what_was_typed_stays(changes: dict[str, str], says: str, admin: Client) -> None:
    refused = admin.post(CREATE, typed(**changes))

    assert refused.status_code == 422
    assert says in text(refused)
    assert "20 min" in text(refused) or "lead_time" in changes
    assert not Supply.objects.exists()


def test_a_supply_is_changed_and_switched_off_and_on_again(admin_world: AdminWorld, admin: Client) -> None:
    made = factories.supply(admin_world.cluster, name="spot")

    asked = text(admin.get(f"{PAGE}{made.pk}/"))
    assert 'value="20 min"' in asked
    admin.post(f"{PAGE}{made.pk}/", {"name": "spot", "node_count": "7", "lead_time": "5 min", "gain": "0 s", "why": "Bigger."})
    made.refresh_from_db()
    assert (made.node_count, made.lead_time_s, made.gain_s) == (7, 300, 0)

    admin.post(f"{PAGE}{made.pk}/disable/", {"why": ""})
    assert "disabled: nothing more is ordered" in text(admin.get(PAGE))
    admin.post(f"{PAGE}{made.pk}/enable/", {"why": ""})
    made.refresh_from_db()
    assert made.is_enabled


def test_the_list_of_orders_says_for_whom_and_when_and_by_it_one_gets_to_the_request(admin_world: AdminWorld, admin: Client) -> None:
    gpr, order = ordered(admin_world)

    listed = text(admin.get(PAGE))

    assert f"order-{order.pk}" in listed
    assert f"/admin/queue/{gpr.pk}/" in listed
    assert "robots" in listed
    assert f"/admin/supplies/orders/{order.pk}/cancel/" in listed


def test_the_list_of_orders_says_by_when_a_node_is_to_be_asked_for(admin_world: AdminWorld, admin: Client) -> None:
    _, order = ordered(admin_world)
    assert "At once" in text(admin.get(PAGE))

    later = order.ordered_at + timedelta(days=2)
    SupplyOrder.objects.update(expected_at=later)
    listed = text(admin.get(PAGE))

    assert "At once" not in listed
    assert f'datetime="{(later - timedelta(seconds=order.supply.lead_time_s)).isoformat()}"' in listed


@pytest.mark.parametrize(
    ("act", "verb", "state"),
    [("cancel", "Cancel order", SupplyOrderState.CANCELED), ("fail", "Mark as failed", SupplyOrderState.FAILED)],
)
def test_an_order_is_ended_after_a_question_with_a_reason(act: str, verb: str, state: str, admin_world: AdminWorld, admin: Client) -> None:
    gpr, order = ordered(admin_world)
    url = f"/admin/supplies/orders/{order.pk}/{act}/"

    assert verb in text(admin.get(url, headers=HTMX))
    assert admin.post(url, {"why": ""}).status_code == 422
    assert admin.post(url, {"why": "No stock."}).status_code == 302
    tick(now=db_now())

    order.refresh_from_db()
    assert (order.state, order.why, order.ended_by) == (state, "No stock.", admin_world.people.admin)
    assert "No stock." in text(admin.get(PAGE))
    assert admin.post(url, {"why": "Again."}).status_code == 409
    assert "nodes that were to come did not come" in text(admin.get(f"/admin/queue/{gpr.pk}/"))


def test_before_an_order_is_canceled_one_is_told_who_stands_on_it_and_that_none_of_them_gets_another(
    admin_world: AdminWorld, admin: Client
) -> None:
    _, order = ordered(admin_world)

    asked = text(admin.get(f"/admin/supplies/orders/{order.pk}/cancel/", headers=HTMX))

    assert "walks of robots is planned anew, and told why. These requests get no more orders from this supply." in asked
    assert "disable the supply to stop all orders" in asked


@pytest.mark.parametrize(("persona", "status"), [("owner", 404), ("teammate", 404), ("outsider", 404), ("admin", 200)])
def test_the_pages_are_for_administrators(persona: str, status: int, admin_world: AdminWorld) -> None:
    client = client_of(getattr(admin_world.people, persona))

    assert [client.get(url).status_code for url in (PAGE, CREATE)] == [status, status]


def test_the_page_costs_the_same_however_many_orders_there_are(
    admin_world: AdminWorld, admin: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(8):
        factories.supply_order(admin_world.cluster, admin_world.waits)

    with django_assert_max_num_queries(12):
        admin.get(PAGE)


def test_the_offer_names_the_lead_time_and_the_request_says_what_it_waits_for(admin_world: AdminWorld) -> None:
    gpr, _ = ordered(admin_world)
    client = client_of(admin_world.people.outsider)

    page = text(client.get(f"/gprs/{gpr.pk}/"))
    asked = {"name": "next", "nodes": "1", "shape": SHAPE, "duration": "1 h", "priority": "101"}
    offers = text(client.post("/workspaces/robots/offers/", asked))

    assert "It waits for nodes that have been ordered; it starts when they have come." in page
    assert "1 node ordered from spot, expected" in page
    assert "Ordered nodes, 20 min lead" in offers
