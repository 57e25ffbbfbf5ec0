"""Shows maintenance windows and the requests that overlap them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count
from django.urls import reverse

from core.pages.table import RowGroup
from gpr.models import PromiseMove
from inventory.models import MaintenanceState, MaintenanceWindow, Reservation
from inventory.selectors import boxes_reaching_into, maintenance_ahead, maintenance_visible_to
from planner.causes import Cause
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.question import Reaching
from portal_shared.access import PageRequest, why_not_write
from portal_shared.shell import Shell

AHEAD_ROWS, PAST_ROWS = 200, 50
# Glyph and CSS class.
STATE_GLYPHS = {
    MaintenanceState.PLANNED: ("step-waiting", "step-waiting"),
    MaintenanceState.RUNNING: ("step-warned", "step-warned"),
    MaintenanceState.OVER: ("step-passed", "step-passed"),
    MaintenanceState.CANCELED: ("canceled", "step-skipped"),
}


@dataclass(frozen=True, slots=True)
class MaintenanceRow:
    id: UUID
    place: str
    cluster: str  # of a node
    reason: str
    starts_at: datetime
    ends_at: datetime
    state: MaintenanceState
    moved_count: int
    boxes: tuple[Reaching, ...]
    cancel_url: str  # empty: nothing left to cancel

    @property
    def glyph(self) -> str:
        return STATE_GLYPHS[self.state][0]

    @property
    def css(self) -> str:
        return STATE_GLYPHS[self.state][1]

    @classmethod
    def of(cls, window: MaintenanceWindow, boxes: Sequence[Reservation], moved_count: int, *, now: datetime) -> MaintenanceRow:
        return cls(
            id=window.pk,
            place=window.place,
            cluster=window.cluster.name if window.node_id else "",
            reason=window.reason,
            starts_at=window.starts_at,
            ends_at=window.ends_at,
            state=window.state(now),
            moved_count=moved_count,
            boxes=tuple(Reaching.of(row) for row in boxes),
            cancel_url=reverse("admin-maintenance-cancel", args=[window.pk]) if window.is_ahead(now) else "",
        )


@dataclass(frozen=True, slots=True)
class MaintenancePage:
    shell: Shell
    groups: tuple[RowGroup[MaintenanceRow], ...]
    read_only: str  # why there are no buttons

    @classmethod
    def build(cls, request: PageRequest) -> MaintenancePage:
        now, windows = request.now, maintenance_visible_to(request.user)
        ahead_ids = maintenance_ahead(now).values("pk")
        ahead = list(windows.filter(pk__in=ahead_ids)[:AHEAD_ROWS])
        past = list(windows.exclude(pk__in=ahead_ids).order_by("-starts_at", "pk")[:PAST_ROWS])
        boxes, moved = boxes_reaching_into(ahead, now=now), _moved_counts([*ahead, *past])

        def group(key: str, label: str, of: Sequence[MaintenanceWindow]) -> RowGroup[MaintenanceRow]:
            rows = tuple(MaintenanceRow.of(each, boxes.get(each.pk, []), moved.get(str(each.pk), 0), now=now) for each in of)
            return RowGroup(f"maintenance-{key}", label, rows, len(rows))

        groups = (group("ahead", "Now and ahead", ahead), group("past", "Over or canceled", past))
        return cls(admin_shell(request, page="maintenance"), groups, why_not_write(request))


def _moved_counts(windows: Sequence[MaintenanceWindow]) -> dict[str, int]:
    """Counts for each window the GPRs whose promise it moved."""
    moves: Any = PromiseMove.objects.filter(cause=Cause.MAINTENANCE, cause_id__in=[str(window.pk) for window in windows])
    return dict(moves.order_by().values_list("cause_id").annotate(n=Count("gpr", distinct=True)))
