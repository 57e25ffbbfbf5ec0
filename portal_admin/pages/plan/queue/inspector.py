"""Shows one GPR to an administrator, with the possible actions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.urls import reverse

from core.pages import words
from core.pages.axis import Axis
from core.pages.parts import EventRow
from core.pages.strip import Strip, hero_of
from gpr.models import PROVISIONED, Gpr, GprState, PromiseMove
from gpr.queue.explanations import VisibleBlocker
from gpr.queue.status import queue_statuses
from gpr.quotas.borrowing import borrowing_of
from gpr.requests.selectors import gpr_for, gprs_visible_to, names_visible_to
from inventory.models import Node
from journal.models import Event
from planner.causes import Cause
from portal_admin.actions import AdminAction, actions_for
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.access import PageRequest, moment_formatter, why_not_write
from portal_shared.parts.gpr_box import ask_of, box_of, late_s, promised_at_first, shown_state, window_end
from portal_shared.shell import Shell

EVENTS_SHOWN = 8
HERO_PX = 840
CAUSE_WORDS = {
    Cause.OVERRUN: "{name} gave its nodes back late",
    Cause.NODE_FAILURE: "node {name} of its slot went away",
    Cause.MAINTENANCE: "a node of its slot is closed for maintenance",
    Cause.CHANGED: "the request was changed",
    Cause.ACCESS: "its workspace may no longer use the nodes of its slot",
    Cause.SILENCE: "the cluster of its slot was not connected when it was due",
    Cause.LATE_TICK: "the allocator did not run when it was due",
    Cause.RECLAIM: "it would have borrowed GPUs that are guaranteed to {name}",
    Cause.PRIORITY: "{name} of much higher priority came",
    Cause.QUOTA: "the quota of its workspace or project allows no more then",
    Cause.ADMIN: "an administrator moved it, or {name} before it",
    Cause.PREDECESSOR: "{name}, which it starts after, ends later",
    Cause.SUPPLY: "nodes that were to come did not come",
    Cause.TOPOLOGY: "nodes of its slot are in different racks or NVLink domains now",
    Cause.FAULT: "EGS itself made a mistake: see the events",
}
# Causes that name another GPR.
OF_GPRS = frozenset({Cause.OVERRUN, Cause.RECLAIM, Cause.PRIORITY, Cause.ADMIN, Cause.PREDECESSOR})


@dataclass(frozen=True, slots=True)
class ActionLink:
    name: str
    label: str
    url: str
    key: str
    icon: str
    is_stop: bool


@dataclass(frozen=True, slots=True)
class MoveRow:
    at: datetime
    old_at: datetime
    new_at: datetime
    cause: str


@dataclass(frozen=True, slots=True)
class InspectorPage:
    shell: Shell
    id: UUID
    url: str
    name: str
    mark: Mark
    state: str
    ask: str
    duration_s: int
    priority: int
    owner: str
    origin: str  # the object of a cluster as which it was filed
    place: int | None
    no_place: str
    filed_at: datetime
    planned_at: datetime | None
    promised_at: datetime | None
    late: str
    reason: str
    borrowing: str
    blockers: tuple[VisibleBlocker, ...]
    approval_reasons: tuple[str, ...]
    moves: tuple[MoveRow, ...]
    events: tuple[EventRow, ...]
    axis: Axis
    strip: Strip
    actions: tuple[ActionLink, ...]
    read_only: str  # why there are no buttons

    @classmethod
    def build(cls, request: PageRequest, pk: UUID) -> InspectorPage:
        gpr = gpr_for(request.user, pk, rows=gprs_visible_to(request.user).prefetch_related(None))
        status = queue_statuses([gpr], actor=request.user, now=request.now, format_time=moment_formatter(request))[gpr.pk]
        told = status.explanation
        axis, reason = _axis(gpr, request), told.sentence if told else ""
        return cls(
            shell=admin_shell(request, page="queue"),
            id=gpr.pk,
            url=reverse("admin-inspect", args=[gpr.pk]),
            name=gpr.name,
            mark=Mark.of(gpr.slice),
            state=shown_state(gpr),
            ask=ask_of(gpr),
            duration_s=gpr.duration_s,
            priority=gpr.priority,
            owner=gpr.owner.name,
            origin=filed.sentence if (filed := getattr(gpr, "cluster_request", None)) else "",
            place=status.position,
            no_place="no planned start" if gpr.state == GprState.QUEUED else "not in the queue",
            filed_at=gpr.queued_at or gpr.created_at,
            planned_at=gpr.planned_start_at,
            promised_at=promised_at_first(gpr),
            late=words.late(late_s(gpr)).removeprefix("+"),
            reason=reason,
            borrowing=borrowing_of(gpr, now=request.now),
            blockers=tuple(told.blockers) if told else (),
            approval_reasons=tuple(gpr.approval_reasons) if gpr.state == GprState.PENDING_APPROVAL else (),
            moves=tuple(_moves(gpr, request)),
            events=tuple(_event(event) for event in Event.objects.filter(gpr_id=gpr.pk)[:EVENTS_SHOWN]),
            axis=axis,
            strip=hero_of(box_of(gpr, reason=reason), axis),
            actions=tuple(_link(action, gpr) for action in actions_for(gpr)) if request.may_write else (),
            read_only=why_not_write(request) if actions_for(gpr) else "",
        )


def _link(action: AdminAction, gpr: Gpr) -> ActionLink:
    return ActionLink(action.name, action.label, reverse(f"admin-{action.name}", args=[gpr.pk]), action.key, action.icon, action.is_stop)


def _axis(gpr: Gpr, request: PageRequest) -> Axis:
    """Spans the time from filing, unless that is long ago, to the end."""
    start_at = gpr.provisioning_at or gpr.planned_start_at or request.now
    end_at = gpr.ended_at or window_end(gpr) or start_at + timedelta(seconds=gpr.remaining_s)
    end_at = max(end_at, request.now + timedelta(minutes=5)) if gpr.state in {GprState.QUEUED, *PROVISIONED} else end_at
    length = max(end_at - min(start_at, request.now), timedelta(minutes=10))
    begin_at = max(gpr.queued_at or gpr.created_at, min(start_at, request.now) - length / 2)
    return Axis(begin_at - length / 20, end_at + length / 12, request.now, request.zone, HERO_PX, "big")


def _moves(gpr: Gpr, request: PageRequest) -> list[MoveRow]:
    moves = list(gpr.promise_moves.all())
    if not moves:
        return []
    names = names_visible_to(request.user, {move.cause_id for move in moves if move.cause in OF_GPRS})
    nodes = {move.cause_id for move in moves if move.cause == Cause.NODE_FAILURE}
    names |= {str(pk): name for pk, name in Node.objects.filter(pk__in=nodes).values_list("pk", "name")} if nodes else {}
    return [MoveRow(move.at, move.old_start_at, move.new_start_at, _cause(move, names)) for move in moves]


def _cause(move: PromiseMove, names: dict[str, str]) -> str:
    return CAUSE_WORDS[Cause(move.cause)].format(name=names.get(move.cause_id, "another"))


def _event(event: Event) -> EventRow:
    return EventRow(event.at, event.message, event.severity, event.new if event.kind == "gpr.transition" else "")
