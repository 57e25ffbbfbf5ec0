"""Shows bookings and booking series of a workspace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Prefetch, Q
from django.http import QueryDict
from django.urls import reverse

from accounts.policy import Verb, may
from core.pages import words
from gpr.bookings.services import recurrence_of
from gpr.models import BookingOccurrence, BookingSeries, Gpr, GprState
from inventory.selectors import maintenance_ahead
from portal_shared.access import PageRequest
from portal_shared.forms.questions import Question
from portal_shared.forms.service_form import ServiceForm
from portal_shared.parts.gpr_box import ask_of, shown_state, window_end
from portal_shared.shell import Shell, WorkspaceMark
from portal_user.forms import BookForm
from portal_user.pages.requests.listing import may_create
from slices.models import Slice

ROWS_MAX, CLOSURES_MAX = 100, 10
# The page lists an ended series for so long.
OVER_SHOWN = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class BookingRow:
    id: UUID
    name: str
    url: str
    state: str
    ask: str
    duration_s: int
    starts_at: datetime | None
    ends_at: datetime | None
    late: str
    series: str

    @classmethod
    def of(cls, gpr: Gpr) -> BookingRow:
        occurrence: BookingOccurrence | None = getattr(gpr, "occurrence", None)
        start_at = gpr.planned_start_at or gpr.earliest_start_at
        late_s = (start_at - gpr.earliest_start_at).total_seconds() if start_at and gpr.earliest_start_at else 0
        return cls(
            id=gpr.pk,
            name=gpr.name,
            url=reverse("gpr", args=[gpr.pk]),
            state=shown_state(gpr),
            ask=ask_of(gpr),
            duration_s=gpr.duration_s,
            starts_at=start_at,
            ends_at=window_end(gpr),
            late=words.late(late_s),
            series=occurrence.series.get_rule_display() if occurrence else "Once",
        )


@dataclass(frozen=True, slots=True)
class Missed:
    """Describes an occurrence that did not fit."""

    starts_at: datetime
    before_at: datetime | None
    after_at: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class SeriesRow:
    id: UUID
    name: str
    rule: str
    ask: str
    ends: str
    booked_count: int
    missed: tuple[Missed, ...]
    is_canceled: bool
    cancel_url: str  # empty: ended, or not allowed

    @classmethod
    def of(cls, series: BookingSeries, request: PageRequest, *, is_writable: bool) -> SeriesRow:
        ahead = [row for row in series.occurrences.all() if row.starts_at >= request.now]
        is_open = series.canceled_at is None and (series.next_start_at is not None or bool(ahead))
        return cls(
            id=series.pk,
            name=series.name,
            rule=_rule(series),
            ask=_ask(series),
            ends=_ends(series, request),
            booked_count=sum(row.gpr_id is not None for row in ahead) if series.canceled_at is None else 0,
            missed=tuple(Missed(row.starts_at, row.nearest_before_at, row.nearest_after_at, row.refusal) for row in ahead if row.refusal),
            is_canceled=series.canceled_at is not None,
            cancel_url=reverse("series-cancel", args=[series.pk]) if is_open and is_writable else "",
        )


@dataclass(frozen=True, slots=True)
class Closure:
    place: str
    starts_at: datetime
    ends_at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class BookingsPage:
    shell: Shell
    mark: WorkspaceMark
    rows: tuple[BookingRow, ...]
    series: tuple[SeriesRow, ...]
    closures: tuple[Closure, ...]
    url: str
    book_url: str  # empty: read-only

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice) -> BookingsPage:
        is_editor = may_create(request, slice_)
        return cls(
            shell=Shell.user(request, page="bookings", slice_=slice_, may_create=is_editor),
            mark=WorkspaceMark.of(slice_),
            rows=tuple(BookingRow.of(gpr) for gpr in _booked(slice_)),
            series=tuple(_series_rows(request, slice_, is_editor=is_editor)),
            closures=tuple(_closures(request, slice_)),
            url=reverse("bookings", args=[slice_.name]),
            book_url=reverse("book", args=[slice_.name]) if is_editor else "",
        )


@dataclass(frozen=True, slots=True)
class BookPage:
    shell: Shell
    mark: WorkspaceMark
    form: BookForm
    back_url: str
    zone: str

    @classmethod
    def build(cls, request: PageRequest, slice_: Slice, form: BookForm) -> BookPage:
        shell = Shell.user(request, page="bookings", slice_=slice_)
        return cls(shell, WorkspaceMark.of(slice_), form, reverse("bookings", args=[slice_.name]), str(request.zone))


def cancel_question(request: PageRequest, series: BookingSeries, data: QueryDict | None) -> Question:
    waiting = Gpr.objects.filter(occurrence__series=series, state__in=[GprState.QUEUED, GprState.PENDING_APPROVAL]).count()
    return Question(
        title=f"Cancel the series {series.name}?",
        text=f"{words.plural(waiting, 'booking')} that {'waits' if waiting == 1 else 'wait'} for {'its' if waiting == 1 else 'their'} time"
        f" {'is' if waiting == 1 else 'are'} canceled, and no more are made.",
        points=("A running box runs to its end.",),
        verb="Cancel the series",
        url=reverse("series-cancel", args=[series.pk]),
        back_url=reverse("bookings", args=[series.slice.name]),
        form=ServiceForm(data),
        shell=Shell.user(request, page="bookings", slice_=series.slice),
        keep="Keep the series",
        closed="This series is canceled: it books nothing any more." if series.canceled_at else "",
    )


def _booked(slice_: Slice) -> Iterable[Gpr]:
    waiting = Gpr.objects.filter(slice=slice_, is_booking=True, run=0, state__in=[GprState.QUEUED, GprState.PENDING_APPROVAL])
    return waiting.select_related("slice", "promise", "occurrence__series").order_by("earliest_start_at", "pk")[:ROWS_MAX]


def _series(slice_: Slice, request: PageRequest) -> Iterable[BookingSeries]:
    """Loads current series, and those that ended recently."""
    is_recent = Q(canceled_at__gt=request.now - OVER_SHOWN) | Q(occurrences__starts_at__gt=request.now - OVER_SHOWN, canceled_at=None)
    rows = BookingSeries.objects.filter(Q(next_start_at__isnull=False) | is_recent, slice=slice_).distinct()
    ahead = BookingOccurrence.objects.filter(starts_at__gte=request.now)
    return rows.select_related("slice", "owner").prefetch_related(Prefetch("occurrences", ahead)).order_by("created_at", "pk")[:ROWS_MAX]


def _closures(request: PageRequest, slice_: Slice) -> Iterable[Closure]:
    windows = maintenance_ahead(request.now).filter(cluster__slices=slice_).select_related("cluster", "node")
    for window in windows[:CLOSURES_MAX]:
        yield Closure(window.place, window.starts_at, window.ends_at, window.reason)


def _series_rows(request: PageRequest, slice_: Slice, *, is_editor: bool) -> Iterable[SeriesRow]:
    """Checks rights once for all rows."""
    is_owner = request.may_write and may(request.user, Verb.MANAGE, slice_)
    for series in _series(slice_, request):
        yield SeriesRow.of(series, request, is_writable=is_owner or (is_editor and series.owner_id == request.user.pk))


def _rule(series: BookingSeries) -> str:
    """Returns e.g. `Every week, Fri 18:00, Europe/Berlin`."""
    zone = recurrence_of(series).zone
    local = series.first_start_at.astimezone(zone)
    day = f"{local:%a} " if series.rule == "weekly" else ""
    return f"{series.get_rule_display()}, {day}{local:%H:%M}, {series.zone}"


def _ask(series: BookingSeries) -> str:
    asked = series.asked
    kind = asked["shape"] or f"with {asked['min_gpu_memory_gib']} GiB or more"
    return f"{words.ask(asked['nodes'], asked['gpus_per_node'], kind)}, {words.duration(asked['duration_s'])}"


def _ends(series: BookingSeries, request: PageRequest) -> str:
    if series.count is not None or series.until_at is None:
        return f"{words.plural(series.count or 0, 'time')} from {words.moment(series.first_start_at, now=request.now, zone=request.zone)}"
    return f"until {words.moment(series.until_at, now=request.now, zone=request.zone)}"
