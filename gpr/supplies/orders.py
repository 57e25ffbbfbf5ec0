"""Orders of nodes that a plan makes."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from gpr.allocation.rows import gprs_by_id
from gpr.allocation.snapshot import Loaded, at
from gpr.models import Gpr, GprState, Promise
from gpr.supplies.selectors import POOL_PREFIX, pool_id
from inventory.models import SupplyOrder, SupplyOrderState
from inventory.services.supplies import NewOrder, orders_drop, orders_place
from planner.plan import Plan
from planner.snapshot import Slot


def orders_follow(made: Plan, loaded: Loaded, *, now: datetime) -> None:
    """Order what slots of this plan need, and cancel what none needs. The caller holds the plan lock."""
    supply_state = loaded.places.supply_state
    if not supply_state.supplies:
        return
    slots = sorted(((p.slot, p.id) for p in made.all_placements if p.slot is not None), key=lambda pair: pair[0].start_s)
    supply_of = {
        id_: supply.id for supply in (pool.supply for pool in loaded.snapshot.pools) if supply is not None for id_ in supply.unordered
    }
    first: dict[str, tuple[Slot, str]] = {}
    for slot, gpr_id in slots if supply_of else ():
        for id_ in slot.nodes:
            if id_ in supply_of:
                first.setdefault(id_, (slot, gpr_id))
    gprs = gprs_by_id(gpr_id for _, gpr_id in first.values())
    wanted = [_order(id_, supply_of[id_], gprs[gpr_id], at(slot.start_s)) for id_, (slot, gpr_id) in first.items()]
    used = {id_ for slot, _ in slots for id_ in slot.nodes}
    orders_drop(orders=[order for order in supply_state.open_orders if str(order.pk) not in used], now=now)
    orders_place(orders=wanted, ordered_at=at(made.now_s), now=now)


def _order(id_: str, supply_id: str, gpr: Gpr, starts_at: datetime) -> NewOrder:
    return NewOrder(UUID(id_), UUID(supply_id), gpr.pk, gpr.name, gpr.slice_id, starts_at)


def orders_under(promise: Promise | None) -> list[SupplyOrder]:
    # A slot on existing nodes needs no query.
    if promise is None or not promise.slot_pool.startswith(POOL_PREFIX):
        return []
    rows = SupplyOrder.objects.filter(pk__in=promise.slot_nodes, state=SupplyOrderState.ORDERED).select_related("supply")
    return list(rows.order_by("supply__name", "expected_at", "pk"))


def gprs_on(order: SupplyOrder) -> list[Gpr]:
    # Queued GPRs whose slot uses the ordered node.
    rows = Promise.objects.filter(gpr__state=GprState.QUEUED, slot_pool=pool_id(order.supply_id)).select_related("gpr__slice")
    return [promise.gpr for promise in rows.order_by("slot_start_at", "pk") if str(order.pk) in promise.slot_nodes]
