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
from gpr.sound import CLUSTER, MAINTENANCE, NODE, SUPPLY, Spoiled, Unreadable
from journal.models import Event, Severity
from journal.services import event_record

log = structlog.get_logger(__name__)

PLANNER, SPOILED, CLUSTER_SPOILED = "planner.fault", "gpr.spoiled", "cluster.spoiled"
FLAW_WORDS: Final = {
    Flaw.SHAPE: "was given other nodes than it asked for",
    Flaw.EARLY: "was to start before it may",
    Flaw.CROWDED: "was given GPUs that others have, or more than it may hold",
    Flaw.LATE: "was to start after its promise, and nothing moved that",
}

CLUSTER_WORDS: Final = {
    CLUSTER: "What is stored of this cluster or its agent cannot be read. Until that is mended nothing starts there.",
    MAINTENANCE: "What is stored of a maintenance of this cluster cannot be read. Until that is mended its place is closed from its "
    "start on, or from now on where that cannot be read either.",
    SUPPLY: "What is stored of a supply of this cluster, or of its orders, cannot be read. Until that is mended nothing more is ordered "
    "from it.",
    NODE: "What is stored of a node of this cluster, or of who holds it, cannot be read. Until that is mended nothing starts on it.",
}


def faults_record(faults: Iterable[Fault], asks: Mapping[str, Ask], *, now: datetime) -> None:
    """Of a plan. Inside the transaction that stores it."""
    for fault in faults:
        text = f"The planner is at fault: this request {FLAW_WORDS[fault.flaw]}. Please report it."
        _tell_once(PLANNER, text, fault.flaw, now, gpr_id=asks[fault.id].pk)


def spoiled_record(rows: Iterable[Spoiled], *, now: datetime) -> None:
    for row in rows:
        _tell_once(SPOILED, f"What is stored of this request cannot be read, its {row.what}: {row.why}", row.what, now, gpr_id=row.gpr_id)


def clusters_spoiled_record(rows: Iterable[Unreadable], *, now: datetime) -> None:
    for row in rows:
        _tell_once(CLUSTER_SPOILED, CLUSTER_WORDS[row.what], row.what, now, cluster_id=row.cluster_id)


def _tell_once(kind: str, message: str, reason: str, now: datetime, *, gpr_id: UUID | None = None, cluster_id: UUID | None = None) -> None:
    if Event.objects.filter(kind=kind, reason=reason, gpr_id=gpr_id, cluster_id=cluster_id).exists():
        return
    log.error(kind, gpr_id=str(gpr_id), cluster_id=str(cluster_id), reason=reason, message=message)
    event_record(kind=kind, message=message, at=now, severity=Severity.ERROR, reason=reason, gpr_id=gpr_id, cluster_id=cluster_id)
