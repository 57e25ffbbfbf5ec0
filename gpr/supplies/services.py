"""What an administrator decides on an order of a node. Its own books are the inventory's; whom it concerns is known here."""

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
    """Its node shall not come: its supply gives nothing more to any who stood on it. Raises IllegalTransition when it is not open."""
    plan_lock()  # a plan that is being made would else put another there
    order_cancel(order=order, refused_to=gprs_on(order), actor=actor, why=why, now=now)
