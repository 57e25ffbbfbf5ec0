"""Shows facts above the list: held GPUs, next start, counts, free nodes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Min, Q, Subquery

from core.pages import words
from core.pages.parts import Fact
from gpr.models import PROVISIONED, Gpr, GprState
from inventory.models import ReservationState, ReservedGpu
from portal_shared.access import PageRequest
from portal_user.pages.capacity import capacity_facts, shapes_in, stock_for
from slices.models import Slice


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Counts by state, the request that holds nodes, and the next to start."""

    counts: dict[str, int]
    held_state: str = ""
    held_nodes: int = 0
    held_gpus: int = 0
    held_until: datetime | None = None
    next_name: str = ""
    next_at: datetime | None = None

    @classmethod
    def load(cls, slice_: Slice, *, counted: Q) -> RequestCounts:
        """`counted` filters only the counts. Runs one query."""
        # A workspace runs one request at a time, so Max() over a group is that request's value.
        next_ = Gpr.objects.filter(planned_start_at__isnull=False, slice=slice_, state=GprState.QUEUED).order_by("planned_start_at", "pk")
        gpus: Any = ReservedGpu.objects.filter(reservation__slice=slice_, state=ReservationState.HELD).order_by()
        rows: Any = Gpr.objects.filter(slice=slice_).order_by().values("state").annotate(n=Count("pk", filter=counted or None))
        rows = rows.annotate(nodes=Max("nodes"), until=Max("ends_at"), starts=Min("planned_start_at"))
        rows = rows.annotate(
            next_name=Subquery(next_.values("name")[:1]),
            gpus=Subquery(gpus.values("state").annotate(n=Count("pk")).values("n")),
        )
        found = {row["state"]: row for row in rows}
        held: dict[str, Any] = next((row for state, row in found.items() if state in PROVISIONED), {})
        waits: dict[str, Any] = found.get(GprState.QUEUED, {})
        return cls(
            counts={state: row["n"] for state, row in found.items()},
            held_state=held.get("state", ""),
            held_nodes=held.get("nodes", 0),
            held_gpus=held.get("gpus") or 0,
            held_until=held.get("until"),
            next_name=waits.get("next_name") or "",
            next_at=waits.get("starts"),
        )


def facts_of(request: PageRequest, slice_: Slice, tally: RequestCounts) -> list[Fact]:
    free = capacity_facts(shapes_in(stock_for(request.user, now=request.now, slice_=slice_)))
    return [_held(tally, request), _next(tally, request), *free]


def _held(tally: RequestCounts, request: PageRequest) -> Fact:
    if not tally.held_state:
        return Fact("Held now", "nothing", is_wide=True)
    ends_at = tally.held_until
    until = (
        f" until {words.moment(ends_at, now=request.now, zone=request.zone)}"
        if ends_at
        else f", {words.STATE_WORDS[tally.held_state].lower()}"
    )
    return Fact("Held now", words.plural(tally.held_gpus, "GPU"), f"{words.plural(tally.held_nodes, 'node')}{until}", is_wide=True)


def _next(tally: RequestCounts, request: PageRequest) -> Fact:
    if tally.next_at is None:
        return Fact("Next start", "none planned", is_wide=True)
    start = words.moment(tally.next_at, now=request.now, zone=request.zone)
    return Fact("Next start", start, tally.next_name, is_wide=True, at=tally.next_at)
