"""Makes and records Events of GPRs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from gpr.models import Gpr
from journal.models import Event
from journal.services import events_record

if TYPE_CHECKING:
    from gpr.allocation.rows import GprRow


def gpr_event(kind: str, gpr: Gpr | GprRow, message: str, now: datetime, **fields: Any) -> Event:
    return Event(kind=kind, message=message, at=now, gpr_id=gpr.pk, slice_id=gpr.slice_id, **fields)


def gpr_event_record(kind: str, gpr: Gpr | GprRow, message: str, now: datetime, **fields: Any) -> None:
    """Everyone who may see the GPR reads `message`: it must name nothing else."""
    events_record([gpr_event(kind, gpr, message, now, **fields)], keyed=True)
