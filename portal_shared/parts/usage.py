"""Shows the monthly showback of both portals: whose GPUs were held and used, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpResponse
from django.urls import reverse
from django.utils.dateparse import parse_date

from accounts.policy import is_overseer
from core.errors import InvalidInput
from core.pages import words
from core.pages.parts import Fact, ListFoot, Tab
from core.streaming import StreamedText
from gpr.models import ShapePrice, UsageDay
from gpr.usage.selectors import (
    DIMENSIONS,
    USAGE_ORDER,
    LeaguePlace,
    Usage,
    league,
    of_workload,
    prices_visible_to,
    projects_run_by,
    usage_by,
    usage_days,
    usage_total,
    usage_visible_to,
)
from observability.workloads.models import Workload
from portal_shared.access import PageRequest
from portal_shared.parts.csv_files import csv_file, csv_text, pages_of
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.parts.portals import Portal

TAB_WORDS: Final = {
    "project": "Projects",
    "slice": "Workspaces",
    "person": "People",
    "gpr": "GPU requests",
    "workload": "Workloads",
    "shape": "Shapes",
    "cluster": "Clusters",
}
NARROWED_BY: Final = {"project": "slice__project__name", "workspace": "slice__name", "person": "gpr__owner__name"}
# A row of these opens what it consists of.
OPENS: Final = {"project": ("project", "slice"), "slice": ("workspace", "gpr"), "person": ("person", "gpr")}
WORKLOAD: Final = "workload"  # is narrowed by id
CSV_HEAD: Final = (
    *("day", "name", "of", "held_gpu_hours", "used_gpu_hours", "wasted_gpu_hours", "unmeasured_gpu_hours"),
    *("efficiency", "cost", "currency"),
)
FIRST_YEAR: Final = 2000
PRICES_SHOWN: Final = 100
PLACES_SHOWN: Final = 50


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Reads the filters in the address."""

    month: date
    by: str
    narrowed: dict[str, str]

    @classmethod
    def of(cls, request: PageRequest) -> UsageQuery:
        by = request.GET.get("by", "slice")
        if by not in DIMENSIONS:
            raise InvalidInput({"by": [f"There is no such view. There are: {', '.join(DIMENSIONS)}."]})
        narrowed = {name: given for name in (*NARROWED_BY, WORKLOAD) if (given := request.GET.get(name, "").replace("\x00", ""))}
        return cls(_month(request), by, narrowed)

    @property
    def until(self) -> date:
        return (self.month + timedelta(days=31)).replace(day=1)

    @property
    def in_url(self) -> dict[str, str]:
        return {"month": f"{self.month:%Y-%m}", "by": self.by, **self.narrowed}

    def rows(self, request: PageRequest) -> QuerySet[UsageDay]:
        rows = usage_visible_to(request.user).filter(day__gte=self.month, day__lt=self.until)
        rows = rows.filter(**{column: self.narrowed[name] for name, column in NARROWED_BY.items() if name in self.narrowed})
        return rows.filter(of_workload(self.narrowed[WORKLOAD])) if WORKLOAD in self.narrowed else rows


def _month(request: PageRequest) -> date:
    text = request.GET.get("month", "")
    if not text:
        return request.now.astimezone(UTC).date().replace(day=1)
    try:
        found = parse_date(f"{text}-01")
    except ValueError:
        found = None
    if found is None or found.year < FIRST_YEAR or found.year > request.now.year + 1:
        raise InvalidInput({"month": ["Must be a month, as 2027-01."]})
    return found


@dataclass(frozen=True, slots=True)
class UsageLine:
    id: str
    name: str
    of: str
    url: str
    held: str
    used: str
    wasted: str
    unmeasured: str
    efficiency: str
    is_low: bool
    cost: str

    @classmethod
    def of_row(cls, row: Any, url: str) -> UsageLine:
        usage = Usage.of(row)
        return cls(
            id=str(row.key),
            name=row.name,
            of=row.of,
            url=url,
            held=words.hours(usage.held_hours),
            used=words.hours(usage.used_hours),
            wasted=words.hours(usage.wasted_hours),
            unmeasured=words.hours(usage.unmeasured_hours),
            efficiency=_percent(usage.efficiency),
            is_low=usage.efficiency is not None and usage.efficiency < LOW,
            cost=_cost(usage),
        )


LOW: Final = 0.3  # an efficiency that is marked


def _lines(rows: Sequence[Any], asked: UsageQuery, portal: Portal) -> Iterator[UsageLine]:
    known = set(Workload.objects.filter(pk__in=[row.key for row in rows]).values_list("pk", flat=True)) if asked.by == WORKLOAD else ()
    for row in rows:
        is_known = asked.by != WORKLOAD or row.key in known
        yield UsageLine.of_row(row, _opens(row, asked, portal) if is_known else "")


def _opens(row: Any, asked: UsageQuery, portal: Portal) -> str:
    if asked.by == "gpr":
        return portal.request_url(row.key)
    if asked.by == WORKLOAD:
        return portal.url("workload", row.key)
    if asked.by not in OPENS:
        return ""
    filter_, by = OPENS[asked.by]
    return url_with(portal.url("usage"), {**asked.in_url, filter_: row.name, "by": by})


def _filters(asked: UsageQuery, rows: QuerySet[UsageDay], url: str) -> Iterator[tuple[str, str, str]]:
    for name, value in asked.narrowed.items():
        word = (rows.values_list("workload_name", flat=True).first() or "not in this month") if name == WORKLOAD else value
        yield name, word, url_with(url, {**asked.in_url, name: ""})


@dataclass(frozen=True, slots=True)
class DayPoint:
    at: datetime
    held: str
    used: str
    wasted: str


@dataclass(frozen=True, slots=True)
class LeagueLine:
    id: UUID
    place: int
    workspace: str
    project: str
    efficiency: str
    measured: str

    @classmethod
    def of(cls, place: LeaguePlace) -> LeagueLine:
        efficiency, measured = _percent(place.efficiency), words.hours(place.measured_hours)
        return cls(place.slice_id, place.place, place.slice, place.project, efficiency, measured)


@dataclass(frozen=True, slots=True)
class LeagueSwitch:
    project: str
    in_league: bool
    url: str


@dataclass(frozen=True, slots=True)
class PriceLine:
    id: UUID
    shape: str
    price: str
    from_day: date
    delete_url: str

    @classmethod
    def of(cls, price: ShapePrice) -> PriceLine:
        delete_url = reverse("admin-price-delete", args=[price.pk])
        return cls(price.pk, price.shape, f"{price.gpu_hour_price:f}", price.from_day, delete_url)


@dataclass(frozen=True, slots=True)
class UsagePage:
    title: str
    facts: tuple[Fact, ...]
    note: str
    points: tuple[DayPoint, ...]
    tabs: tuple[Tab, ...]
    heading: str
    by: str
    filters: tuple[tuple[str, str, str], ...]  # what, value, and the address without it
    rows: tuple[UsageLine, ...]
    foot: ListFoot
    previous_url: str
    next_url: str
    url: str  # of the fragment
    csv_url: str
    places: tuple[LeagueLine, ...]
    place_count: int
    switches: tuple[LeagueSwitch, ...]
    prices: tuple[PriceLine, ...]
    currency: str
    price_url: str
    is_read_only: bool  # the reader sets no prices

    @classmethod
    def build(cls, request: PageRequest, portal: Portal) -> UsagePage:
        asked, url = UsageQuery.of(request), portal.url("usage")
        rows = asked.rows(request)
        total = usage_total(rows)
        found = page_of(request, usage_by(rows, by=asked.by, since=asked.month), ordering=USAGE_ORDER)
        csv_url = url_with(portal.url("usage-csv"), asked.in_url)
        places = league(request.user, since=asked.month, until=asked.until)
        return cls(
            title=f"{asked.month:%B %Y}",
            facts=tuple(_facts(total)),
            note=f"{words.hours(total.unpriced_hours)} GPU-hours had no price." if total.unpriced_hours and total.cost else "",
            points=tuple(_points(usage_days(rows))),
            tabs=tuple(_tabs(request, asked, url)),
            heading=TAB_WORDS[asked.by],
            by=asked.by,
            filters=tuple(_filters(asked, rows, url)),
            rows=tuple(_lines(found.rows, asked, portal)),
            foot=foot_of(found, url, asked.in_url),
            previous_url=_month_url(url, asked, asked.month - timedelta(days=1)),
            next_url=_month_url(url, asked, asked.until) if asked.until <= request.now.date() else "",
            url=url_with(url, asked.in_url, cursor=request.GET.get("cursor", ""), part="body"),
            csv_url=csv_url,
            places=tuple(LeagueLine.of(each) for each in places[:PLACES_SHOWN]),
            place_count=len(places),
            switches=tuple(
                LeagueSwitch(project.name, project.in_league, reverse("league-switch", args=[project.pk]))
                for project in (projects_run_by(request.user) if request.may_write else ())
            ),
            prices=tuple(PriceLine.of(price) for price in prices_visible_to(request.user)[:PRICES_SHOWN]),
            currency=settings.EGS_CURRENCY,
            price_url=reverse("admin-price-set") if portal.is_admin else "",
            is_read_only=not portal.is_admin or not request.may_write,
        )


def _facts(total: Usage) -> list[Fact]:
    efficiency = total.efficiency
    return [
        Fact("Held", f"{words.hours(total.held_hours)} h", "GPU-hours, from reservation to release"),
        Fact("Used", f"{words.hours(total.used_hours)} h", "kernels ran"),
        Fact(
            "Wasted", f"{words.hours(total.wasted_hours)} h", "no kernel ran", tone="late" if total.wasted_hours > total.used_hours else ""
        ),
        Fact("Not measured", f"{words.hours(total.unmeasured_hours)} h", "entry, exit, no readings"),
        Fact("Efficiency", _percent(efficiency), "used of measured", tone="late" if efficiency is not None and efficiency < LOW else ""),
        Fact("Cost", _cost(total), settings.EGS_CURRENCY if total.cost else ""),
    ]


def _tabs(request: PageRequest, asked: UsageQuery, url: str) -> Iterator[Tab]:
    for by, word in TAB_WORDS.items():
        if by != "project" or is_overseer(request.user) or projects_run_by(request.user):
            yield Tab(word, url_with(url, asked.in_url, by=by), by == asked.by)


def _month_url(url: str, asked: UsageQuery, day: date) -> str:
    return url_with(url, {**asked.in_url, "month": f"{day:%Y-%m}"})


def _points(days: Sequence[tuple[date, Usage]]) -> Iterator[DayPoint]:
    """Returns each day from the first on: one without boxes has no hours, and the line must not pass over it."""
    known = dict(days)
    for number in range((days[-1][0] - days[0][0]).days + 1 if days else 0):
        day = days[0][0] + timedelta(days=number)
        usage = known.get(day)
        hours = (usage.held_hours, usage.used_hours, usage.wasted_hours) if usage else (0.0, 0.0, 0.0)
        yield DayPoint(datetime.combine(day, time(12), UTC), *(f"{each:.1f}" for each in hours))  # noon is the same day in most zones


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{share * 100:.0f} %"


def _cost(usage: Usage) -> str:
    return f"{usage.cost:,}" if usage.cost or not usage.unpriced_hours else "no price"


def render_usage(request: PageRequest, portal: Portal) -> HttpResponse:
    template = "components/usage/body.html" if request.GET.get("part") == "body" else f"{portal.name}/usage/page.html"
    return portal.render(request, template, nav="usage", page=UsagePage.build(request, portal))


def usage_csv(request: PageRequest, _: Portal) -> StreamedText:
    """Writes a row for each day and thing."""
    asked = UsageQuery.of(request)
    return csv_file(_csv_pieces(asked.rows(request), asked.by), f"usage-{asked.month:%Y-%m}-{asked.by}")


def _csv_pieces(rows: QuerySet[UsageDay], by: str) -> Iterator[str]:
    """One day after the other, so that no query sums up more than a day."""
    yield csv_text([CSV_HEAD])
    for day in rows.order_by("day").values_list("day", flat=True).distinct():
        for page in pages_of(usage_by(rows.filter(day=day), by=by, since=day, step="day"), USAGE_ORDER):
            yield csv_text(map(_csv_cells, page))


def _csv_cells(row: Any) -> Sequence[str]:
    usage = Usage.of(row)
    hours = (usage.held_hours, usage.used_hours, usage.wasted_hours, usage.unmeasured_hours)
    efficiency = "" if usage.efficiency is None else f"{usage.efficiency:.4f}"
    return [str(row.since), row.name, row.of, *(f"{value:.4f}" for value in hours), efficiency, str(usage.cost), settings.EGS_CURRENCY]
