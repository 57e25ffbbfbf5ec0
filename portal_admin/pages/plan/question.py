"""Previews decisions: whose start would change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from core.pages import words
from gpr.models import Gpr
from gpr.queue.decision_previews import summary_of
from gpr.queue.previews import DecisionPreview, MaintenancePreview, StartChange
from inventory.models import Reservation
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.parts.gpr_box import ask_of

EFFECTS_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Effect:
    """Describes a GPR whose planned start would change."""

    name: str
    url: str
    mark: Mark
    old_at: datetime | None
    new_at: datetime | None
    change: str
    is_later: bool

    @classmethod
    def of(cls, change: StartChange) -> Effect:
        is_later = change.later_s > 0
        return cls(
            name=change.gpr.name,
            url=reverse("admin-inspect", args=[change.gpr.pk]),
            mark=Mark.of(change.gpr.slice),
            old_at=change.old_start_at,
            new_at=change.new_start_at,
            change=f"{words.duration(abs(change.later_s))} {'later' if is_later else 'earlier'}",
            is_later=is_later,
        )


@dataclass(frozen=True, slots=True)
class Reaching:
    """Shows a box that overlaps a maintenance window."""

    name: str
    url: str
    mark: Mark
    node: str
    ends_at: datetime

    @classmethod
    def of(cls, row: Reservation) -> Reaching:
        return cls(row.gpr.name, reverse("admin-inspect", args=[row.gpr_id]), Mark.of(row.slice), row.node.name, row.ends_at)


@dataclass(frozen=True, slots=True)
class Effects:
    own: str
    shown: tuple[Effect, ...]
    summary: str
    boxes: tuple[Reaching, ...] = ()
    start_word: str = "Planned"
    evicted: str = ""  # names of those who would be evicted

    @classmethod
    def of(cls, own: str, preview: DecisionPreview) -> Effects:
        shown = tuple(Effect.of(change) for change in preview.noted[:EFFECTS_SHOWN])
        return cls(own, shown, summary_of(preview), evicted=_evicted(preview.evicted))

    @classmethod
    def of_maintenance(cls, preview: MaintenancePreview) -> Effects:
        runs, moves = len(preview.boxes), len(preview.moved)
        reach = f"{words.plural(runs, 'running request')} {'reaches' if runs == 1 else 'reach'} into it: choose a later start, or evict."
        would = f"{words.plural(moves, 'promise')} would move to a later start."
        return cls(
            own=reach if runs else "No running request reaches into it.",
            shown=tuple(Effect.of(change) for change in preview.moved[:EFFECTS_SHOWN]),
            summary=would if moves else "Every promise would be kept.",
            boxes=tuple(Reaching.of(row) for row in preview.boxes),
            start_word="Promised",
        )


def _evicted(gprs: Sequence[Gpr]) -> str:
    if not gprs:
        return ""
    named = [f"{gpr.name} of {gpr.slice.name}" for gpr in gprs[:EFFECTS_SHOWN]]
    more = [f"{len(gprs) - EFFECTS_SHOWN} more"] if len(gprs) > EFFECTS_SHOWN else []
    return f"It would evict, after notice: {', '.join(named + more)}."


def about(gpr: Gpr) -> str:
    return f"{gpr.slice.name}, {ask_of(gpr)}, {words.duration(gpr.duration_s)}, priority {gpr.priority}"
