"""`supplies/` and `supply-orders/`: what administrators say of nodes that can be had, and what an operator does about the orders."""

from __future__ import annotations

from typing import Any

import pytest

from core.clock import db_now
from gpr.allocation.allocator import tick
from gpr.models import Promise, PromiseMove
from inventory.models import Supply, SupplyOrder, SupplyOrderState
from journal.models import Event
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.builders import SHAPE

pytestmark = pytest.mark.django_db

NEW = {"cluster": "aurora", "name": "spot", "kind": "NODE_POOL", "shape": SHAPE, "gpus_per_node": 8, "gpu_memory_gib": 80}
NEW |= {"node_count": 2, "lead_time_s": "20m", "gain_s": 600}
ASK = {"name": "train", "slice": "vision", "shape": SHAPE, "nodes": 2, "duration_s": 3600}


@pytest.fixture
def busy(world: World, admin: Caller) -> World:
    """Nothing is free for two hours, and the owner's workspace may order."""
    factories.active(world.foreign_slice, world.people.outsider, nodes=2, duration_s=7200)
    admin.patch("slices/vision/", {"may_order": True})
    assert admin.post("supplies/", NEW).status_code == 201
    return world


def test_what_is_added_is_read_as_it_was_said_and_told_in_the_journal(world: World, admin: Caller) -> None:
    made = admin.post("supplies/", NEW).json()

    assert made == admin.get("supplies/spot/").json() == admin.get("supplies/").json()["results"][0]
    assert {name: made[name] for name in NEW} == {**NEW, "lead_time_s": 1200}
    assert (made["ordered_count"], made["arrived_count"], made["possible_count"], made["is_enabled"]) == (0, 0, 2, True)
    event = Event.objects.get(kind="supply.created")
    assert (event.actor, event.message) == (
        world.people.admin,
        "Supply spot of cluster aurora was added: 2 nodes of 8 x H100-80GB, 20 min lead, for a gain of 10 min.",
    )


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"node_count": 0}, "node_count"),
        ({"node_count": 1_001}, "node_count"),
        ({"gpus_per_node": 0}, "gpus_per_node"),
        ({"gpus_per_node": 65}, "gpus_per_node"),
        ({"gpu_memory_gib": 0}, "gpu_memory_gib"),
        ({"lead_time_s": 0}, "lead_time_s"),
        ({"lead_time_s": "365d"}, "lead_time_s"),
        ({"gain_s": "365d"}, "gain_s"),
        ({"gain_s": -1}, "gain_s"),
        ({"name": ""}, "name"),
        ({"shape": " "}, "shape"),
        ({"kind": "MAGIC"}, "kind"),
        ({"node_type": "x"}, "node_type"),
    ],
    ids=str,
)
def test_nonsense_is_refused_with_the_field_and_what_may_be(changes: dict[str, Any], field: str, world: World, admin: Caller) -> None:
    refused = admin.post("supplies/", {**NEW, **changes})

    assert field in faults(refused)
    assert not Supply.objects.exists()


def test_a_name_is_given_once_in_a_cluster(world: World, admin: Caller) -> None:
    admin.post("supplies/", NEW)

    refused = admin.post("supplies/", {**NEW, "name": "SPOT"})

    assert_problem(refused, 409, "conflict")
    assert "Choose another name" in refused.json()["detail"]


def test_a_change_leaves_the_rest_and_is_told_with_what_was_before(world: World, admin: Caller) -> None:
    before = admin.post("supplies/", NEW).json()

    after = admin.patch("supplies/spot/", {"lead_time_s": 60, "is_enabled": False, "why": "No money."}).json()

    assert after == {**before, "lead_time_s": 60, "is_enabled": False}
    message = Event.objects.get(kind="supply.changed").message
    assert "1 min lead, for a gain of 10 min, disabled; before it was 2 nodes of 8 x H100-80GB, 20 min lead" in message
    assert "No money." in message


def test_an_estimate_names_what_would_be_ordered_and_the_submit_orders_it(busy: World, owner: Caller, admin: Caller) -> None:
    (offer,) = owner.post("gprs/estimate/", ASK).json()["offers"]
    assert SupplyOrder.objects.count() == 0

    made = owner.post("gprs/", ASK).json()

    assert (offer["supply"], offer["order"]) == ("order", {"name": "spot", "lead_time_s": 1200})
    assert offer["explanation"]["reason"] == made["explanation"]["reason"] == "waits_for_order"
    orders = admin.get("supply-orders/").json()["results"]
    assert {(order["gpr"], order["name"], order["state"], order["is_late"]) for order in orders} == {("train", "spot", "ORDERED", False)}
    assert {order["expected_at"] for order in orders} == {made["promised_start_at"]}
    assert all(order["order_by_at"] == order["ordered_at"] for order in orders)
    assert admin.get("supplies/spot/").json()["ordered_count"] == 2


def test_lists_can_be_narrowed(busy: World, owner: Caller, admin: Caller) -> None:
    gpr = owner.post("gprs/", ASK).json()
    query: list[dict[str, Any]] = [{"state": "ORDERED"}, {"gpr": gpr["id"]}, {"supply": "spot"}, {"cluster": "aurora"}]

    assert [len(admin.get("supply-orders/", **each).json()["results"]) for each in query] == [2] * 4
    assert admin.get("supply-orders/", state="FAILED").json()["results"] == []
    assert admin.get("supplies/", shape="other").json()["results"] == []


@pytest.mark.parametrize(("act", "state"), [("cancel", "CANCELED"), ("fail", "FAILED")])
def test_an_order_is_ended_with_a_reason_and_whoever_waits_is_told(act: str, state: str, busy: World, owner: Caller, admin: Caller) -> None:
    gpr = owner.post("gprs/", ASK).json()
    order = admin.get("supply-orders/").json()["results"][0]

    assert "why" in faults(admin.post(f"supply-orders/{order['id']}/{act}/", {}))
    ended = admin.post(f"supply-orders/{order['id']}/{act}/", {"why": "No stock."}).json()
    tick(now=db_now())

    assert (ended["state"], ended["why"], ended["ended_by"]) == (state, "No stock.", "admin")
    assert_problem(admin.post(f"supply-orders/{order['id']}/{act}/", {"why": "Again."}), 409, "wrong_state")
    (move,) = owner.get(f"gprs/{gpr['id']}/").json()["promise_moves"]
    assert (move["cause"], move["cause_id"]) == ("supply", order["id"])
    assert set(SupplyOrder.objects.values_list("state", flat=True)) == {state, SupplyOrderState.CANCELED}
    assert PromiseMove.objects.count() == 1


def test_members_read_of_their_own_orders_in_the_journal_and_strangers_do_not(busy: World, owner: Caller, outsider: Caller) -> None:
    owner.post("gprs/", ASK)

    (event,) = owner.get("events/", kind="supply.ordered").json()["results"]

    assert event["message"].startswith("2 nodes of 8 x H100-80GB ordered from spot for train, expected ")
    assert outsider.get("events/", kind="supply.ordered").json()["results"] == []


def test_the_policy_of_a_workspace_says_whether_nodes_may_be_ordered_for_it(busy: World, owner: Caller, admin: Caller) -> None:
    admin.patch("slices/vision/", {"may_order": False})

    (offer,) = owner.post("gprs/estimate/", ASK).json()["offers"]
    owner.post("gprs/", ASK)

    assert (offer["supply"], offer["order"]) == ("nodes", None)
    assert not SupplyOrder.objects.exists()
    assert Promise.objects.get(gpr__name="train").slot_pool.startswith("aurora/")


def test_a_list_of_orders_costs_the_same_however_long_it_is(world: World, admin: Caller, django_assert_max_num_queries: Any) -> None:
    gpr = factories.gpr(world.slice, world.people.owner)
    for _ in range(10):
        factories.supply_order(world.cluster, gpr)

    with django_assert_max_num_queries(6):
        assert len(admin.get("supply-orders/").json()["results"]) == 10
    with django_assert_max_num_queries(6):
        assert len(admin.get("supplies/").json()["results"]) == 10


def test_what_becomes_of_an_order_is_no_affair_of_who_left_it_to_another(busy: World, owner: Caller, admin: Caller) -> None:
    """A person who canceled his request is not told that its node came, or for how long another waited for it."""
    gpr = owner.post("gprs/", ASK).json()
    assert owner.delete(f"gprs/{gpr['id']}/").status_code in {200, 204}
    tick(now=db_now())

    told = {row["kind"] for row in owner.get("events/").json()["results"]}
    known = {row["kind"] for row in admin.get("events/").json()["results"]}

    assert "supply.order_canceled" in known
    assert "supply.order_canceled" not in told
