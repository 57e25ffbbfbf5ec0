"""Shows the reader's workspaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, OuterRef, Q, Subquery
from django.urls import reverse

from core.pages import words
from core.pages.parts import Fact, ListFoot
from gpr.models import PROVISIONED, Gpr, GprState
from gpr.queue.explanations import VisibleExplanation
from gpr.queue.status import QueueStatus, queue_statuses
from portal_shared.access import PageRequest, moment_formatter
from portal_shared.parts.gpr_box import ask_of
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.parts.workspace_requests import WorkspaceRequestRow
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.pages.capacity import capacity_facts, shapes_in, stock_for
from portal_user.pages.tenants.tenancy import InvitationRow, invitation_rows
from slices.closing.services import ENDS_SOON
from slices.models import Life, Membership, RequestState, Role, WorkspaceRequest
from slices.selectors import slices_visible_to

DECIDED_SHOWN, REQUESTS_MAX = timedelta(days=7), 20
WAITING = (GprState.QUEUED, GprState.PENDING_APPROVAL)


@dataclass(frozen=True, slots=True)
class Holding:
    """Shows the GPR that holds nodes, or the next to start."""

    name: str
    url: str
    state: str
    ask: str
    at: datetime | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class WorkspaceRow:
    mark: WorkspaceMark
    project: str
    role: str
    holds: Holding | None
    next: Holding | None
    waiting_count: int
    approval_count: int
    create_url: str  # empty: read-only, or closed
    life: str  # empty: it is open
    ends_at: datetime | None  # if it ends soon

    @property
    def id(self) -> str:
        return self.mark.name


@dataclass(frozen=True, slots=True)
class WorkspacesPage:
    shell: Shell
    invitations: tuple[InvitationRow, ...]
    requests: tuple[WorkspaceRequestRow, ...]  # those that wait, and what was decided lately
    ask_url: str  # empty: read-only
    rows: tuple[WorkspaceRow, ...]
    facts: tuple[Fact, ...]
    foot: ListFoot
    part_url: str  # of its fragment

    @classmethod
    def build(cls, request: PageRequest) -> WorkspacesPage:
        found = page_of(request, _slices(request), ordering=("name", "id"))
        gprs = _gprs(found.rows)
        waiting = [gpr for gpr in gprs.values() if gpr.state == GprState.QUEUED]
        statuses = queue_statuses(waiting, actor=request.user, now=request.now, format_time=moment_formatter(request))
        shapes = shapes_in(stock_for(request.user, now=request.now))
        rows = tuple(_row(slice_, gprs, statuses, may_write=request.may_write, now=request.now) for slice_ in found.rows)
        url = reverse("workspaces")
        return cls(
            shell=Shell.user(request, page="workspaces"),
            invitations=invitation_rows(request),
            requests=_requests(request),
            ask_url=reverse("workspace-ask") if request.may_write else "",
            rows=rows,
            facts=(*_counted(request), *capacity_facts(shapes)),
            foot=foot_of(found, url),
            part_url=url_with(url, {"cursor": request.GET.get("cursor", ""), "part": "list"}),
        )


def _requests(request: PageRequest) -> tuple[WorkspaceRequestRow, ...]:
    rows = WorkspaceRequest.objects.filter(requester=request.user).select_related("requester")
    told = rows.filter(Q(state=RequestState.PENDING) | Q(decided_at__gt=request.now - DECIDED_SHOWN))
    return tuple(WorkspaceRequestRow.of(row) for row in told[:REQUESTS_MAX])


def _slices(request: PageRequest) -> Any:
    of_slice = Gpr.objects.filter(slice=OuterRef("pk"))
    held = of_slice.filter(state__in=PROVISIONED)
    queued = of_slice.filter(state=GprState.QUEUED).order_by("planned_start_at", "created_at", "pk")
    role = Membership.objects.filter(slice=OuterRef("pk"), user=request.user).values("role")[:1]
    return (
        slices_visible_to(request.user)
        .exclude(life=Life.REMOVED)
        .select_related("project")
        .annotate(
            held_id=Subquery(held.values("pk")[:1]),
            next_id=Subquery(queued.values("pk")[:1]),
            own_role=Subquery(role),
            waiting_count=Count("gprs", filter=Q(gprs__state=GprState.QUEUED)),
            approval_count=Count("gprs", filter=Q(gprs__state=GprState.PENDING_APPROVAL)),
        )
    )


def _gprs(slices: Sequence[Any]) -> dict[UUID, Gpr]:
    ids = {pk for slice_ in slices for pk in (slice_.held_id, slice_.next_id) if pk}
    return {gpr.pk: gpr for gpr in Gpr.objects.filter(pk__in=ids)} if ids else {}


def _row(slice_: Any, gprs: Mapping[UUID, Gpr], statuses: Mapping[UUID, QueueStatus], *, may_write: bool, now: datetime) -> WorkspaceRow:
    held, waiting = gprs.get(slice_.held_id), gprs.get(slice_.next_id)
    may_create = may_write and slice_.is_open and slice_.own_role != Role.VIEWER
    ends_soon = slice_.is_open and slice_.ends_at is not None and slice_.ends_at < now + ENDS_SOON
    return WorkspaceRow(
        mark=WorkspaceMark.of(slice_),
        project=slice_.project.name,
        role=Role(slice_.own_role).label if slice_.own_role else "Administrator",
        holds=_holding(held, at=held.ends_at) if held else None,
        next=_holding(waiting, at=waiting.planned_start_at, told=statuses[waiting.pk].explanation) if waiting else None,
        waiting_count=slice_.waiting_count,
        approval_count=slice_.approval_count,
        create_url=reverse("gpr-create", args=[slice_.name]) if may_create else "",
        life="" if slice_.is_open else slice_.get_life_display(),
        ends_at=slice_.ends_at if ends_soon else None,
    )


def _holding(gpr: Gpr, *, at: datetime | None, told: VisibleExplanation | None = None) -> Holding:
    return Holding(gpr.name, reverse("gpr", args=[gpr.pk]), gpr.state, ask_of(gpr), at, told.sentence if told else "")


def _counted(request: PageRequest) -> tuple[Fact, Fact]:
    """Counts over all pages. Runs two queries."""
    slices = slices_visible_to(request.user).exclude(life=Life.REMOVED)
    holds, waits = Q(state__in=PROVISIONED), Q(state=GprState.QUEUED)
    found = Gpr.objects.filter(holds | waits, slice__in=slices.values("pk")).aggregate(
        holding=Count("slice", filter=holds, distinct=True), waiting=Count("pk", filter=waits)
    )
    return (
        Fact("Workspaces", words.number(slices.count()), f"{words.number(found['holding'])} with nodes"),
        Fact("Waiting", words.number(found["waiting"]), "request" if found["waiting"] == 1 else "requests"),
    )
