"""Shows the list of alerts, by state, and the silences that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from accounts.policy import Verb, may
from core.errors import InvalidInput
from core.pages.parts import ListFoot, Tab
from core.streaming import StreamedText
from core.words import duration, number
from inventory.selectors import clusters_visible_to
from journal.models import Severity
from observability.alerts.models import Alert, AlertRule, AlertSilence, AlertState, AlertSubject
from observability.alerts.selectors import alerts_visible_to, silences_visible_to
from observability.alerts.services import silence_words
from observability.alerts.signals import SIGNALS
from observability.alerts.silences import Silences
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.csv_files import Cell, list_csv
from portal_shared.parts.paging import at_page, foot_of, page_of, url_with
from portal_shared.parts.portals import Portal
from portal_shared.shell import Shell, WorkspaceMark

ORDER: Final = ("-began_at", "id")
CSV_COLUMNS: Final = (
    *("rule", "severity", "state", "places", "began_at", "resolved_at", "worst", "unit", "cluster", "request", "workspace"),
    *("owner", "note"),
)
STATES: Final = {
    "firing": (AlertState.FIRING, "Firing"),
    "acknowledged": (AlertState.ACKNOWLEDGED, "Acknowledged"),
    "pending": (AlertState.PENDING, "Pending"),
    "resolved": (AlertState.RESOLVED, "Resolved"),
}
SILENCES_MAX: Final = 100
STATE_CSS: Final = {AlertState.FIRING: "late", AlertState.RESOLVED: "good"}
OF: Final = {"": "Platform", "workspaces": "Workspaces"}
SEVERITIES: Final = {"": "All severities", **dict(Severity.choices)}
FILTER_MAX_CHARS: Final = 100


@dataclass(frozen=True, slots=True)
class AlertFilters:
    state: str
    of: str
    severity: str
    cluster: str
    q: str

    @classmethod
    def read(cls, request: PageRequest) -> AlertFilters:
        names = ("state", "of", "severity", "cluster", "q")
        given = {name: request.GET.get(name, "").replace("\x00", "")[:FILTER_MAX_CHARS].strip() for name in names}
        given["state"] = given["state"] or "firing"
        for name, known in (("state", STATES), ("of", OF), ("severity", SEVERITIES)):
            if given[name] not in known:
                raise InvalidInput({name: [f"There is no such choice. There are: {', '.join(filter(None, known))}."]})
        return cls(**given)

    @property
    def in_url(self) -> dict[str, str]:
        return {"state": self.state, "of": self.of, "severity": self.severity, "cluster": self.cluster, "q": self.q}

    def clear_url(self, url: str) -> str:
        """Empty where nothing but the tabs is chosen."""
        return url_with(url, {"state": self.state, "of": self.of}) if self.severity or self.cluster or self.q else ""

    def narrow(self, rows: QuerySet[Alert]) -> QuerySet[Alert]:
        exact = {"state": STATES[self.state][0], "severity": self.severity, "cluster__name": self.cluster}
        rows = rows.filter(**{name: value for name, value in exact.items() if value})
        if not self.q:
            return rows
        of_it = Exists(AlertSubject.objects.filter(alert=OuterRef("pk"), name__icontains=self.q))
        named = Q(rule__name__icontains=self.q) | Q(gpr__name__icontains=self.q) | Q(slice__name__icontains=self.q)
        return rows.filter(named | of_it)


@dataclass(frozen=True, slots=True)
class AlertRow:
    id: UUID
    name: str
    url: str
    severity: str
    places: str
    state: str
    css: str
    since_at: datetime
    lasted: str  # until it was resolved
    worst: str
    mark: WorkspaceMark | None
    box: str
    box_url: str
    owner: str
    note: str
    is_silenced: bool
    acknowledge_url: str
    silence_url: str

    @classmethod
    def of(cls, alert: Alert, portal: Portal, *, may_change: bool, is_silenced: bool) -> AlertRow:
        is_open = alert.state in (AlertState.FIRING, AlertState.ACKNOWLEDGED)
        return cls(
            id=alert.pk,
            name=alert.rule.name,
            url=portal.url("alert", alert.pk),
            severity=alert.severity,
            places=alert.places,
            state=AlertState(alert.state).label,
            css=STATE_CSS.get(AlertState(alert.state), ""),
            since_at=alert.began_at,
            lasted=duration((alert.resolved_at - alert.began_at).total_seconds()) if alert.resolved_at else "",
            worst=value_words(alert.rule, alert.worst),
            mark=WorkspaceMark.of(alert.slice) if alert.slice else None,
            box=alert.gpr.name if alert.gpr else "",
            box_url=portal.request_url(alert.gpr_id) if alert.gpr_id else "",
            owner=alert.owner.name if alert.owner else "",
            note=alert.note,
            is_silenced=is_silenced,
            acknowledge_url=portal.url("alert-acknowledge", alert.pk) if may_change and alert.state == AlertState.FIRING else "",
            silence_url=portal.url("alert-silence", alert.pk) if may_change and is_open else "",
        )


@dataclass(frozen=True, slots=True)
class SilenceRow:
    id: UUID
    what: str
    reason: str
    owner: str
    starts_at: datetime
    ends_at: datetime
    end_url: str

    @classmethod
    def of(cls, silence: AlertSilence, portal: Portal, *, may_change: bool) -> SilenceRow:
        url = portal.url("alert-silence-end", silence.pk) if may_change else ""
        what = silence_words(silence)
        return cls(silence.pk, f"{what[0].upper()}{what[1:]}", silence.reason, silence.owner.name, silence.starts_at, silence.ends_at, url)


@dataclass(frozen=True, slots=True)
class AlertsPage:
    shell: Shell
    rows: tuple[AlertRow, ...]
    silences: tuple[SilenceRow, ...]
    foot: ListFoot
    tabs: tuple[Tab, ...]
    of_tabs: tuple[Tab, ...]  # for administrators: whose alerts
    filters: AlertFilters
    severities: Mapping[str, str]
    clusters: tuple[str, ...]  # alerts of workspaces name none
    clear_url: str
    url: str  # of its fragment
    rules_url: str
    silence_url: str  # of a new silence
    read_only: str
    why_none: str

    @classmethod
    def build(cls, request: PageRequest, portal: Portal, *, may_silence: bool) -> AlertsPage:
        filters, url = AlertFilters.read(request), portal.url("alerts")
        rows = _within(request, portal, filters)
        counts = _counts(rows)
        found = page_of(request, filters.narrow(rows), ordering=ORDER)
        total = None if filters.clear_url(url) else counts.get(STATES[filters.state][0], 0)
        silences = Silences(found.rows, request.now)
        return cls(
            shell=portal.shell_of(request, "alerts"),
            rows=tuple(
                AlertRow.of(alert, portal, may_change=may_change_row(request, alert), is_silenced=silences.has(alert))
                for alert in found.rows
            ),
            silences=tuple(_silences(request, portal)),
            foot=foot_of(found, url, filters.in_url, total=total, csv_url=portal.url("alerts-csv")),
            tabs=tuple(
                Tab(word, url_with(url, filters.in_url, state=name), name == filters.state, counts.get(value, 0))
                for name, (value, word) in STATES.items()
            ),
            of_tabs=tuple(Tab(word, url_with(url, filters.in_url, of=name), name == filters.of) for name, word in OF.items())
            if portal.is_admin
            else (),
            filters=filters,
            severities=SEVERITIES,
            clusters=tuple(_clusters(request)) if portal.is_admin and not filters.of else (),
            clear_url=filters.clear_url(url),
            url=url_with(url, filters.in_url, **at_page(request), part="list"),
            rules_url=portal.url("alert-rules"),
            silence_url=portal.url("alert-silence-create") if request.may_write and may_silence else "",
            read_only=why_not_write(request),
            why_none=NONE[filters.state],
        )


def _within(request: PageRequest, portal: Portal, filters: AlertFilters) -> QuerySet[Alert]:
    rows = alerts_visible_to(request.user)
    return rows.filter(slice__isnull=not filters.of) if portal.is_admin else rows


def alerts_csv(request: PageRequest, portal: Portal) -> StreamedText:
    filters = AlertFilters.read(request)
    rows = filters.narrow(_within(request, portal, filters))
    return list_csv(rows, ordering=ORDER, columns=CSV_COLUMNS, cells=_cells, name=f"alerts-{filters.state}")


def _cells(alert: Alert) -> Sequence[Cell]:
    named = (alert.cluster, alert.gpr, alert.slice, alert.owner)
    return [
        *(alert.rule.name, alert.severity, AlertState(alert.state).label, alert.places, alert.began_at, alert.resolved_at),
        *(alert.worst, SIGNALS[alert.rule.signal].unit, *(one.name if one else "" for one in named), alert.note),
    ]


NONE: Final = {
    "firing": "Nothing is wrong now",
    "acknowledged": "Nobody takes care of an alert now",
    "pending": "Nothing is about to fire",
    "resolved": "No alert was resolved in the last 90 days",
}


def value_words(rule: AlertRule, value: float | None) -> str:
    """Returns e.g. `89 °C`, or none."""
    unit = SIGNALS[rule.signal].unit
    if value is None:
        return "none"
    return duration(round(value)) if unit == "s" else f"{number(round(value, 1))} {unit}".rstrip()


def may_change_row(request: PageRequest, row: Any) -> bool:
    """The rights in a workspace are asked once for each workspace on the page, apart from what is the reader's own."""
    if not request.may_write:
        return False
    known: dict[tuple[type, UUID | None, bool], bool] = request.__dict__.setdefault("_alert_rights", {})
    key = (type(row), row.slice_id, row.owner_id == request.user.pk)
    if key not in known:
        known[key] = may(request.user, Verb.CHANGE, row)
    return known[key]


def _counts(rows: QuerySet[Alert]) -> Mapping[str, int]:
    counted: Any = rows.select_related(None).order_by().values_list("state").annotate(n=Count("pk"))
    return dict(counted)


def _clusters(request: PageRequest) -> QuerySet[Any, str]:
    return clusters_visible_to(request.user).order_by("name").values_list("name", flat=True)


def _silences(request: PageRequest, portal: Portal) -> list[SilenceRow]:
    rows = silences_visible_to(request.user).filter(ends_at__gt=request.now)
    if portal.is_admin:
        rows = rows.filter(slice=None)
    return [SilenceRow.of(silence, portal, may_change=may_change_row(request, silence)) for silence in rows[:SILENCES_MAX]]
