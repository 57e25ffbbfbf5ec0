"""Records plans that fail the planner's own check, as an Event for administrators and in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import structlog

from gpr.allocation.rows import GprRow
from journal.guard import fault_report
from planner.plan import Flaw, PlanFault

log = structlog.get_logger(__name__)

PLANNER: Final = "planner.fault"
FLAW_WORDS: Final = {
    Flaw.SHAPE: "was given other nodes than it asked for",
    Flaw.EARLY: "was to start before it may",
    Flaw.CROWDED: "was given GPUs that others have, or more than it may hold",
    Flaw.LATE: "was to start after its promise, and nothing moved that",
}


def plan_faults_record(faults: Iterable[PlanFault], requests: Mapping[str, GprRow], *, now: datetime) -> None:
    """Call it inside the transaction that stores the plan."""
    for fault in faults:
        text, gpr_id = f"The planner is at fault: this request {FLAW_WORDS[fault.flaw]}. Please report it.", requests[fault.id].pk
        log.error(PLANNER, gpr_id=str(gpr_id), reason=fault.flaw, message=text)
        fault_report(PLANNER, text, reason=fault.flaw, now=now, gpr_id=gpr_id)
