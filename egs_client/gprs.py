"""Knows of GPRs which states end a wait, what to call one, and how to say what it does now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from egs_client.models.gpr import GprDetail
    from egs_client.models.slices import OwnSlice

PENDING_APPROVAL, QUEUED, PROVISIONING, ACTIVE, EXITING = "PENDING_APPROVAL", "QUEUED", "PROVISIONING", "ACTIVE", "EXITING"
WAITING = {PENDING_APPROVAL, QUEUED}
ENDED = {"COMPLETED", "RELEASED", "EVICTED", "FAILED", "CANCELED", "REJECTED"}
OVER = {EXITING, *ENDED}


def sentence_of(gpr: GprDetail) -> str:
    """Says what the GPR is now, and why."""
    if gpr.state == PENDING_APPROVAL:
        return f"{gpr.name} waits for approval: {' '.join(gpr.approval_reasons)}"
    if gpr.state in WAITING:
        why = f" {gpr.explanation.sentence}" if gpr.explanation else ""
        return f"{gpr.name} waits.{why}"
    because = f" ({gpr.end_reason})" if gpr.end_reason else ""
    return f"{gpr.name} is {gpr.state}{because}."


def workspace_meant(own: Sequence[OwnSlice]) -> str:
    """Returns the workspace of somebody who names none: the only one, or the only one where they may file; else empty."""
    chosen = own if len(own) == 1 else [each for each in own if each.role != "viewer"]
    return chosen[0].name if len(chosen) == 1 else ""


def name_now() -> str:
    """Makes a name if nobody gave one."""
    return f"box-{datetime.now(UTC):%Y%m%d-%H%M%S}"
