"""Keeps supplies and orders, one order per node.

Must not live here: which nodes are ordered for which request (the planner's), growing a node pool (docs/how-to/supplies.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts.models import User
from core.database.rare_rows import rare_rows
from core.errors import IllegalTransition, InvalidInput, NameTaken
from core.words import duration_exact, number, plural, utc
from inventory.models import (
    SUPPLY_GAIN_MAX_S,
    SUPPLY_GPUS_MAX,
    SUPPLY_LEAD_MAX_S,
    SUPPLY_NODES_MAX,
    Cluster,
    Node,
    Supply,
    SupplyKind,
    SupplyOrder,
    SupplyOrderState,
)
from journal.changes import difference, values_of
from journal.guard import set_aside_on_error
from journal.hints import TICK, hint
from journal.models import Severity
from journal.services import event_record

MEMORY_MAX_GIB = 100_000
ORDER_WHY_MAX_CHARS = 200
# A node that is this late is given up.
ORDER_LATE_MOST_S = 900


class SupplyChange(TypedDict, total=False):
    """Kind, shape and GPUs cannot change, since orders depend on them."""

    name: str
    node_count: int
    lead_time_s: int
    gain_s: int
    is_enabled: bool


@dataclass(frozen=True, slots=True)
class NewOrder:
    """`id` is the node's id in the plan."""

    id: UUID
    supply_id: UUID
    gpr_id: UUID
    gpr_name: str
    slice_id: UUID
    expected_at: datetime


@dataclass(frozen=True, slots=True)
class NodeArrival:
    """`kinds`: of supplies it can be from; `order`, `supply`: values of its labels, unchecked."""

    node: Node
    kinds: tuple[SupplyKind, ...]
    order: str
    supply: str

    def fits(self, supply: Supply) -> bool:
        node = self.node
        is_alike = (supply.shape, supply.gpus_per_node) == (node.shape, node.gpu_count)
        return is_alike and supply.gpu_memory_gib <= node.gpu_memory_gib and supply.kind in self.kinds

    def mismatch(self, order: SupplyOrder) -> tuple[bool, bool]:
        """The smallest value is the order that the labels name."""
        return self.order != str(order.pk), self.supply not in {str(order.supply_id), order.supply.name}


@transaction.atomic
def supply_create(*, supply: Supply, actor: User, now: datetime) -> Supply:
    """Raises InvalidInput, NameTaken."""
    _check(supply)
    supply.created_at = now
    _save(supply, is_new=True)
    _record_supply_event(
        supply, "created", f"Supply {supply.name} of cluster {supply.cluster.name} was added: {terms(supply)}.", actor, now
    )
    return supply


@transaction.atomic
def supply_change(*, supply: Supply, change: SupplyChange, actor: User, now: datetime, why: str = "") -> Supply:
    """Applies to later orders. Raises InvalidInput, NameTaken."""
    found = Supply.objects.select_for_update().select_related("cluster").get(pk=supply.pk)
    old, before = (found.name, terms(found)), values_of(found, change)
    for name, value in change.items():
        setattr(found, name, value)
    if (found.name, terms(found)) == old:
        return found
    _check(found)
    _save(found, is_new=False)
    because = f" Reason: {why}" if why else ""
    text = f"Supply {found.name} of cluster {found.cluster.name} was changed: {terms(found)}; before it was {old[1]}.{because}"
    _record_supply_event(found, "changed", text, actor, now, difference(before, change))
    return found


def terms(supply: Supply) -> str:
    """Returns e.g. `4 nodes of 8 x H100-80GB, 20 min lead, for a gain of 10 min`."""
    nodes = f"{plural(supply.node_count, 'node')} of {supply.gpus_per_node} x {supply.shape}"
    off = "" if supply.is_enabled else ", disabled"
    return f"{nodes}, {duration_exact(supply.lead_time_s)} lead, for a gain of {duration_exact(supply.gain_s)}{off}"


@transaction.atomic
def orders_place(*, orders: Sequence[NewOrder], ordered_at: datetime, now: datetime) -> None:
    """The caller stores slots on these nodes in the same transaction."""
    if not orders:
        return
    SupplyOrder.objects.bulk_create(
        SupplyOrder(pk=o.id, supply_id=o.supply_id, gpr_id=o.gpr_id, ordered_at=ordered_at, expected_at=o.expected_at) for o in orders
    )
    groups: dict[tuple[UUID, UUID, datetime], list[NewOrder]] = defaultdict(list)
    for order in orders:
        groups[order.supply_id, order.gpr_id, order.expected_at].append(order)
    supplies = Supply.objects.select_related("cluster").in_bulk({order.supply_id for order in orders})
    for alike in groups.values():
        first, supply = alike[0], supplies[alike[0].supply_id]
        what = f"{plural(len(alike), 'node')} of {supply.gpus_per_node} x {supply.shape}"
        event_record(
            kind="supply.ordered",
            message=f"{what} ordered from {supply.name} for {first.gpr_name}, expected {utc(first.expected_at)}.",
            at=now,
            gpr_id=first.gpr_id,
            slice_id=first.slice_id,
            cluster_id=supply.cluster_id,
            data={"supply": str(supply.pk), "orders": [str(order.id) for order in alike]},
        )


@transaction.atomic
def orders_drop(*, orders: Iterable[SupplyOrder], now: datetime) -> None:
    for order in orders:
        _end(order, SupplyOrderState.CANCELED, None, "Nothing is planned on it any more.", now)


@transaction.atomic
def order_cancel(*, order: SupplyOrder, refused_to: Iterable[Any], actor: User, why: str, now: datetime) -> None:
    """These GPRs get no more orders from its supply. Raises IllegalTransition."""
    _end_or_raise(order, SupplyOrderState.CANCELED, actor, why, now)
    order.refused_to.set(refused_to)


@transaction.atomic
def order_fail(*, order: SupplyOrder, actor: User, why: str, now: datetime) -> None:
    """Pauses further orders from its supply for a while. Raises IllegalTransition."""
    _end_or_raise(order, SupplyOrderState.FAILED, actor, why, now)


def orders_give_up(*, now: datetime) -> None:
    """Runs one query if nothing is late."""
    for order in _open_of(SupplyOrder.objects.filter(expected_at__lte=now - timedelta(seconds=ORDER_LATE_MOST_S))):
        failed, cluster_id = f"The late order {order.pk} could not be given up", order.supply.cluster_id
        with set_aside_on_error("order_give_up", failed, now=now, cluster_id=cluster_id), transaction.atomic():
            _end(order, SupplyOrderState.FAILED, None, "Its node did not come in time.", now)


def orders_fulfil(*, cluster: Cluster, arrivals: Sequence[NodeArrival], now: datetime) -> None:
    """Each arrival fulfils the order that it names, else one of the supply that it names, else the one expected first.

    The caller holds the locks of the nodes. Runs one query if nothing is ordered.
    """
    orders = _open_of(SupplyOrder.objects.filter(supply__cluster=cluster))
    if not orders:
        return
    came = set(SupplyOrder.objects.filter(node__in=[arrival.node for arrival in arrivals]).values_list("node", flat=True))
    fitting = ((arrival, [order for order in orders if arrival.fits(order.supply)]) for arrival in arrivals)
    new = [(arrival, alike) for arrival, alike in fitting if arrival.node.pk not in came]
    # Arrivals that name an open order choose first.
    new.sort(key=lambda each: min(map(each[0].mismatch, each[1]), default=(True, True)))
    for arrival, alike in new:
        node = arrival.node
        for order in sorted(alike, key=arrival.mismatch):
            # If the order has ended meanwhile, the next one is tried.
            rows = SupplyOrder.objects.filter(pk=order.pk, state=SupplyOrderState.ORDERED)
            if rows.update(state=SupplyOrderState.ARRIVED, node=node, ended_at=now):
                text = f"Node {node.name}, ordered from {order.supply.name} for {order.gpr.name}, has come."
                _record_order_event(order, "order_arrived", text, None, now, node_id=node.pk)
                break


def _open_of(rows: QuerySet[SupplyOrder]) -> list[SupplyOrder]:
    """Loads open orders with only the columns that are needed here, the first expected first."""
    rows = rows.filter(state=SupplyOrderState.ORDERED).order_by("expected_at", "ordered_at", "pk")
    of_supply = ("name", "cluster", "kind", "shape", "gpus_per_node", "gpu_memory_gib")
    needed = [*(f"supply__{name}" for name in of_supply), "gpr__name", "gpr__slice", "gpr__promise__slot_nodes"]
    return rare_rows(rows.select_related("supply", "gpr__promise").only(*needed))


def _end_or_raise(order: SupplyOrder, to: SupplyOrderState, actor: User, why: str, now: datetime) -> None:
    if not _end(order, to, actor, why, now):
        order.refresh_from_db()
        raise IllegalTransition(f"This order is not open any more: it is {order.get_state_display().lower()}.", state=order.state)


def _end(order: SupplyOrder, to: SupplyOrderState, actor: User | None, why: str, now: datetime) -> bool:
    """Returns False when the order was not open any more."""
    rows = SupplyOrder.objects.filter(pk=order.pk, state=SupplyOrderState.ORDERED)
    if not rows.update(state=to, ended_at=now, ended_by=actor, why=why[:ORDER_WHY_MAX_CHARS]):
        return False
    verb = "was canceled" if to == SupplyOrderState.CANCELED else "failed"
    text = f"The order of a node from {order.supply.name} for {order.gpr.name} {verb}: {why}"
    _record_order_event(order, "order_canceled" if to == SupplyOrderState.CANCELED else "order_failed", text, actor, now)
    return True


def _check(supply: Supply) -> None:
    """Raises InvalidInput."""
    errors: dict[str, list[str]] = {}
    for field, least, most, say in [
        ("node_count", 1, SUPPLY_NODES_MAX, number),
        ("gpus_per_node", 1, SUPPLY_GPUS_MAX, number),
        ("gpu_memory_gib", 1, MEMORY_MAX_GIB, number),
        ("lead_time_s", 1, SUPPLY_LEAD_MAX_S, duration_exact),
        ("gain_s", 0, SUPPLY_GAIN_MAX_S, duration_exact),
    ]:
        if not least <= getattr(supply, field) <= most:
            errors[field] = [f"Must be from {say(least)} to {say(most)}."]
    for field in ("name", "shape"):
        if not 0 < len(getattr(supply, field).strip()) <= 63:
            errors[field] = ["Must have 1 to 63 characters."]
    if supply.kind not in SupplyKind.values:
        errors["kind"] = [f"Must be one of {', '.join(SupplyKind.values)}."]
    if errors:
        raise InvalidInput(errors)


def _save(supply: Supply, *, is_new: bool) -> None:
    try:
        with transaction.atomic():
            supply.save(force_insert=is_new)
    except IntegrityError:
        taken = f"Cluster {supply.cluster.name} has a supply named {supply.name} already; upper and lower case count as the same."
        raise NameTaken(f"{taken} Choose another name.") from None


def _record_supply_event(
    supply: Supply, verb: str, text: str, actor: User, now: datetime, changed: Mapping[str, Any] | None = None
) -> None:
    data = {"supply": str(supply.pk), **(changed or {})}
    event_record(kind=f"supply.{verb}", message=text, at=now, actor=actor, cluster_id=supply.cluster_id, data=data)
    hint(TICK)


def _record_order_event(order: SupplyOrder, verb: str, text: str, actor: User | None, now: datetime, node_id: UUID | None = None) -> None:
    """Members see it only while their workspace has a slot on the order."""
    is_bad, is_theirs = verb == "order_failed", _has_slot(order)
    event_record(
        kind=f"supply.{verb}",
        message=text,
        at=now,
        actor=actor,
        severity=Severity.WARNING if is_bad else Severity.INFO,
        gpr_id=order.gpr_id if is_theirs else None,
        slice_id=order.gpr.slice_id if is_theirs else None,
        cluster_id=order.supply.cluster_id,
        node_id=node_id,
        data={"supply": str(order.supply_id), "orders": [str(order.pk)]},
    )
    hint(TICK)


def _has_slot(order: SupplyOrder) -> bool:
    promise = getattr(order.gpr, "promise", None)
    return promise is not None and str(order.pk) in promise.slot_nodes
