"""Previews of decisions: whose start would change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.urls import reverse

from core.pages import words
from gpr.allocation.snapshot import nodes_free_at
from gpr.models import Gpr, GprState
from gpr.policies.breaches import Found, follows
from gpr.queue.previews import DecisionPreview, MaintenancePreview, StartChange
from gpr.requests.ending import left_s
from inventory.models import Reservation
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.access import PageRequest
from portal_shared.parts.gpr_box import ask_of, shown_state

EFFECTS_SHOWN = 6
# Smaller changes are not shown.
NOTED_S = 60


@dataclass(frozen=True, slots=True)
class Effect:
    """A GPR whose planned start would change."""

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
class Breaking:
    """A request that would break a changed policy, and what happens to it."""

    name: str
    url: str
    mark: Mark
    state: str
    rules: str
    follows: str

    @classmethod
    def of(cls, gpr: Gpr, found: Found) -> Breaking:
        rules = " ".join(breach.text for breach in found[gpr.pk])
        return cls(gpr.name, reverse("admin-inspect", args=[gpr.pk]), Mark.of(gpr.slice), shown_state(gpr), rules, follows(gpr))


@dataclass(frozen=True, slots=True)
class Effects:
    own: str
    shown: tuple[Effect, ...]
    summary: str
    boxes: tuple[Reaching, ...] = ()
    start_word: str = "Planned"
    evicted: str = ""  # names of those who would be evicted
    breaking: tuple[Breaking, ...] = ()

    MOST: ClassVar[int] = EFFECTS_SHOWN

    @classmethod
    def of_policy(cls, gprs: Sequence[Gpr], found: Found) -> Effects:
        """`gprs`: those of `found` that are shown."""
        count, more = len(found), len(found) - len(gprs)
        own = f"{words.plural(count, 'request')} that {'keeps' if count == 1 else 'keep'} the policy now would break it:"
        summary = f"And {words.plural(more, 'other')}." if more else ""
        none = "No running, waiting or booked request would break it."
        return cls(own if found else none, (), summary, breaking=tuple(Breaking.of(gpr, found) for gpr in gprs))

    @classmethod
    def of(cls, own: str, preview: DecisionPreview) -> Effects:
        noted = [change for change in preview.others if abs(change.later_s) >= NOTED_S]
        later = sum(change.later_s > 0 for change in noted)
        earlier = len(noted) - later
        told = [f"{words.plural(count, 'other')} would start {how}" for count, how in ((later, "later"), (earlier, "earlier")) if count]
        summary = ", ".join(told) or "No other request would start earlier or later"
        return cls(own, tuple(Effect.of(change) for change in noted[:EFFECTS_SHOWN]), f"{summary}.", evicted=_evicted(preview.evicted))

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


def own_of_priority(preview: DecisionPreview, request: PageRequest) -> str:
    own, place = preview.own, preview.new_position
    if not preview.waits:
        return "It still needs approval: other rules hold it back."
    if own.gpr.state == GprState.PENDING_APPROVAL:
        return own_of_approval(preview, request)
    if own.new_start_at is None:
        return "It has no planned start with that either."
    instead = "" if preview.old_position in {None, place} else f" instead of {preview.old_position}"
    places = f"It is planned as number {place}{instead}"
    if own.old_start_at is None:
        return f"{places}. It starts {_when(own.new_start_at, request)}."
    if abs(own.later_s) < NOTED_S:
        return f"{places}. It still starts {_when(own.new_start_at, request)}: nothing free would let it start earlier now."
    change = f"{words.duration(abs(own.later_s))} {'later' if own.later_s > 0 else 'earlier'}"
    return f"{places}. It starts {_when(own.new_start_at, request)} instead of {_when(own.old_start_at, request)}, {change}."


def own_of_approval(preview: DecisionPreview, request: PageRequest) -> str:
    if preview.own.new_start_at is None and preview.own.gpr.is_booking:
        return "There is no room at the time that it was booked for: it cannot join the queue."
    if preview.own.new_start_at is None:
        return "No available cluster is large enough: it cannot join the queue."
    return f"It joins the queue and is promised a start by {_when(preview.own.new_start_at, request)}."


def own_of_eviction(gpr: Gpr, preview: DecisionPreview, request: PageRequest) -> str:
    back_at = nodes_free_at(request.now)
    nodes = f"Its {words.plural(gpr.nodes, 'node')} {'is' if gpr.nodes == 1 else 'are'} expected back by {_when(back_at, request)}."
    left = words.duration(left_s(gpr, now=request.now))
    if not preview.waits:
        return f"{nodes} It ends, and the {left} that are left of its time are lost."
    again = f"It waits again for the {left} that are left"
    start_at = preview.own.new_start_at
    return f"{nodes} {again}{f', and would start {_when(start_at, request)}' if start_at else ''}."


def own_of_rejection(gpr: Gpr) -> str:
    lost = ", and its promised start with it" if gpr.state == GprState.QUEUED else ""
    return f"It leaves the queue for good{lost}."


def _when(at: datetime, request: PageRequest) -> str:
    return words.moment(at, now=request.now, zone=request.zone)
