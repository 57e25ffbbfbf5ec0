"""Tells the planner of supplies: nodes that are ordered, could be ordered, or have arrived.

Reads an order's id in stored slots as the id of its node once that has arrived.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid5

from django.db.models import Count, Max, Q, QuerySet

from gpr.allocation.rows import PromiseRow
from gpr.models import GprState
from inventory.models import Cluster, HubAbsence, Supply, SupplyOrder, SupplyOrderState
from inventory.selectors import cluster_is_open
from inventory.services.supplies import ORDER_LATE_MOST_S
from planner.snapshot import Node, Pool, Window
from planner.snapshot import Supply as PlannerSupply

# A supply rests this long after a failed order: what was not available a moment ago is not available now. The time doubles with each more
# failure within a day, up to a day.
REST: Final = timedelta(minutes=15)
DAY: Final = timedelta(days=1)
# Prefix of the ids of supplies' pools; no cluster has such a name.
POOL_PREFIX: Final = "+supply/"


@dataclass(frozen=True, slots=True)
class SupplyState:
    supplies: tuple[Supply, ...] = ()
    open_orders: tuple[SupplyOrder, ...] = ()
    # The node that arrived for an order, by ids.
    node_of: Mapping[str, str] = field(default_factory=dict)
    # Arrived nodes by supply.
    there: Mapping[UUID, frozenset[UUID]] = field(default_factory=dict)
    # The supply's pool by arrived node, while slots there also need nodes that are still to come.
    kept: Mapping[UUID, str] = field(default_factory=dict)
    # An order, or an arrived node that was never ready, counts as closed for so long.
    due: Mapping[str, Window] = field(default_factory=dict)
    # (GPR, supply) where an administrator canceled an order.
    refused: frozenset[tuple[UUID, UUID]] = frozenset()

    def nodes_of(self, slot_nodes: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.node_of.get(id_, id_) for id_ in slot_nodes)


def pool_id(supply_id: UUID | str) -> str:
    return f"{POOL_PREFIX}{supply_id}"


def supplies_load(
    promises: Iterable[PromiseRow], clusters: Mapping[UUID, Cluster], *, now: datetime, now_s: int, grace_s: int
) -> SupplyState:
    """Runs three queries."""
    failed = Q(orders__state=SupplyOrderState.FAILED, orders__ended_at__gt=now - DAY)
    counts = {
        "order_count": Count("orders"),
        "failed_at": Max("orders__ended_at", filter=failed),
        "failed_count": Count("orders", filter=failed),
    }
    supplies: Any = tuple(Supply.objects.filter(cluster__in=list(clusters)).order_by("pk").annotate(**counts))
    if not supplies:
        return SupplyState()
    for supply in supplies:
        supply.cluster = clusters[supply.cluster_id]
    is_alive = Q(state=SupplyOrderState.ORDERED) | Q(state=SupplyOrderState.ARRIVED, node__gone_at=None)
    orders = _orders(SupplyOrder.objects.filter(is_alive).order_by("expected_at", "pk"))
    open_orders = tuple(order for order in orders if order.state == SupplyOrderState.ORDERED)
    node_of = {str(order.pk): str(order.node_id) for order in orders if order.node_id is not None}
    due = {str(order.pk): _due(order, now_s, grace_s) for order in open_orders}
    # Arrived nodes with epoch 0 were never used, so one that is not ready has never been ready.
    due |= {str(order.node_id): _due(order, now_s, grace_s) for order in orders if order.node is not None and order.node.epoch == 0}
    refused = SupplyOrder.objects.filter(refused_to__state=GprState.QUEUED)
    return SupplyState(
        supplies=supplies,
        open_orders=open_orders,
        node_of=node_of,
        there={s.pk: frozenset(o.node_id for o in orders if o.node_id is not None and o.supply_id == s.pk) for s in supplies},
        kept=_kept(promises, orders, node_of),
        due=due,
        refused=frozenset(refused.values_list("refused_to", "supply")),
    )


def _orders(rows: QuerySet[SupplyOrder]) -> list[SupplyOrder]:
    rows = rows.select_related("supply", "gpr__promise", "node").only(
        "state",
        "expected_at",
        "supply__name",
        "supply__cluster",
        "gpr__name",
        "gpr__slice",
        "gpr__promise__slot_nodes",
        "node__node_type",
        "node__gpu_memory_gib",
        "node__rdma",
        "node__epoch",
    )
    return list(rows)


def supply_pools(
    supply_state: SupplyState,
    arrived: Mapping[str, list[Node]],
    announced: Mapping[UUID, Sequence[Window]],
    closures: Mapping[UUID, tuple[Window, ...]],
    *,
    absence: HubAbsence | None,
    now: datetime,
) -> list[Pool]:
    """Makes one pool for each supply, with its arrived, ordered and orderable nodes."""
    # `arrived`: by pool. `announced`: maintenance by cluster. `closures`: present closures of whole clusters.
    pools = []
    for supply in supply_state.supplies:
        orders = [order for order in supply_state.open_orders if order.supply_id == supply.pk]
        closed = tuple(announced.get(supply.cluster_id, ()))
        # Arriving nodes cannot be seen in a cluster that is silent.
        unheard = tuple(window for window in closures.get(supply.cluster_id, ()) if window.unheard)
        ordered = (Node(str(order.pk), supply.gpus_per_node, (supply_state.due[str(order.pk)], *closed, *unheard)) for order in orders)
        unordered = [Node(id_, supply.gpus_per_node, closed) for id_ in _ids_to_order(supply, supply_state, now, absence)]
        growth = PlannerSupply(str(supply.pk), supply.lead_time_s, supply.gain_s, frozenset(node.id for node in unordered))
        nodes = (*arrived.get(pool_id(supply.pk), ()), *ordered, *unordered)
        pools.append(Pool(pool_id(supply.pk), supply.cluster.name, supply.shape, nodes, growth))
    return pools


def _due(order: SupplyOrder, now_s: int, grace_s: int) -> Window:
    # Closed until the expected time; then until the order is given up. An arrived node that is late may take another grace time.
    expected_s = math.floor(order.expected_at.timestamp())
    if expected_s > now_s:
        return Window(now_s, expected_s, order=str(order.pk))
    given_up_s = expected_s + ORDER_LATE_MOST_S
    late_until_s = given_up_s if now_s < given_up_s else now_s + grace_s - (now_s - given_up_s) % grace_s
    return Window(now_s, late_until_s, order=str(order.pk), is_late=True)


def _kept(promises: Iterable[PromiseRow], orders: Iterable[SupplyOrder], node_of: Mapping[str, str]) -> dict[UUID, str]:
    # A box stands in one pool. So arrived nodes stay in the supply's pool while a slot there also needs nodes that have not arrived, or
    # shares nodes with such a slot, and so on transitively.
    alike = {str(o.node_id): (o.node.node_type, o.node.gpu_memory_gib, o.node.rdma) for o in orders if o.node is not None}
    slots: dict[str, list[set[str]]] = defaultdict(list)
    for promise in promises:
        if promise.slot_pool.startswith(POOL_PREFIX):
            slots[promise.slot_pool].append({node_of.get(id_, id_) for id_ in promise.slot_nodes})
    kept: dict[UUID, str] = {}
    for pool, sets in slots.items():
        tied: set[str] = set()
        grows = True
        while grows:
            loose = [nodes for nodes in sets if not nodes <= tied]
            torn = [n for n in loose if n & tied or not n <= alike.keys() or len({alike[id_] for id_ in n}) > 1]
            tied |= set().union(*torn)
            grows = bool(torn)
        kept |= {UUID(id_): pool for id_ in tied if id_ in alike}
    return kept


def _ids_to_order(supply: Any, supply_state: SupplyState, now: datetime, absence: HubAbsence | None) -> list[str]:
    # The ids stay the same until something is ordered.
    own = [order for order in supply_state.open_orders if order.supply_id == supply.pk]
    rests = supply.failed_at is not None and now < supply.failed_at + min(REST * 2 ** min(supply.failed_count - 1, 10), DAY)
    if (
        rests
        or not supply.is_enabled
        or not cluster_is_open(supply.cluster, now, absence=absence)
        or any(order.is_late(now) for order in own)
    ):
        return []
    left_count = max(supply.node_count - len(own) - len(supply_state.there[supply.pk]), 0)
    return [str(uuid5(supply.pk, f"{supply.order_count}/{i}")) for i in range(left_count)]
