"""Carries out administrators' decisions on orders of nodes."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts.models import User
from gpr.allocation.stored_plan import plan_lock
from gpr.supplies.orders import gprs_on
from inventory.models import SupplyOrder
from inventory.services.supplies import order_cancel


@transaction.atomic
def order_refuse(*, order: SupplyOrder, actor: User, why: str, now: datetime) -> None:
    """Cancel it; its supply gives nothing more to GPRs that relied on it. Raises IllegalTransition when it is not open."""
    plan_lock()  # else a plan that is being made could place another GPR on it
    order_cancel(order=order, refused_to=gprs_on(order), actor=actor, why=why, now=now)
