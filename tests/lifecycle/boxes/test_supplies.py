"""Nodes that are ordered for a request: it starts when they have come, never before, and whoever needs none orders none."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from core.errors import CanNeverStart
from gpr.models import Gpr, GprState, Promise, PromiseMove
from gpr.requests.editing import gpr_cancel, gpr_edit, spec_of
from gpr.requests.ending import gpr_release
from gpr.requests.estimates import gpr_estimate
from gpr.requests.services import gpr_submit
from gpr.supplies.selectors import REST
from gpr.supplies.services import order_refuse
from inventory.models import Node, Supply, SupplyKind, SupplyOrder, SupplyOrderState
from inventory.services.clusters import cluster_set_enabled
from inventory.services.maintenance import window_announce, window_draft
from inventory.services.supplies import ORDER_LATE_MOST_S, order_fail, supply_change, supply_create
from journal.models import Event
from planner import engine
from planner.causes import Cause
from planner.plan import Plan
from planner.snapshot import Snapshot
from protocol.nodes.inventory import GpuView, NodeView
from slices.models import Slice
from slices.policies.services import policy_change, policy_of
from tests.agent.stage import FakeClock
from tests.builders import SHAPE, make_slice, node_view, nodes_of, spec
from tests.lifecycle.stage import EXIT, Stage, fresh
from worker_agent.cluster.fleet import OrderableNodes, SimulatedFleet
from worker_agent.cluster.simulated import SimulatedCluster
from worker_agent.cluster.store import MemoryStore

# Each day: tests/planner/sharing/test_supplies.py, and tests/api/fleet/test_supplies.py
pytestmark = [pytest.mark.django_db, pytest.mark.rotates]

S, State = GprState, SupplyOrderState
LEAD_S, GAIN_S = 1200, 600


def supply(stage: Stage, **changes: Any) -> Supply:
    given: dict[str, Any] = {"name": "spot", "kind": SupplyKind.NODE_POOL, "shape": SHAPE, "gpus_per_node": 4, "gpu_memory_gib": 80}
    given |= {"node_count": 2, "lead_time_s": LEAD_S, "gain_s": GAIN_S, "cluster": stage.cluster}
    return supply_create(supply=Supply(**{**given, **changes}), actor=stage.admin, now=stage.now)


def ordering_slice(stage: Stage) -> Slice:
    made = make_slice(stage.cluster, owner=stage.owner)
    policy_change(policy=policy_of(made), terms={"may_order": True}, actor=stage.admin, now=stage.now)
    return made


def busy_stage() -> Stage:
    """Its only node has four GPUs and is taken for an hour."""
    stage = Stage(nodes=1)
    stage.active()
    return stage


@pytest.fixture(scope="module")
def built_stage(module_db: None) -> Stage:
    return busy_stage()


@pytest.fixture
def stage(built_stage: Stage, db: None) -> Stage:
    return deepcopy(built_stage)


def free(stage: Stage) -> None:
    """The box that has taken the node ends."""
    running = Gpr.objects.get(state=GprState.ACTIVE)
    gpr_release(gpr=running, actor=stage.owner, now=stage.now)
    stage.say(running, *EXIT)
    stage.tick()


def states() -> list[str]:
    return list(SupplyOrder.objects.order_by("ordered_at", "pk").values_list("state", flat=True))


def report(stage: Stage, *new: NodeView) -> None:
    """The agent's whole inventory: the nodes that it had, and new ones."""
    old = [node_view(n.name, gpus=n.gpu_count, node_type=n.node_type) for n in nodes_of(stage.cluster) if n.gone_at is None]
    stage.agent.inventory(*[view for view in old if view.name not in {each.name for each in new}], *new, at=stage.now)


def fresh_order(order: SupplyOrder) -> SupplyOrder:
    return SupplyOrder.objects.get(pk=order.pk)


def promised(gpr: Gpr) -> Any:
    return Promise.objects.get(gpr=gpr).promised_start_at


def test_a_node_is_ordered_with_the_promise_and_the_request_starts_on_it_when_it_has_come(stage: Stage) -> None:
    supply(stage)

    gpr = stage.submit(ordering_slice(stage))

    order = SupplyOrder.objects.get()
    assert (order.gpr, order.state, order.expected_at) == (gpr, State.ORDERED, stage.now + timedelta(seconds=LEAD_S))
    assert promised(gpr) == fresh(gpr).planned_start_at == order.expected_at
    assert fresh(gpr).explanation["reason"] == "waits_for_order"
    stage.after(LEAD_S - 1)
    assert stage.tick().started == []

    report(stage, node_view("spot-1"))
    assert stage.tick().started == [gpr.pk]

    order.refresh_from_db()
    assert (order.state, order.node.name if order.node else "") == (State.ARRIVED, "spot-1")
    assert [row.node.name for row in stage.held(gpr)] == ["spot-1"]
    assert not PromiseMove.objects.exists()
    kinds = Event.objects.filter(kind__startswith="supply.order").order_by("id").values_list("kind", "gpr_id")
    assert list(kinds) == [("supply.ordered", gpr.pk), ("supply.order_arrived", gpr.pk)]


def test_the_plan_is_stable_while_it_waits(stage: Stage) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    before = promised(gpr), states()

    for _ in range(3):
        stage.after(7)
        stage.tick()

    assert (promised(gpr), states()) == before
    assert not PromiseMove.objects.exists()


def test_nothing_is_ordered_for_a_workspace_that_may_not_order(stage: Stage) -> None:
    supply(stage)

    gpr = stage.submit(make_slice(stage.cluster, owner=stage.owner))

    assert states() == []
    assert fresh(gpr).explanation["reason"] == "waits_for_gpus"


@pytest.mark.parametrize(("gain_s", "count"), [(60, 1), (7200, 0)], ids=["enough", "too little"])
def test_nothing_is_ordered_for_less_than_the_gain(stage: Stage, gain_s: int, count: int) -> None:
    supply(stage, gain_s=gain_s)

    stage.submit(ordering_slice(stage))

    assert len(states()) == count


def test_nothing_is_ordered_where_a_node_is_free(stage: Stage) -> None:
    free(stage)
    supply(stage)

    gpr = stage.submit(ordering_slice(stage))

    assert states() == []
    assert stage.tick().started == [gpr.pk]


def test_a_supply_that_is_disabled_or_used_up_gives_nothing(stage: Stage) -> None:
    small = supply(stage, node_count=1)
    stage.submit(ordering_slice(stage))
    stage.submit(ordering_slice(stage), name="second")
    assert states() == [State.ORDERED]

    supply_change(supply=small, change={"node_count": 2, "is_enabled": False}, actor=stage.admin, now=stage.now)
    stage.tick()
    assert states() == [State.ORDERED]

    supply_change(supply=small, change={"is_enabled": True}, actor=stage.admin, now=stage.now)
    stage.tick()
    assert states() == [State.ORDERED, State.ORDERED]


def test_a_supply_added_later_serves_those_who_wait_and_moves_no_promise(stage: Stage) -> None:
    gpr, other = stage.submit(ordering_slice(stage)), stage.submit(make_slice(stage.cluster, owner=stage.owner), name="other")
    before = promised(gpr), promised(other)

    supply(stage)
    stage.tick()

    assert SupplyOrder.objects.get().gpr == gpr
    assert promised(gpr) < before[0]
    assert promised(other) == before[1]


def test_whoever_is_canceled_needs_its_nodes_no_more(stage: Stage) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))

    gpr_cancel(gpr=fresh(gpr), actor=stage.owner, now=stage.now)
    stage.tick()

    order = SupplyOrder.objects.get()
    assert (order.state, order.ended_by, order.ended_at) == (State.CANCELED, None, stage.now)


def test_an_order_stays_for_another_who_stands_on_it(stage: Stage) -> None:
    supply(stage, node_count=1)
    first = stage.submit(ordering_slice(stage), gpus_per_node=2)
    second = stage.submit(ordering_slice(stage), name="second", gpus_per_node=2)
    assert Promise.objects.get(gpr=first).slot_nodes == Promise.objects.get(gpr=second).slot_nodes

    gpr_cancel(gpr=fresh(first), actor=stage.owner, now=stage.now)
    stage.tick()

    assert states() == [State.ORDERED]


def test_whoever_starts_elsewhere_needs_its_nodes_no_more(stage: Stage) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))

    free(stage)

    assert [row.node.name for row in stage.held(gpr)] == [f"{stage.cluster.name}-n0"]
    assert states() == [State.CANCELED]


def test_a_node_that_comes_late_moves_the_promise_with_its_cause_and_nobody_starts_without_it(stage: Stage) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    order = SupplyOrder.objects.get()

    for _ in range(30):
        stage.after(LEAD_S if stage.now < order.expected_at else 13)
        assert stage.tick().started == []

    # Once, to when it would be given up; not again and again.
    move = PromiseMove.objects.get(gpr=gpr)
    assert (move.cause, move.cause_id) == (Cause.SUPPLY, str(order.pk))
    assert promised(gpr) == order.expected_at + timedelta(seconds=ORDER_LATE_MOST_S)
    assert states() == [State.ORDERED]

    report(stage, node_view("spot-1"))
    assert stage.tick().started == [gpr.pk]


def test_nothing_more_is_ordered_from_a_supply_that_is_late(stage: Stage) -> None:
    supply(stage)
    stage.submit(ordering_slice(stage))

    stage.after(LEAD_S + 5)
    stage.tick()
    stage.submit(ordering_slice(stage), name="second", duration_s=60)

    assert states() == [State.ORDERED]


def test_an_order_that_is_too_late_has_failed_and_the_request_starts_elsewhere(stage: Stage) -> None:
    """The supply then rests, for longer each time."""
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))

    stage.watched(LEAD_S + ORDER_LATE_MOST_S)
    stage.tick()

    assert states() == [State.FAILED]
    assert Promise.objects.get(gpr=gpr).slot_nodes == [str(nodes_of(stage.cluster)[0].pk)]
    assert PromiseMove.objects.filter(gpr=gpr).count() == 1
    assert "did not come in time" in Event.objects.get(kind="supply.order_failed").message


def test_an_order_that_failed_moves_the_request_with_the_cause_and_the_supply_rests(stage: Stage) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    order = SupplyOrder.objects.get()

    order_fail(order=order, actor=stage.admin, why="No stock.", now=stage.now)
    stage.tick()

    move = PromiseMove.objects.get(gpr=gpr)
    assert (move.cause, move.cause_id) == (Cause.SUPPLY, str(order.pk))
    assert Promise.objects.get(gpr=gpr).slot_nodes == [str(nodes_of(stage.cluster)[0].pk)]
    assert states() == [State.FAILED]
    assert "No stock." in Event.objects.get(kind="supply.order_failed").message

    stage.after(REST.total_seconds())
    stage.tick()
    assert states() == [State.FAILED, State.ORDERED]


def test_an_administrator_who_cancels_an_order_is_not_asked_for_it_again(stage: Stage) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))

    order_refuse(order=SupplyOrder.objects.get(), actor=stage.admin, why="Too dear.", now=stage.now)
    stage.tick()
    stage.after(REST.total_seconds())
    stage.tick()
    assert states() == [State.CANCELED]
    assert PromiseMove.objects.get(gpr=gpr).cause == Cause.SUPPLY

    stage.submit(ordering_slice(stage), name="another", duration_s=60)
    assert sorted(states()) == [State.CANCELED, State.ORDERED]


def test_who_stands_on_ordered_nodes_and_asks_for_others_now_leaves_them(stage: Stage) -> None:
    """Otherwise a node would be ordered for nobody, and the promise would break when it comes."""
    report(stage, node_view("a100", shape="A100-80GB"))
    other = stage.submit(make_slice(stage.cluster, owner=stage.owner), shape="A100-80GB", duration_s=2 * 3600)
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    assert states() == [SupplyOrderState.ORDERED]

    gpr_edit(gpr=gpr, actor=stage.owner, spec=spec_of(fresh(gpr), shape="A100-80GB"), now=stage.now)
    stage.tick()

    promise = Promise.objects.get(gpr=gpr)
    assert promise.slot_pool.split("/")[1] == "A100-80GB"
    assert states() == [SupplyOrderState.CANCELED]
    assert fresh(other).state in {GprState.PROVISIONING, GprState.ACTIVE}


def test_a_booking_that_only_ordered_nodes_could_hold_is_refused_with_the_most_that_could_start(stage: Stage) -> None:
    """EGS never orders nodes for a booking."""
    supply(stage)

    with pytest.raises(CanNeverStart) as refused:
        stage.submit(ordering_slice(stage), nodes=2, is_booking=True, earliest_start_at=stage.now + timedelta(hours=5))

    assert (refused.value.extra["most_nodes"], refused.value.extra["most_gpus_per_node"]) == (1, 4)


def test_what_an_administrator_cancels_is_ordered_again_for_nobody_who_stood_on_it(stage: Stage) -> None:
    supply(stage)
    on_it = [stage.submit(ordering_slice(stage), name=name, gpus_per_node=2) for name in ("first", "second")]
    order = SupplyOrder.objects.get()
    assert [Promise.objects.get(gpr=gpr).slot_nodes for gpr in on_it] == [[str(order.pk)]] * 2

    order_refuse(order=order, actor=stage.admin, why="Too dear.", now=stage.now)
    stage.tick()
    stage.after(REST.total_seconds())
    stage.tick()

    assert states() == [State.CANCELED]
    assert {move.gpr for move in PromiseMove.objects.filter(cause=Cause.SUPPLY)} == set(on_it)


def test_of_two_nodes_the_first_waits_for_the_second_and_nobody_else_starts_on_it(stage: Stage) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage), nodes=2)
    assert states() == [State.ORDERED, State.ORDERED]

    stage.after(60)
    report(stage, node_view("spot-1"))
    other = stage.submit(make_slice(stage.cluster, owner=stage.owner), name="short", duration_s=60)
    assert stage.tick().started == []
    assert fresh(other).state == S.QUEUED
    assert not PromiseMove.objects.exists()

    stage.after(60)
    # Another instance type: they are alike to nobody but this request.
    report(stage, node_view("spot-2", node_type="other"))
    assert stage.tick().started == [gpr.pk]
    assert {row.node.name for row in stage.held(gpr)} == {"spot-1", "spot-2"}


def test_a_node_that_has_come_but_is_not_ready_yet_is_waited_for_as_before(stage: Stage) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))

    stage.after(300)
    report(stage, node_view("spot-1", ready=False))
    assert stage.tick().started == []
    assert not PromiseMove.objects.exists()
    assert fresh(gpr).explanation["reason"] == "waits_for_order"

    stage.after(60)
    report(stage, node_view("spot-1"))
    assert stage.tick().started == [gpr.pk]


def two_orders(stage: Stage) -> tuple[SupplyOrder, SupplyOrder]:
    """Two supplies of the same nodes each have an order; EGS expects that of the first supply first."""
    supply(stage, name="spot", node_count=1)
    supply(stage, name="on demand", node_count=1, lead_time_s=LEAD_S + 60)
    for name in ("first", "second"):
        stage.submit(ordering_slice(stage), name=name)
    first, second = SupplyOrder.objects.order_by("expected_at")
    assert (first.supply.name, second.supply.name) == ("spot", "on demand")
    return first, second


@pytest.mark.parametrize("label", ["order", "supply by name", "supply by id"])
def test_a_node_whose_label_says_what_it_was_ordered_for_fulfils_just_that(stage: Stage, label: str) -> None:
    first, second = two_orders(stage)
    said: dict[str, dict[str, Any]] = {
        "order": {"order": str(second.pk)},
        "supply by name": {"supply": "on demand"},
        "supply by id": {"supply": str(second.supply_id)},
    }

    report(stage, node_view("new", **said[label]))

    assert (fresh_order(first).state, fresh_order(second).state) == (State.ORDERED, State.ARRIVED)
    assert stage.tick().started == [second.gpr_id]


def test_of_nodes_that_come_together_those_with_a_label_are_heard_first(stage: Stage) -> None:
    first, second = two_orders(stage)

    report(stage, node_view("a"), node_view("b", supply="spot"), node_view("c", order=str(first.pk)))

    nodes = {row.pk: row.node.name for row in SupplyOrder.objects.select_related("node") if row.node is not None}
    assert nodes == {first.pk: "c", second.pk: "b"}


def test_a_label_that_names_nothing_open_takes_no_order_from_a_node_that_names_its_supply(stage: Stage) -> None:
    first, second = two_orders(stage)

    report(stage, node_view("a", order="none of ours"), node_view("b", supply="spot"))

    nodes = {row.pk: row.node.name for row in SupplyOrder.objects.select_related("node") if row.node is not None}
    assert nodes == {first.pk: "b", second.pk: "a"}


@pytest.mark.parametrize("said", [{"order": "none of ours"}, {"supply": "none of ours"}, {"order": "ended"}], ids=str)
def test_a_label_that_names_no_open_order_is_as_none(stage: Stage, said: dict[str, str]) -> None:
    first, second = two_orders(stage)
    order_fail(order=second, actor=stage.admin, why="No stock.", now=stage.now)

    labels: dict[str, Any] = {key: str(second.pk) if name == "ended" else name for key, name in said.items()}
    report(stage, node_view("new", **labels))

    assert fresh_order(first).state == State.ARRIVED


def test_a_label_makes_no_node_fit_that_was_not_ordered(stage: Stage) -> None:
    supply(stage)
    stage.submit(ordering_slice(stage))

    report(stage, node_view("small", gpus=2, order=str(SupplyOrder.objects.get().pk)))

    assert states() == [State.ORDERED]


def test_a_node_of_another_size_is_no_answer_to_the_order(stage: Stage) -> None:
    supply(stage)
    stage.submit(ordering_slice(stage))

    report(stage, node_view("small", gpus=2))

    assert states() == [State.ORDERED]


def test_gpus_of_a_known_node_that_come_back_were_not_ordered(stage: Stage) -> None:
    supply(stage)
    report(stage, node_view("old"))
    stage.active(slice_=make_slice(stage.cluster, owner=stage.owner))
    stage.submit(ordering_slice(stage))

    report(stage, node_view("old", gpus=0))
    report(stage, node_view("old"))

    assert State.ARRIVED not in states()


def test_gpus_that_are_attached_to_a_known_node_fulfil_an_order(stage: Stage) -> None:
    old, new = (tuple(GpuView(uuid=f"GPU-{name}-{i}", index=i, model="H100", memory_gib=80) for i in range(4)) for name in ("old", "new"))
    report(stage, msgspec.structs.replace(node_view("host"), gpus=old))
    report(stage, node_view("host", gpus=0))
    supply(stage, kind=SupplyKind.ATTACH)
    gpr = stage.submit(ordering_slice(stage))

    report(stage, msgspec.structs.replace(node_view("host"), gpus=new))

    assert states() == [State.ARRIVED]
    assert stage.tick().started == [gpr.pk]


def test_a_node_whose_gpus_come_in_two_reports_is_the_one_that_was_ordered(stage: Stage) -> None:
    supply(stage)
    stage.submit(ordering_slice(stage))

    report(stage, node_view("spot-1", gpus=2))
    assert states() == [State.ORDERED]
    report(stage, node_view("spot-1", gpus=4))
    report(stage, node_view("spot-1", gpus=4, shape=SHAPE, rdma=True))

    assert states() == [State.ARRIVED]


def test_gpus_that_a_driver_has_found_again_fulfil_no_order(stage: Stage) -> None:
    supply(stage, kind=SupplyKind.ATTACH)
    report(stage, node_view("host"))
    stage.submit(ordering_slice(stage), nodes=2)
    report(stage, node_view("host", gpus=0))

    report(stage, node_view("host"))

    assert states() == [State.ORDERED] * 2


def test_what_is_new_to_the_cluster_can_be_had_as_well(stage: Stage) -> None:
    new = "B200-180GB"
    asked = {"shape": new, "min_gpu_memory_gib": None}
    slice_ = ordering_slice(stage)
    supply(stage, shape=new, gpu_memory_gib=180)

    gpr = stage.submit(slice_, **asked)
    second = stage.submit(ordering_slice(stage), **asked, nodes=2, name="both")

    assert states() == [State.ORDERED, State.ORDERED]
    assert promised(gpr) == stage.now + timedelta(seconds=LEAD_S)
    assert fresh(second).planned_start_at is not None
    with pytest.raises(CanNeverStart):
        stage.submit(ordering_slice(stage), **asked, nodes=3)


def test_the_estimate_is_what_the_allocator_then_does(stage: Stage) -> None:
    made = supply(stage)
    asked = spec(ordering_slice(stage))

    (offer,) = gpr_estimate(actor=stage.owner, spec=asked, now=stage.now)
    assert states() == []
    gpr = gpr_submit(actor=stage.owner, spec=asked, now=stage.now)

    assert (offer.supply, offer.wait_s) == ("order", LEAD_S)
    assert offer.order is not None
    assert (offer.order.name, offer.order.lead_time_s) == (made.name, LEAD_S)
    assert offer.start_at == fresh(gpr).planned_start_at
    assert offer.promised_start_at == promised(gpr)


def test_an_offer_of_what_gains_too_little_is_of_the_nodes_that_are_there(stage: Stage) -> None:
    supply(stage, gain_s=7200)

    (offer,) = gpr_estimate(actor=stage.owner, spec=spec(ordering_slice(stage)), now=stage.now)

    assert (offer.supply, offer.order) == ("nodes", None)


def test_a_smaller_request_that_needs_no_order_is_an_alternative(stage: Stage) -> None:
    report(stage, node_view("free"))
    supply(stage)

    (offer,) = gpr_estimate(actor=stage.owner, spec=replace(spec(ordering_slice(stage)), nodes=2), now=stage.now)

    assert offer.supply == "order"
    assert [(each.nodes, each.wait_s) for each in offer.alternatives][:1] == [(1, 0)]


def test_a_slot_on_ordered_nodes_outlives_a_change_of_policy(stage: Stage) -> None:
    supply(stage)
    slice_ = ordering_slice(stage)
    gpr = stage.submit(slice_)

    policy_change(policy=policy_of(slice_), terms={"may_order": False}, actor=stage.admin, now=stage.now)
    stage.after(5)
    stage.tick()

    assert states() == [State.ORDERED]
    assert not PromiseMove.objects.filter(gpr=gpr).exists()


def test_when_a_node_that_came_is_gone_the_supply_can_give_another(stage: Stage) -> None:
    made = supply(stage, node_count=1)
    gpr = stage.submit(ordering_slice(stage))
    report(stage, node_view("spot-1"))
    gpr_cancel(gpr=fresh(gpr), actor=stage.owner, now=stage.now)
    stage.lose(Node.objects.get(name="spot-1"))

    stage.submit(ordering_slice(stage), name="next")

    assert sorted(states()) == [State.ARRIVED, State.ORDERED]
    assert set(SupplyOrder.objects.values_list("supply", flat=True)) == {made.pk}


def test_a_node_that_comes_while_a_plan_is_made_is_not_lost(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    real = engine.plan

    def plan_late(snapshot: Snapshot, **how: Any) -> Plan:
        made = real(snapshot, **how)
        if State.ARRIVED not in states():
            report(stage, node_view("spot-1"))
        return made

    monkeypatch.setattr("gpr.allocation.stored_plan.plan", plan_late)
    stage.after(60)
    assert stage.tick().started == []

    assert states() == [State.ARRIVED]
    assert stage.tick().started == [gpr.pk]
    assert not PromiseMove.objects.exists()


def test_an_order_that_is_canceled_while_a_plan_is_made_starts_nobody_and_is_named_as_the_cause(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    order, real = SupplyOrder.objects.get(), engine.plan

    def plan_late(snapshot: Snapshot, **how: Any) -> Plan:
        made = real(snapshot, **how)
        if states() == [State.ORDERED]:
            order_refuse(order=order, actor=stage.admin, why="Too dear.", now=stage.now)
        return made

    monkeypatch.setattr("gpr.allocation.stored_plan.plan", plan_late)
    stage.tick()
    stage.tick()

    move = PromiseMove.objects.get(gpr=gpr)
    assert (move.cause, move.cause_id) == (Cause.SUPPLY, str(order.pk))


def test_the_agent_is_told_of_what_is_ordered_and_a_simulated_cluster_delivers_it(stage: Stage) -> None:
    other = Stage(nodes=0)
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    growth = OrderableNodes(name="spot", count=1, node_type="hgx", gpu_model="H100", memory_gib=80, gpus=4, lead_time_s=300)
    clock = FakeClock(wall=stage.now.timestamp())
    cluster = SimulatedCluster(fleet=SimulatedFleet(name="sim", groups=(), supplies=(growth,)), store=MemoryStore(), clock=clock)

    for _ in range(6):
        cluster.order_nodes(stage.agent.sync(at=stage.now).orders)
        assert other.agent.sync(at=stage.now).orders == ()
        report(stage, *(node.view for node in cluster.observe().values()))
        started = stage.tick().started
        stage.after(60)
        clock.advance(60)

    assert started == [gpr.pk]
    order = SupplyOrder.objects.select_related("node").get()
    assert (order.state, order.node.name if order.node else "") == (State.ARRIVED, "sim-spot-01")
    assert stage.agent.sync(at=stage.now).orders == ()


def test_in_a_cluster_that_is_disabled_nothing_is_ordered_and_what_is_ordered_is_waited_for(stage: Stage) -> None:
    supply(stage)
    gpr = stage.submit(ordering_slice(stage))
    before = promised(gpr)

    cluster_set_enabled(cluster=stage.cluster, is_enabled=False, actor=stage.admin, now=stage.now)
    stage.tick()
    stage.submit(ordering_slice(stage), name="second")

    assert states() == [State.ORDERED]
    assert promised(gpr) == before


def test_while_nodes_are_closed_for_maintenance_none_is_ordered_into_it(stage: Stage) -> None:
    supply(stage)
    begins_at = stage.now + timedelta(minutes=10)
    given: dict[str, Any] = {"starts_at": begins_at, "ends_at": begins_at + timedelta(hours=3), "reason": "Power."}
    window_announce(window=window_draft(cluster=stage.cluster, node=None, now=stage.now, **given), actor=stage.admin, now=stage.now)

    gpr = stage.submit(ordering_slice(stage))

    assert promised(gpr) >= given["ends_at"]
