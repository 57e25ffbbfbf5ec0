"""Nodes that the hub orders: the agent has them asked for in time, and in the simulated cluster they come as the fleet file says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.assignments import LEASE_TTL_S
from protocol.nodes.inventory import NodeOrder, NodeView
from tests.agent.stage import T0, Stage, small_fleet
from worker_agent.cluster.fleet import OrderableNodes
from worker_agent.cluster.simulated import SimulatedCluster

LEAD_S = 60.0
GROWTH = OrderableNodes(name="spot", count=2, node_type="hgx", gpu_model="H100", memory_gib=80, gpus=4, lead_time_s=LEAD_S)


def order(id_: str = "o-1", **changes: Any) -> NodeOrder:
    given = {"supply": "spot", "kind": "NODE_POOL", "shape": "H100-80GB", "gpus_per_node": 4, "gpu_memory_gib": 80}
    return NodeOrder(**{"id": id_, **given, "order_by_s": T0, "expected_s": T0 + 600, **changes})


def a_stage(*orders: NodeOrder) -> Stage:
    stage = Stage(msgspec.structs.replace(small_fleet(), supplies=(GROWTH,)))
    stage.orders = orders
    stage.tell()
    return stage


def run(stage: Stage, seconds: float) -> None:
    """The hub says the same again now and then."""
    for _ in range(round(seconds / 10)):
        stage.run(10)
        stage.tell()


def came(stage: Stage) -> list[NodeView]:
    """Returns the nodes that the agent reports to a hub that stores all it is sent."""
    stage.core.reconcile()
    while stage.core.pending_events():
        stage.take_events()
    return [view for view in stage.inventory if view.order]


def test_a_node_that_is_ordered_comes_after_its_lead_time_and_says_for_which_order() -> None:
    stage = a_stage(order())
    run(stage, LEAD_S - 10)
    assert came(stage) == []

    run(stage, 20)

    (view,) = came(stage)
    assert (view.name, view.order, view.supply, view.shape, len(view.gpus)) == ("test-spot-01", "o-1", "spot", "H100-80GB", 4)
    assert view.uid not in {node.uid for node in stage.views}


def test_each_order_brings_one_node_however_long_the_hub_goes_on_to_list_it() -> None:
    stage = a_stage(order(), order("o-2"))

    run(stage, 5 * LEAD_S)

    assert [view.order for view in came(stage)] == ["o-1", "o-2"]


def test_nothing_is_asked_for_before_it_is_time_to() -> None:
    stage = a_stage(order(order_by_s=T0 + 300))
    run(stage, 300 + LEAD_S - 10)
    assert came(stage) == []

    run(stage, 20)

    assert len(came(stage)) == 1


def test_what_is_not_wanted_any_more_does_not_come_and_what_has_come_stays() -> None:
    stage = a_stage(order())
    run(stage, LEAD_S - 10)
    stage.orders = (order("o-2"),)
    run(stage, LEAD_S + 20)
    assert [view.order for view in came(stage)] == ["o-2"]

    stage.orders = ()
    run(stage, LEAD_S)

    assert [view.order for view in came(stage)] == ["o-2"]


def test_no_node_is_asked_for_on_the_word_of_a_hub_that_is_not_heard() -> None:
    stage = a_stage(order(order_by_s=T0 + LEASE_TTL_S + 10))

    stage.run(10 * LEAD_S)

    assert came(stage) == []
    assert stage.cluster.world.asked == {}


def test_an_agent_that_starts_again_goes_on_to_wait_and_asks_for_nothing_twice() -> None:
    stage = a_stage(order())
    run(stage, LEAD_S - 10)
    for again in range(3):
        stage.cluster = SimulatedCluster(fleet=stage.fleet, store=stage.cluster._store, clock=stage.hub_clock)
        stage.start()
        stage.tell()
        run(stage, 20)
        assert [view.order for view in came(stage)] == ["o-1"], again


@pytest.mark.parametrize("changes", [{"supply": "other"}, {"shape": "B200-180GB"}, {"gpus_per_node": 8}, {"gpu_memory_gib": 96}], ids=str)
def test_what_the_fleet_has_not_does_not_come(changes: dict[str, Any]) -> None:
    stage = a_stage(order(**changes))

    run(stage, 2 * LEAD_S)

    assert came(stage) == []


def test_no_more_come_than_the_fleet_has() -> None:
    stage = a_stage(*(order(f"o-{number}") for number in range(3)))

    run(stage, 3 * LEAD_S)

    assert [view.name for view in came(stage)] == ["test-spot-01", "test-spot-02"]
