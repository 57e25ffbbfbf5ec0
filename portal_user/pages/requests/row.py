"""Shows one GPU request in a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from django.urls import reverse

from core.pages import words
from core.pages.axis import Axis
from core.pages.strip import Strip, strip_of
from gpr.evictions.services import WHY
from gpr.models import ENDED, EvictionVictim, Gpr, GprState, VictimKind
from gpr.queue.status import NOT_PLANNED, QueueStatus
from gpr.requests.end_reasons import ending
from inventory.models import Reservation
from journal.models import Event
from portal_shared.parts.gpr_box import ask_of, box_of, late_s, promised_at_first, shown_state
from portal_user.pages.requests.outcomes import lateness
from protocol.assignments import Phase

S = GprState
ROW_STRIP_PX = 45
READY = frozenset({Phase.ENTERED, Phase.ACTIVE})


@dataclass(frozen=True, slots=True)
class ReadForRow:
    """Holds data of a GPR that was read beside its row."""

    status: QueueStatus = NOT_PLANNED
    event: Event | None = None
    nodes: Sequence[Reservation] = ()
    notice: EvictionVictim | None = None


@dataclass(frozen=True, slots=True)
class RequestRow:
    id: UUID
    name: str
    url: str
    state: str
    note: str
    note_until: datetime | None  # the note shows the time left until then
    ask: str
    duration_s: int
    why: str
    tone: str  # soft, late or bad
    at: datetime | None
    at_word: str
    side: str
    side_at: datetime | None
    strip: Strip

    @property
    def short_id(self) -> str:
        return f"gpr-{str(self.id)[:8]}"

    @classmethod
    def of(cls, gpr: Gpr, known: ReadForRow, *, axis: Axis) -> RequestRow:
        made = cls(
            id=gpr.pk,
            name=gpr.name,
            url=reverse("gpr", args=[gpr.pk]),
            state=shown_state(gpr),
            note="",
            note_until=None,
            ask=ask_of(gpr),
            duration_s=gpr.duration_s,
            why="",
            tone="soft",
            at=None,
            at_word="",
            side="",
            side_at=None,
            strip=strip_of(box_of(gpr), axis, height=ROW_STRIP_PX),
        )
        if gpr.state in ENDED:
            return _ended(made, gpr, known)
        told = {S.PROVISIONING: _provisioning, S.ACTIVE: _active, S.EXITING: _exiting, S.QUEUED: _queued}.get(S(gpr.state), _unapproved)
        return told(made, gpr, known, axis)


def _unapproved(row: RequestRow, gpr: Gpr, known: ReadForRow, axis: Axis) -> RequestRow:
    note = f"since {axis.says(gpr.state_changed_at)}"
    return replace(
        row,
        note=note,
        why=" ".join(gpr.approval_reasons),
        at_word="not planned",
        side="filed",
        side_at=gpr.created_at,
    )


def _queued(row: RequestRow, gpr: Gpr, known: ReadForRow, axis: Axis) -> RequestRow:
    late = lateness(gpr, known.event)
    place, told = known.status.position, known.status.explanation
    why = told.sentence if told else "It is about to be planned."
    promised_at = promised_at_first(gpr)
    return replace(
        row,
        note=f"Place {words.number(place)}" if place and row.state == S.QUEUED else "",
        why=f"{late} {why}" if late else why,
        tone="late" if late else "soft",
        at=gpr.planned_start_at,
        at_word="" if gpr.planned_start_at else "not planned",
        side="promised" if promised_at else "",
        side_at=promised_at,
    )


def _provisioning(row: RequestRow, gpr: Gpr, known: ReadForRow, axis: Axis) -> RequestRow:
    ready = sum(node.phase in READY for node in known.nodes)
    failure = node_failure(known.nodes)
    where = f" on {gpr.cluster.name}" if gpr.cluster else ""
    return replace(
        row,
        note=f"{ready} of {gpr.nodes} ready",
        why=failure or f"Checks run on {words.plural(gpr.nodes, 'node')}{where}; the clock starts when all have passed.",
        tone="bad" if failure else "soft",
        at=gpr.provisioning_at,
        at_word="since",
        side=_kept(gpr),
    )


def _active(row: RequestRow, gpr: Gpr, known: ReadForRow, axis: Axis) -> RequestRow:
    if gpr.active_at is None or gpr.ends_at is None:
        return row
    where = f"{words.plural(gpr.nodes, 'node')} on {gpr.cluster.name}. " if gpr.cluster else ""
    failure = node_failure(known.nodes)
    warning = _warning(known.notice, axis) if known.notice else ""
    return replace(
        row,
        note_until=gpr.ends_at,
        why=failure or warning or f"{where}{used_percent(gpr, axis.now)} % of the window used{_next_mark(gpr, axis)}.",
        tone="bad" if failure else "late" if warning else "soft",
        at=gpr.ends_at,
        at_word="evicted" if warning else "ends",
        side="active since",
        side_at=gpr.active_at,
    )


def _exiting(row: RequestRow, gpr: Gpr, known: ReadForRow, axis: Axis) -> RequestRow:
    left = words.plural(len(known.nodes), "node")
    return replace(
        row,
        note=words.END_REASON_WORDS.get(gpr.end_reason, ""),
        why=node_failure(known.nodes) or f"{left} still to be cleaned and checked. {ending(gpr, known.event)}",
        at=gpr.state_changed_at,
        at_word="since",
        side=_kept(gpr),
    )


def _ended(row: RequestRow, gpr: Gpr, known: ReadForRow) -> RequestRow:
    is_plain = gpr.state in {S.COMPLETED, S.CANCELED, S.REJECTED}
    return replace(
        row,
        note="" if is_plain else words.END_REASON_WORDS.get(gpr.end_reason, ""),
        why=ending(gpr, known.event),
        tone="bad" if gpr.state == S.FAILED else "soft",
        at=gpr.ended_at,
        side=_kept(gpr) if gpr.active_at else "never active",
    )


def used_percent(gpr: Gpr, now: datetime) -> int:
    """Counts the present window only."""
    if gpr.active_at is None or gpr.ends_at is None or gpr.ends_at <= gpr.active_at:
        return 0
    return max(0, min(100, round((now - gpr.active_at) / (gpr.ends_at - gpr.active_at) * 100)))


def node_failure(nodes: Sequence[Reservation]) -> str:
    """Returns the first failure of a node, or empty."""
    return next((f"{node.node.name}: {node.failure.rstrip('.')}." for node in nodes if node.failure), "")


def _warning(notice: EvictionVictim, axis: Axis) -> str:
    when = f"{axis.says(notice.ends_at)} ({words.relative(notice.ends_at, now=axis.now)})"
    return f"Will be evicted at {when}: {WHY[VictimKind(notice.kind)]}."


def _next_mark(gpr: Gpr, axis: Axis) -> str:
    if gpr.active_at is None or gpr.ends_at is None:
        return ""
    marks = ((share, gpr.active_at + (gpr.ends_at - gpr.active_at) * share / 100) for share in (25, 50, 75))
    return next((f"; next mark at {share} %, {axis.says(at)}" for share, at in marks if at > axis.now), "")


def _kept(gpr: Gpr) -> str:
    if promised_at_first(gpr) is None:
        return ""
    late = words.late(late_s(gpr))
    return f"started {late.removeprefix('+')} late" if late else "promise kept"
