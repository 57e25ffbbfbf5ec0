"""Says what an administrator's decision about a GPR would do, before it is made. Pages and API show the same."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db import models

from accounts.models import User
from core.errors import IllegalTransition
from core.words import duration, plural, utc
from gpr.allocation.snapshot import nodes_free_at
from gpr.approvals.services import refuse_approval
from gpr.lifecycle import alternative_to
from gpr.models import Gpr, GprState
from gpr.queue.decisions import refuse_priority
from gpr.queue.explanations import FormatTime
from gpr.queue.moves import MoveTo
from gpr.queue.previews import (
    NOTED_S,
    DecisionPreview,
    preview_approval,
    preview_eviction,
    preview_move,
    preview_priority,
    preview_withdrawal,
)
from gpr.requests.ending import left_s

S = GprState
WAITS: Final = frozenset({S.QUEUED, S.PENDING_APPROVAL})


class Act(models.TextChoices):
    APPROVE = "approve"
    REJECT = "reject"
    EVICT = "evict"
    PRIORITY = "priority"
    MOVE = "move"


POSSIBLE_IN: Final[Mapping[Act, frozenset[GprState]]] = {
    Act.APPROVE: frozenset({S.PENDING_APPROVAL}),
    Act.REJECT: WAITS,
    Act.EVICT: frozenset({S.PROVISIONING, S.ACTIVE}),
    Act.PRIORITY: WAITS,
    Act.MOVE: frozenset({S.QUEUED}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleDecision:
    act: Act
    priority: int = 0
    to: str = MoveTo.UP
    requeue: bool | None = None  # None: as its owner wished

    def preview(self, gpr: Gpr, *, actor: User, now: datetime) -> DecisionPreview:
        """Raises as the act."""
        if gpr.state not in POSSIBLE_IN[self.act]:
            raise IllegalTransition(f"It is {gpr.get_state_display().lower()} now. {alternative_to(gpr.state)}", state=gpr.state)
        match self.act:
            case Act.APPROVE:
                refuse_approval(gpr, actor=actor, now=now)
                return preview_approval(gpr=gpr, now=now)
            case Act.REJECT:
                return preview_withdrawal(gpr=gpr, now=now)
            case Act.EVICT:
                evicted = copy(gpr)
                evicted.requeue_on_failure = gpr.requeue_on_failure if self.requeue is None else self.requeue
                return preview_eviction(gpr=evicted, now=now)
            case Act.PRIORITY:
                refuse_priority(self.priority)
                return preview_priority(gpr=gpr, priority=self.priority, now=now)
            case Act.MOVE:
                return preview_move(gpr=gpr, to=MoveTo(self.to), now=now)

    def sentence(self, preview: DecisionPreview, *, now: datetime, format_time: FormatTime = utc) -> str:
        """Says what becomes of the GPR itself."""
        gpr = preview.own.gpr
        if self.act == Act.REJECT:
            return f"It leaves the queue for good{', and its promised start with it' if gpr.state == S.QUEUED else ''}."
        if self.act == Act.EVICT:
            return _of_eviction(preview, now, format_time)
        if self.act == Act.APPROVE:
            return _of_approval(preview, format_time)
        if not preview.waits:
            return "It still needs approval: other rules hold it back."
        return _of_approval(preview, format_time) if gpr.state == S.PENDING_APPROVAL else _of_place(preview, format_time)


def summary_of(preview: DecisionPreview) -> str:
    """Says how many others would start at another time."""
    counts = ((len(preview.later), "later"), (len(preview.earlier), "earlier"))
    told = [f"{plural(count, 'other')} would start {how}" for count, how in counts if count]
    return f"{', '.join(told) or 'No other request would start earlier or later'}."


def _of_place(preview: DecisionPreview, format_time: FormatTime) -> str:
    own, place = preview.own, preview.new_position
    if own.new_start_at is None:
        return "It has no planned start with that either."
    instead = "" if preview.old_position in {None, place} else f" instead of {preview.old_position}"
    places, start = f"It is planned as number {place}{instead}", format_time(own.new_start_at)
    if own.old_start_at is None:
        return f"{places}. It starts {start}."
    if abs(own.later_s) < NOTED_S:
        return f"{places}. It still starts {start}: nothing free would let it start earlier now."
    change = f"{duration(abs(own.later_s))} {'later' if own.later_s > 0 else 'earlier'}"
    return f"{places}. It starts {start} instead of {format_time(own.old_start_at)}, {change}."


def _of_approval(preview: DecisionPreview, format_time: FormatTime) -> str:
    own = preview.own
    if own.new_start_at is not None:
        return f"It joins the queue and is promised a start by {format_time(own.new_start_at)}."
    if own.gpr.is_booking:
        return "There is no room at the time that it was booked for: it cannot join the queue."
    return "No available cluster is large enough: it cannot join the queue."


def _of_eviction(preview: DecisionPreview, now: datetime, format_time: FormatTime) -> str:
    gpr, start_at = preview.own.gpr, preview.own.new_start_at
    are = "is" if gpr.nodes == 1 else "are"
    nodes = f"Its {plural(gpr.nodes, 'node')} {are} expected back by {format_time(nodes_free_at(now))}."
    left = duration(left_s(gpr, now=now))
    if not preview.waits:
        return f"{nodes} It ends, and the {left} that are left of its time are lost."
    again = f", and would start {format_time(start_at)}" if start_at else ""
    return f"{nodes} It waits again for the {left} that are left{again}."
