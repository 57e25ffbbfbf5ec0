"""Shows a workspace's GPU requests: running, waiting in order of start, ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from uuid import UUID

from django.db.models import Case, Q, Value, When
from django.urls import reverse

from accounts.policy import Verb, may
from core.pages.axis import Axis
from core.pages.parts import Fact, ListFoot, Tab
from core.pages.table import RowGroup
from core.words import utc
from gpr.evictions.services import notices_of
from gpr.models import ENDED, PROVISIONED, Gpr, GprState
from gpr.queue.status import NOT_PLANNED, queue_statuses
from gpr.requests.selectors import START_ORDER, STARTS_AT, by_id
from inventory.models import Reservation, ReservationState
from portal_shared.access import PageRequest, moment_formatter
from portal_shared.parts.gpr_box import shown_state, window_end
from portal_shared.parts.paging import ListPage, page_of, state_of, url_with
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.pages.quota_bars import QuotaBar, quota_bars
from portal_user.pages.requests.facts import RequestCounts, facts_of
from portal_user.pages.requests.outcomes import events_for
from portal_user.pages.requests.row import ReadForRow, RequestRow
from slices.closing.services import ENDS_SOON
from slices.models import Life, Slice

WAITING = frozenset({GprState.QUEUED, GprState.PENDING_APPROVAL})
STATES_OF = {"provisioned": PROVISIONED, "pending": WAITING, "ended": ENDED}
GROUPS = {"provisioned": "Provisioned", "pending": "Pending", "ended": "Ended"}
TABS = {"": "All", "pending": "Pending", "provisioned": "Provisioned", "ended": "Ended"}
PENDING_ROWS = 50
QUERY_MAX_CHARS = 100
SHOWN_SHARE = 0.8
ONLY_VIEW = "You can only view this workspace. Requests of its editors appear here."
CLOSED = {
    Life.ARCHIVED: "It takes no requests until an administrator of the platform opens it again.",
    Life.REMOVED: "It takes no requests any more.",
}
IN_ORDER = Case(When(state__in=PROVISIONED, then=Value(0)), default=Value(1))
# The axis has the shortest of these spans that shows nearly all rows; now is at a quarter of it.
SPANS = tuple(timedelta(minutes=minutes) for minutes in (20, 60, 180, 360, 720, 1440, 2880, 10_080, 40_320))
BEFORE_NOW = 0.25


@dataclass(frozen=True, slots=True)
class RequestListing:
    """Reads the filters and the span in the URL."""

    slice_: Slice
    state: str = ""
    q: str = ""
    cursor: str = ""
    span_s: int = 0
    part: str | None = None  # None: the whole list; empty: only the axis

    @classmethod
    def of(cls, request: PageRequest, slice_: Slice) -> RequestListing:
        span = request.GET.get("span", "")
        return cls(
            slice_=slice_,
            state=state_of(request, TABS),
            q=request.GET.get("q", "").replace("\x00", "").strip()[:QUERY_MAX_CHARS],
            cursor=request.GET.get("cursor", ""),
            span_s=next((known for each in SPANS if str(known := int(each.total_seconds())) == span), 0),
        )

    def tally(self) -> RequestCounts:
        return RequestCounts.load(self.slice_, counted=self.match)

    def tabs(self, counts: Mapping[str, int]) -> tuple[Tab, ...]:
        return tuple(
            Tab(label, self.url(state=key), self.state == key, sum(counts.get(state, 0) for state in STATES_OF.get(key, counts)))
            for key, label in TABS.items()
        )

    @property
    def groups(self) -> tuple[str, ...]:
        """Later pages of ended requests stand alone."""
        if self.part is not None:
            return (self.part,) if self.part else ()
        if self.state:
            return (self.state,)
        return ("ended",) if self.cursor else tuple(GROUPS)

    def only(self, part: str) -> RequestListing:
        return replace(self, part=part)

    def url(self, **changes: str) -> str:
        return url_with(reverse("workspace", args=[self.slice_.name]), {"state": self.state, "q": self.q}, **changes)

    @property
    def match(self) -> Q:
        return Q(name__icontains=self.q) | Q(model__name__icontains=self.q) | by_id(self.q) if self.q else Q()


@dataclass(frozen=True, slots=True)
class RequestTable:
    axis: Axis
    axis_url: str
    groups: tuple[RowGroup[RequestRow], ...]
    foot: ListFoot
    empty: str = ""  # why there are no rows

    @classmethod
    def build(cls, request: PageRequest, listing: RequestListing) -> RequestTable:
        found = _LoadedRequests.load(request, listing)
        axis = axis_for(found.gprs, now=request.now, zone=request.zone, span_s=listing.span_s)
        known = found.known(request)
        span = str(int((axis.end - axis.start).total_seconds()))
        groups = [
            RowGroup(
                id=f"requests-{key}",
                label=GROUPS[key],
                count=len(found.rows[key]) if found.is_whole(key) else None,
                rows=tuple(RequestRow.of(gpr, known[gpr.pk], axis=axis) for gpr in found.rows[key][:PENDING_ROWS]),
                url=listing.url(part=key, span=span, cursor=listing.cursor),
                trigger="egs:gpr from:body",
                more_url=listing.url(state=key) if len(found.rows[key]) > PENDING_ROWS else "",
                more_label="Show all that wait",
            )
            for key in listing.groups
        ]
        page = found.page
        return cls(
            axis=axis,
            axis_url=listing.url(part="axis", span=span),
            groups=tuple(groups),
            foot=ListFoot(
                previous_url=listing.url(cursor=page.previous) if page and page.previous else "",
                next_url=listing.url(cursor=page.next) if page and page.next else "",
            ),
            empty="" if any(group.rows for group in groups) else ("filter" if listing.q or listing.state or listing.cursor else "new"),
        )


@dataclass(frozen=True, slots=True)
class RequestsPage:
    shell: Shell
    mark: WorkspaceMark
    listing: RequestListing
    facts: list[Fact]
    facts_url: str
    quotas: tuple[QuotaBar, ...]
    quotas_url: str
    tabs: tuple[Tab, ...]
    tabs_url: str
    table: RequestTable
    create_url: str
    why_not_create: str  # where there is no `create_url`
    closing: tuple[str, str]  # that it is closed, or ends soon, and what follows; empty otherwise
    here_url: str
    plain_url: str  # without filters

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice) -> RequestsPage:
        listing = RequestListing.of(request, slice_)
        tally = listing.tally()
        is_editor, closing = may_create(request, slice_), _closing(slice_, request.now)
        return cls(
            shell=Shell.user(request, page="requests", slice_=slice_, may_create=is_editor),
            mark=WorkspaceMark.of(slice_),
            listing=listing,
            facts=facts_of(request, slice_, tally),
            facts_url=listing.url(part="facts"),
            quotas=quota_bars(slice_, now=request.now),
            quotas_url=listing.url(part="quotas"),
            tabs=listing.tabs(tally.counts),
            tabs_url=listing.url(part="tabs"),
            table=RequestTable.build(request, listing),
            create_url=reverse("gpr-create", args=[slice_.name]) if is_editor else "",
            why_not_create=ONLY_VIEW if slice_.is_open else closing[1],
            closing=closing,
            here_url=listing.url(),
            plain_url=reverse("workspace", args=[slice_.name]),
        )


def _closing(slice_: Slice, now: datetime) -> tuple[str, str]:
    if not slice_.is_open:
        return f"This workspace is {slice_.get_life_display().lower()}.", CLOSED[Life(slice_.life)]
    if slice_.ends_at is not None and slice_.ends_at < now + ENDS_SOON:
        return "This workspace ends soon.", f"It is archived at {utc(slice_.ends_at)}. Ask an administrator if you need it longer."
    return "", ""


def may_create(request: PageRequest, slice_: Slice) -> bool:
    return request.may_write and slice_.is_open and may(request.user, Verb.REQUEST, slice_)


def axis_for(gprs: Iterable[Gpr], *, now: datetime, zone: tzinfo, span_s: int = 0) -> Axis:
    """`span_s`: the span of the page, when a fragment is rendered."""
    span = timedelta(seconds=span_s) if span_s else next((span for span in SPANS if _shows(gprs, span, now)), SPANS[-1])
    start = now - span * BEFORE_NOW
    return Axis(start, start + span, now, zone, name="requests")


@dataclass(frozen=True, slots=True)
class _LoadedRequests:
    rows: dict[str, list[Gpr]]
    page: ListPage[Gpr] | None

    @classmethod
    def load(cls, request: PageRequest, listing: RequestListing) -> _LoadedRequests:
        of_slice = Gpr.objects.filter(listing.match, slice=listing.slice_).select_related("slice", "promise", "cluster")
        rows: dict[str, list[Gpr]] = {key: [] for key in listing.groups}
        page: ListPage[Gpr] | None = None
        if listing.state == "pending" and listing.groups == ("pending",):
            page = page_of(request, of_slice.filter(state__in=WAITING).annotate(starts_at=STARTS_AT), ordering=START_ORDER)
            return cls({"pending": page.rows}, page)
        live = [state for key in listing.groups if key != "ended" for state in STATES_OF[key]]
        if live:
            in_order = of_slice.filter(state__in=live).annotate(starts_at=STARTS_AT).order_by(IN_ORDER, *START_ORDER)
            for gpr in in_order[: PENDING_ROWS + 1]:
                rows["provisioned" if gpr.state in PROVISIONED else "pending"].append(gpr)
        if "ended" in listing.groups:
            page = page_of(request, of_slice.filter(state__in=ENDED), ordering=("-ended_at", "id"))
            rows["ended"] = page.rows
        return cls(rows, page)

    def is_whole(self, key: str) -> bool:
        if self.page is not None and self.page.rows is self.rows[key]:
            return not self.page.next and not self.page.previous
        return len(self.rows[key]) <= PENDING_ROWS

    @property
    def gprs(self) -> list[Gpr]:
        return [gpr for rows in self.rows.values() for gpr in rows]

    def known(self, request: PageRequest) -> dict[UUID, ReadForRow]:
        """Runs at most five queries."""
        waiting = [gpr for gpr in self.gprs if gpr.state == GprState.QUEUED]
        statuses = queue_statuses(waiting, actor=request.user, now=request.now, format_time=moment_formatter(request))
        events, notices = events_for(self.gprs), notices_of(self.gprs)
        nodes: dict[UUID, list[Reservation]] = {}
        if holding := [gpr.pk for gpr in self.gprs if gpr.state in PROVISIONED]:
            for row in (
                Reservation.objects.filter(gpr__in=holding, state=ReservationState.HELD).select_related("node").order_by("node__name")
            ):
                nodes.setdefault(row.gpr_id, []).append(row)
        return {
            gpr.pk: ReadForRow(statuses.get(gpr.pk, NOT_PLANNED), events.get(gpr.pk), nodes.get(gpr.pk, ()), notices.get(gpr.pk))
            for gpr in self.gprs
        }


def _shows(gprs: Iterable[Gpr], span: timedelta, now: datetime) -> bool:
    """Bookings and the last few planned requests need not fit."""
    ends = sorted(end for gpr in gprs if gpr.state not in ENDED and shown_state(gpr) != "BOOKED" and (end := window_end(gpr)))
    last = ends[min(len(ends) - 1, int(len(ends) * SHOWN_SHARE))] if ends else now + timedelta(hours=12)
    return now + span * (1 - BEFORE_NOW) >= last
