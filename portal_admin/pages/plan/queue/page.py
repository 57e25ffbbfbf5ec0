"""Shows the queue by planned start, with requests that need approval and running ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from uuid import UUID

from django.db.models import Q, QuerySet
from django.urls import reverse

from core.pages import words
from core.pages.axis import Axis
from core.pages.parts import Fact, ListFoot, Tab
from core.pages.strip import Strip, strip_of
from core.pages.table import RowGroup
from gpr.models import PROVISIONED, Gpr, GprState
from gpr.queue.explanations import VisibleExplanation
from gpr.queue.status import NOT_PLANNED, QueueStatus, queue_statuses
from gpr.requests.selectors import START_ORDER, STARTS_AT, by_id
from planner.plan import Reason
from portal_admin.pages.nav import counted_shell
from portal_admin.pages.plan.queue.facts import IS_LATE, QueueCounts, ShapeCount, queue_facts
from portal_shared.access import PageRequest, moment_formatter
from portal_shared.parts.gpr_box import ask_of, box_of, late_s, promised_at_first, shown_state, waiting_since
from portal_shared.parts.paging import ListPage, foot_of, page_of, state_of, url_with
from portal_shared.shell import Shell, mark_of
from slices.models import Life, Slice

GROUP_ROWS = 8
STRIP_PX = 26
WORKSPACES_MAX = 200
TEXT_MAX_CHARS = 100
# The axis has the shortest of these spans that shows most planned starts.
SPANS = tuple(timedelta(hours=hours) for hours in (1, 3, 6, 12, 24, 72, 168, 672))
SHOWN_SHARE = 0.8
STATES = {"": "All", "queued": "Queued", "approval": "Needs approval", "running": "Running", "late": "Late"}
WAIT_WORDS = {
    Reason.STARTS_NOW: "starts next",
    Reason.WAITS_FOR_START_TIME: "its earliest start",
    Reason.WAITS_FOR_NODES: "nodes under repair",
    Reason.WAITS_FOR_CONTACT: "its cluster, not connected",
    Reason.WAITS_FOR_MAINTENANCE: "the end of a maintenance",
    Reason.PREDECESSOR_HAS_NO_PLACE: "one without a place",
    Reason.NEVER_FITS: "can never start",
    Reason.DOES_NOT_FIT_THEN: "its booked time is taken",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Shows a workspace's name, color and shape, with a link that filters the queue."""

    name: str
    hue: int
    mark: int
    url: str

    @classmethod
    def of(cls, slice_: Slice) -> Mark:
        return cls(slice_.name, *mark_of(slice_.number), url_with(reverse("admin-queue"), {"workspace": slice_.name}))


@dataclass(frozen=True, slots=True)
class QueueFilters:
    state: str = ""
    workspace: str = ""
    shape: str = ""
    q: str = ""

    @classmethod
    def of(cls, request: PageRequest) -> QueueFilters:
        given = {name: clean(request.GET.get(name, "")) for name in ("workspace", "shape", "q")}
        return cls(state=state_of(request, STATES), **given)

    @property
    def in_url(self) -> dict[str, str]:
        return {"state": self.state, "workspace": self.workspace, "shape": self.shape, "q": self.q}

    @property
    def is_narrow(self) -> bool:
        return bool(self.workspace or self.shape or self.q)

    def narrow(self, rows: QuerySet[Gpr, Gpr]) -> QuerySet[Gpr, Gpr]:
        if self.workspace:
            rows = rows.filter(slice__name=self.workspace)
        if self.shape:
            rows = rows.filter(shape=self.shape)
        if self.q:
            rows = rows.filter(Q(name__icontains=self.q) | Q(slice__name__icontains=self.q) | by_id(self.q))
        return rows


@dataclass(frozen=True, slots=True)
class QueueRow:
    id: UUID
    name: str
    url: str
    mark: Mark
    state: str
    ask: str
    duration_s: int
    priority: int
    place: int | None
    waited_s: float | None
    promised_at: datetime | None
    planned_at: datetime | None
    late_s: float
    strip: Strip
    waits: str
    waits_until: datetime | None  # its end, if it runs
    reason: str

    @classmethod
    def of(cls, gpr: Gpr, *, axis: Axis, status: QueueStatus) -> QueueRow:
        told = status.explanation
        reason = told.sentence if told else " ".join(gpr.approval_reasons)
        is_waiting = gpr.state in {GprState.QUEUED, GprState.PENDING_APPROVAL}
        return cls(
            id=gpr.pk,
            name=gpr.name,
            url=reverse("admin-inspect", args=[gpr.pk]),
            mark=Mark.of(gpr.slice),
            state=shown_state(gpr),
            ask=ask_of(gpr),
            duration_s=gpr.duration_s,
            priority=gpr.priority,
            place=status.position,
            waited_s=max((axis.now - waiting_since(gpr)).total_seconds(), 0.0) if is_waiting else None,
            promised_at=promised_at_first(gpr),
            planned_at=gpr.planned_start_at or gpr.provisioning_at,
            late_s=late_s(gpr),
            strip=strip_of(box_of(gpr, reason=reason), axis, height=STRIP_PX),
            waits=waits_of(gpr, told),
            waits_until=gpr.ends_at if gpr.state == GprState.ACTIVE else None,
            reason=reason,
        )


@dataclass(frozen=True, slots=True)
class QueueTable:
    axis: Axis
    groups: tuple[RowGroup[QueueRow], ...]
    foot: ListFoot
    url: str
    clear_url: str  # without filters; empty if there are none

    @classmethod
    def build(cls, request: PageRequest, *, filters: QueueFilters, counts: QueueCounts) -> QueueTable:
        url, lists = reverse("admin-queue"), list(_lists(request, filters, counts))
        gprs = [gpr for found in lists for gpr in found.rows]
        queued = [gpr for gpr in gprs if gpr.state == GprState.QUEUED]
        statuses = queue_statuses(queued, actor=request.user, now=request.now, format_time=moment_formatter(request))
        axis = axis_for(gprs, now=request.now, zone=request.zone)
        return cls(
            axis=axis,
            groups=tuple(_group(found, filters, axis, statuses) for found in lists),
            foot=_foot(lists, filters, statuses),
            url=url_with(url, filters.in_url, cursor=request.GET.get("cursor", ""), part="rows"),
            clear_url=url_with(url, {"state": filters.state}) if filters.is_narrow else "",
        )


@dataclass(frozen=True, slots=True)
class QueuePage:
    shell: Shell
    facts: list[Fact]
    table: QueueTable
    filters: QueueFilters
    tabs: tuple[Tab, ...]
    workspaces: tuple[str, ...]
    shapes: tuple[str, ...]

    @classmethod
    def build(cls, request: PageRequest) -> QueuePage:
        counts, filters, url = QueueCounts.load(), QueueFilters.of(request), reverse("admin-queue")
        page = "approvals" if filters.state == "approval" else "queue"
        shapes = ShapeCount.load(actor=request.user, now=request.now)
        tabs = {"": None, "queued": counts.waiting, "approval": counts.approval, "running": counts.running, "late": counts.late}
        return cls(
            shell=counted_shell(request, page=page, waiting=counts.waiting, approval=counts.approval),
            facts=queue_facts(counts, shapes, now=request.now),
            table=QueueTable.build(request, filters=filters, counts=counts),
            filters=filters,
            tabs=tuple(
                Tab(STATES[state], url_with(url, filters.in_url, state=state), filters.state == state, count)
                for state, count in tabs.items()
            ),
            workspaces=tuple(Slice.objects.exclude(life=Life.REMOVED).order_by("name").values_list("name", flat=True)[:WORKSPACES_MAX]),
            shapes=tuple(shape.name for shape in shapes),
        )


def facts_of(request: PageRequest) -> list[Fact]:
    return queue_facts(QueueCounts.load(), ShapeCount.load(actor=request.user, now=request.now), now=request.now)


def table_of(request: PageRequest) -> QueueTable:
    return QueueTable.build(request, filters=QueueFilters.of(request), counts=QueueCounts.load())


def waits_of(gpr: Gpr, told: VisibleExplanation | None) -> str:
    """Says in a few words what it waits for."""
    if gpr.state == GprState.PENDING_APPROVAL:
        return "your decision"
    if gpr.state == GprState.PROVISIONING:
        return "its entry checks"
    if gpr.state == GprState.ACTIVE:
        return ""
    if gpr.state == GprState.EXITING:
        return f"its nodes, {words.END_REASON_WORDS.get(gpr.end_reason, 'leaving')}"
    if told is None:
        return "the next plan"
    if not told.blockers:
        return WAIT_WORDS.get(told.reason, "GPUs")
    own = "own " if told.reason == Reason.WAITS_FOR_SLICE else ""
    return own + ", ".join(blocker.name for blocker in told.blockers)


def axis_for(gprs: Iterable[Gpr], *, now: datetime, zone: tzinfo, width_px: int = 200, name: str = "queue") -> Axis:
    """Spans the time from shortly before now to most of the planned starts."""
    starts = sorted(gpr.planned_start_at for gpr in gprs if gpr.planned_start_at and shown_state(gpr) != "BOOKED")
    last = starts[min(int(len(starts) * SHOWN_SHARE), len(starts) - 1)] if starts else now + timedelta(hours=12)
    span = next((span for span in SPANS if now + span * 0.75 >= last), SPANS[-1])
    start = (now - span / 12).replace(second=0, microsecond=0)
    return Axis(start, start + span, now, zone, width_px, name)


@dataclass(frozen=True, slots=True)
class _QueueList:
    """Has `count` None if filters make it unknown."""

    state: str
    rows: list[Gpr]
    count: int | None
    page: ListPage[Gpr] | None  # only for the list with pages


def _lists(request: PageRequest, filters: QueueFilters, counts: QueueCounts) -> Iterator[_QueueList]:
    """Without a state it lists needs approval, queue and running. Only the queue has pages; later pages stand alone."""
    paged = filters.state or "queued"
    known = {"queued": counts.waiting, "late": counts.late, "approval": counts.approval, "running": counts.running}
    of_state: dict[str, tuple[Q, tuple[str, ...]]] = {
        "approval": (Q(state=GprState.PENDING_APPROVAL), ("created_at", "id")),
        "queued": (Q(state=GprState.QUEUED), START_ORDER),
        "late": (IS_LATE, START_ORDER),
        "running": (Q(state__in=PROVISIONED), ("provisioning_at", "id")),
    }
    shown = [paged] if filters.state or "cursor" in request.GET else ["approval", "queued", "running"]
    for state in shown:
        which, order = of_state[state]
        rows = filters.narrow(Gpr.objects.filter(which).select_related("slice", "promise").annotate(starts_at=STARTS_AT))
        count = None if filters.is_narrow else known[state]
        if state == paged:
            page = page_of(request, rows, ordering=order)
            yield _QueueList(state, page.rows, count, page)
        elif count != 0:
            yield _QueueList(state, list(rows.order_by(*order)[:GROUP_ROWS]), count, None)


def _group(found: _QueueList, filters: QueueFilters, axis: Axis, statuses: Mapping[UUID, QueueStatus]) -> RowGroup[QueueRow]:
    rows = tuple(QueueRow.of(gpr, axis=axis, status=statuses.get(gpr.pk, NOT_PLANNED)) for gpr in found.rows)
    is_cut = found.page is None and (len(rows) == GROUP_ROWS if found.count is None else len(rows) < found.count)
    more_url = url_with(reverse("admin-queue"), filters.in_url, state=found.state) if is_cut else ""
    label = STATES[found.state]
    return RowGroup(f"queue-{found.state}", label, rows, found.count, more_url=more_url, more_label=f"Show all: {label.lower()}")


def _foot(lists: Sequence[_QueueList], filters: QueueFilters, statuses: Mapping[UUID, QueueStatus]) -> ListFoot:
    paged, page = next((found, found.page) for found in lists if found.page is not None)
    foot = foot_of(page, reverse("admin-queue"), filters.in_url)
    if paged.state != "queued" or filters.is_narrow or not paged.rows:
        return foot
    # A row that has left the queue meanwhile has no place. Rows without a start come last.
    first_row = statuses[paged.rows[0].pk].position or 0
    last_row = first_row + len(paged.rows) - 1 if first_row else 0
    return replace(foot, first_row=first_row, last_row=last_row, about_total=paged.count or 0)


def clean(text: str) -> str:
    return text.replace("\x00", "").strip()[:TEXT_MAX_CHARS]
