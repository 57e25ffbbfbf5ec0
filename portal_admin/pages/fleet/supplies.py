"""Shows supplies and their orders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse

from core.pages.table import RowGroup
from inventory.models import SupplyKind, SupplyOrder, SupplyOrderState
from inventory.selectors import clusters_visible_to, supplies_known_to, supply_orders_known_to
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.access import PageRequest, why_not_write
from portal_shared.shell import Shell

OPEN_ROWS, ENDED_ROWS = 200, 50
LATE = "Late"
# Glyph and CSS class.
STATE_GLYPHS = {
    SupplyOrderState.ORDERED.label: ("step-waiting", "step-waiting"),
    LATE: ("step-warned", "step-warned"),
    SupplyOrderState.ARRIVED.label: ("step-passed", "step-passed"),
    SupplyOrderState.CANCELED.label: ("canceled", "step-skipped"),
    SupplyOrderState.FAILED.label: ("failed", "step-failed"),
}


@dataclass(frozen=True, slots=True)
class SupplyRow:
    id: UUID
    name: str
    cluster: str
    kind: str
    nodes: str
    lead_s: int
    gain_s: int
    ordered: int
    arrived: int
    possible: int
    is_enabled: bool
    change_url: str
    disable_url: str  # empty: it is disabled
    enable_url: str  # empty: it is enabled

    @classmethod
    def of(cls, supply: Any) -> SupplyRow:
        at = [supply.pk]
        return cls(
            id=supply.pk,
            name=supply.name,
            cluster=supply.cluster.name,
            kind=SupplyKind(supply.kind).label,
            nodes=f"{supply.gpus_per_node} × {supply.shape}",
            lead_s=supply.lead_time_s,
            gain_s=supply.gain_s,
            ordered=supply.open_count,
            arrived=supply.arrived_count,
            possible=supply.possible_count,
            is_enabled=supply.is_enabled,
            change_url=reverse("admin-supply", args=at),
            disable_url=reverse("admin-supply-disable", args=at) if supply.is_enabled else "",
            enable_url="" if supply.is_enabled else reverse("admin-supply-enable", args=at),
        )


@dataclass(frozen=True, slots=True)
class OrderRow:
    id: UUID
    supply: str
    cluster: str
    gpr: str
    gpr_url: str
    mark: Mark
    state: str
    node: str
    why: str
    ordered_at: datetime
    ask_by_at: datetime | None  # None: at once, or over
    expected_at: datetime
    cancel_url: str  # empty: not open
    fail_url: str

    @property
    def glyph(self) -> str:
        return STATE_GLYPHS[self.state][0]

    @property
    def is_open(self) -> bool:
        return bool(self.cancel_url)

    @property
    def css(self) -> str:
        return STATE_GLYPHS[self.state][1]

    @classmethod
    def of(cls, order: SupplyOrder, *, now: datetime) -> OrderRow:
        is_open = order.state == SupplyOrderState.ORDERED
        return cls(
            id=order.pk,
            supply=order.supply.name,
            cluster=order.supply.cluster.name,
            gpr=order.gpr.name,
            gpr_url=reverse("admin-inspect", args=[order.gpr_id]),
            mark=Mark.of(order.gpr.slice),
            state=LATE if order.is_late(now) else SupplyOrderState(order.state).label,
            node=order.node.name if order.node is not None else "",
            why=order.why,
            ordered_at=order.ordered_at,
            ask_by_at=order.order_by_at if is_open and order.order_by_at > order.ordered_at else None,
            expected_at=order.expected_at,
            cancel_url=reverse("admin-supply-order-cancel", args=[order.pk]) if is_open else "",
            fail_url=reverse("admin-supply-order-fail", args=[order.pk]) if is_open else "",
        )


@dataclass(frozen=True, slots=True)
class SuppliesPage:
    shell: Shell
    supplies: tuple[SupplyRow, ...]
    orders: tuple[RowGroup[OrderRow], ...]
    read_only: str  # why there are no buttons
    has_clusters: bool

    @property
    def has_orders(self) -> bool:
        return any(group.rows for group in self.orders)

    @classmethod
    def build(cls, request: PageRequest) -> SuppliesPage:
        orders = supply_orders_known_to(request.user)
        coming = orders.filter(state=SupplyOrderState.ORDERED).order_by("expected_at", "pk")[:OPEN_ROWS]
        ended = orders.exclude(state=SupplyOrderState.ORDERED).order_by("-ended_at", "pk")[:ENDED_ROWS]
        return cls(
            shell=admin_shell(request, page="supplies"),
            supplies=tuple(SupplyRow.of(supply) for supply in supplies_known_to(request.user)),
            orders=(_orders("coming", "To come", coming, request), _orders("ended", "Arrived, canceled or failed", ended, request)),
            read_only=why_not_write(request),
            has_clusters=clusters_visible_to(request.user).exists(),
        )


def _orders(key: str, label: str, orders: Iterable[SupplyOrder], request: PageRequest) -> RowGroup[OrderRow]:
    rows = tuple(OrderRow.of(order, now=request.now) for order in orders)
    return RowGroup(f"orders-{key}", label, rows, len(rows))
