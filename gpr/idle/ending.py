"""Releases an idle box. It imports the planner, which most processes that read readings do not need."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from core.words import duration_exact, utc
from gpr.idle.selectors import idleness_of
from gpr.models import EndReason, Gpr, GprState
from gpr.requests.ending import exit_begin
from inventory.models import Reservation, ReservationState


@transaction.atomic
def idle_release(*, gpr_id: UUID, known_at: datetime, now: datetime) -> bool:
    """Unless somebody kept it meanwhile, or a node of it is being replaced. Returns whether it did."""
    locked = Gpr.objects.select_for_update().filter(pk=gpr_id, state=GprState.ACTIVE).first()  # who keeps it waits, or was first
    gpr = Gpr.objects.select_related("slice", "idle_box").filter(pk=gpr_id).first() if locked else None
    idleness = idleness_of(gpr) if gpr else None
    if gpr is None or idleness is None or known_at < idleness.ends_at or _is_being_replaced(gpr):
        return False
    why = f"None of them did anything from {utc(idleness.since_at)} on, for {duration_exact(idleness.timeout_s)}."
    exit_begin(gpr=gpr, reason=EndReason.IDLE, now=now, why=why)
    return True


def _is_being_replaced(gpr: Gpr) -> bool:
    held = Reservation.objects.filter(gpr=gpr, run=gpr.run, state=ReservationState.HELD)
    return held.filter(failing_at__isnull=False).exists() or held.filter(replaces__isnull=False, joined_at=None).exists()
