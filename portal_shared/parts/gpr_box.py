"""Runs no query if slice and promise are loaded."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings

from core.pages import words
from core.pages.strip import StripBox
from gpr.models import ENDED, Gpr, GprState
from portal_shared.shell import mark_of

S = GprState


def box_of(gpr: Gpr, *, reason: str = "") -> StripBox:
    """`reason` is for screen readers."""
    hue, mark = mark_of(gpr.slice.number)
    promise = gpr.current_promise
    return StripBox(
        state=shown_state(gpr),
        filed_at=waiting_since(gpr),
        planned_start_at=gpr.planned_start_at,
        promised_at=promised_at_first(gpr),
        p90_at=promise.p90_at if promise and gpr.state == S.QUEUED else None,
        started_at=gpr.provisioning_at,
        active_at=gpr.active_at,
        exiting_at=gpr.exiting_at,
        ends_at=window_end(gpr),
        ended_at=gpr.ended_at,
        asks=ask_of(gpr),
        reason=reason.rstrip("."),
        hue=hue,
        mark=mark,
    )


def shown_state(gpr: Gpr) -> str:
    """BOOKED for a booking that waits and is not late."""
    is_booked = gpr.is_booking and gpr.state == S.QUEUED and not gpr.run and not gpr.has_no_place and late_s(gpr) < words.MINUTE_S
    return "BOOKED" if is_booked else gpr.state


def waiting_since(gpr: Gpr) -> datetime:
    """Counts a requeued GPR from when it was queued again."""
    return gpr.state_changed_at if gpr.state == S.QUEUED and gpr.run else gpr.queued_at or gpr.created_at


def ask_of(gpr: Gpr) -> str:
    """Returns e.g. `4 × 8 H100-80GB`."""
    return words.ask(gpr.nodes, gpr.gpus_per_node, gpr.shape or f"with {gpr.min_gpu_memory_gib} GiB or more")


def promised_at_first(gpr: Gpr) -> datetime | None:
    """Lateness counts from here. An edit makes a new promise."""
    promise = gpr.current_promise
    return promise.first_promised_start_at if promise else None


def late_s(gpr: Gpr) -> float:
    """The result is negative when it was early."""
    start_at, promised_at = gpr.provisioning_at or gpr.planned_start_at, promised_at_first(gpr)
    return (start_at - promised_at).total_seconds() if start_at and promised_at else 0.0


def window_end(gpr: Gpr) -> datetime | None:
    """Planned until it is active: the time counts from passed entry checks."""
    start_at = gpr.provisioning_at or gpr.planned_start_at
    if gpr.ends_at or start_at is None or gpr.state in ENDED:
        return gpr.ends_at
    return start_at + entry_allowance() + timedelta(seconds=gpr.remaining_s)


def entry_allowance() -> timedelta:
    return timedelta(seconds=settings.EGS_ENTRY_ALLOWANCE_S)
