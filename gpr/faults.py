"""What is wrong in EGS itself: plans that are not whole (gpr/planner/proof.py), and stored rows that make no sense.

Each is told once, to administrators, in an Event without a slice, and in the log. Nobody else stops for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

import structlog

from gpr.planner.plan import Fault, Flaw
from gpr.rows import Ask
from gpr.sound import Spoiled
from journal.models import Event, Severity
from journal.services import event_record

log = structlog.get_logger(__name__)

PLANNER, SPOILED = "planner.fault", "gpr.spoiled"
FLAW_WORDS: Final = {
    Flaw.SHAPE: "was given other nodes than it asked for",
    Flaw.EARLY: "was to start before it may",
    Flaw.CROWDED: "was given GPUs that others have, or more than it may hold",
    Flaw.LATE: "was to start after its promise, and nothing moved that",
}


def faults_record(faults: Iterable[Fault], asks: Mapping[str, Ask], *, now: datetime) -> None:
    """Of a plan. Inside the transaction that stores it."""
    for fault in faults:
        ask = asks[fault.id]
        _tell_once(PLANNER, f"The planner is at fault: this request {FLAW_WORDS[fault.flaw]}. Please report it.", fault.flaw, ask.pk, now)


def spoiled_record(rows: Iterable[Spoiled], *, now: datetime) -> None:
    for row in rows:
        _tell_once(SPOILED, f"What is stored of this request cannot be read, its {row.what}: {row.why}", row.what, row.gpr_id, now)


def _tell_once(kind: str, message: str, reason: str, gpr_id: UUID, now: datetime) -> None:
    if Event.objects.filter(kind=kind, gpr_id=gpr_id, reason=reason).exists():
        return
    log.error(kind, gpr_id=str(gpr_id), reason=reason, message=message)
    event_record(kind=kind, message=message, at=now, severity=Severity.ERROR, reason=reason, gpr_id=gpr_id)
