"""Shows past, present and planned boxes of all nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate, groupby
from typing import Any
from uuid import UUID

from django.db.models import Count, Q
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from core.pages import words
from core.pages.axis import Axis
from core.pages.node_strip import NodeBox
from core.pages.parts import Tab
from gpr.allocation.snapshot import length_s
from gpr.models import GprState, Promise
from inventory.models import Cluster, MaintenanceWindow, Reservation, ReservationState
from inventory.selectors import clusters_visible_to, with_holders
from portal_admin.pages.fleet.inventory import nodes_with_state
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark, clean
from portal_admin.pages.plan.schedule_layout import Drawing, Stay, Step, draw, free_steps
from portal_shared.access import PageRequest
from portal_shared.parts.paging import url_with
from portal_shared.shell import Shell
from slices.models import Slice

SPANS = {"6h": timedelta(hours=6), "24h": timedelta(hours=24), "3d": timedelta(days=3), "7d": timedelta(days=7)}
SPAN_WORDS = {"6h": "6 h", "24h": "1 d", "3d": "3 d", "7d": "1 w"}
SPAN_DEFAULT = "24h"
AXIS_PX = 1030
# So many nodes are drawn at once, the others when they scroll into view, in parts of this size.
NODES_AT_ONCE = 30
NODES_DIGITS = 7
TABLE_ROWS = 500
NAMES_SHOWN = 3
# The ninth hue is for all other workspaces when one is highlighted.
GREY_HUE = 8
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ScheduleWindow:
    """Reads the parameters in the URL and their axis. `is_set`: the URL says when it begins; else it is around now."""

    axis: Axis
    span: str
    is_set: bool
    workspace: str
    as_table: bool

    @classmethod
    def of(cls, request: PageRequest) -> ScheduleWindow:
        span = request.GET.get("span", "")
        length = SPANS.get(span, SPANS[SPAN_DEFAULT])
        given = _moment(request)
        start = given or (request.now - length / 8).replace(minute=0, second=0, microsecond=0)
        axis = Axis(start, start + length, request.now, request.zone, AXIS_PX, "schedule")
        chosen = span if span in SPANS else SPAN_DEFAULT
        return cls(axis, chosen, given is not None, clean(request.GET.get("workspace", "")), request.GET.get("as") == "table")

    @property
    def in_url(self) -> dict[str, str]:
        plain = {"span": self.span, "workspace": self.workspace, "as": "table" if self.as_table else ""}
        return {**plain, "from": self.pinned} if self.is_set else plain

    @property
    def pinned(self) -> str:
        return self.axis.start.isoformat()

    def url(self, **changes: str) -> str:
        return url_with(reverse("admin-schedule"), self.in_url, **changes)

    def zoomed_url(self, span: str) -> str:
        """Keeps the middle of a fixed window."""
        middle = self.axis.start + (self.axis.end - self.axis.start) / 2
        return self.url(span=span, **({"from": (middle - SPANS[span] / 2).isoformat()} if self.is_set else {}))


@dataclass(frozen=True, slots=True)
class NodeName:
    name: str
    short: str
    state: str
    gpus_free: int
    gpu_count: int
    lanes: int


@dataclass(frozen=True, slots=True)
class FreeCurve:
    """Draws free nodes of one shape over time. Shapes are not added up, since one cannot replace another."""

    shape: str
    node_count: int
    free_count: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """Shows some nodes of a cluster. If `drawing` is None, the page fetches it from `url` when it scrolls into view."""

    id: str
    name: str
    url: str
    node_count: int
    nodes: tuple[NodeName, ...] = ()
    drawing: Drawing | None = None
    curves: tuple[FreeCurve, ...] = ()


@dataclass(frozen=True, slots=True)
class TableRow:
    cluster: str
    nodes: str
    name: str
    url: str
    mark: Mark | None
    kind: str
    starts_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class SchedulePage:
    shell: Shell
    window: ScheduleWindow
    spans: tuple[Tab, ...]
    previous_url: str
    now_url: str
    next_url: str
    other_url: str  # switches between drawing and table
    clear_url: str
    head_url: str
    parts: tuple[ClusterPart, ...]
    rows: tuple[TableRow, ...]
    is_cut: bool
    legend: tuple[Mark, ...]

    @classmethod
    def build(cls, request: PageRequest) -> SchedulePage:
        window = ScheduleWindow.of(request)
        axis, length = window.axis, window.axis.end - window.axis.start
        present = Count("nodes", filter=Q(nodes__gone_at=None))
        counted = list(clusters_visible_to(request.user).annotate(node_count=present).order_by("name"))
        parts = [(cluster, first) for cluster in counted for first in range(0, max(cluster.node_count, 1), NODES_AT_ONCE)]
        at_once = 0 if window.as_table else _at_once(parts)
        later = [_undrawn(cluster, first, window, _node_count(cluster, first)) for cluster, first in parts[at_once:]]
        books = _ScheduleRows(request, window, counted if window.as_table else [cluster for cluster, _ in parts[:at_once]])
        rows = books.table() if window.as_table else []
        return cls(
            shell=admin_shell(request, page="schedule"),
            window=window,
            spans=_spans(window),
            previous_url=window.url(**{"from": (axis.start - length / 2).isoformat()}),
            now_url=window.url(**{"from": ""}),
            next_url=window.url(**{"from": (axis.start + length / 2).isoformat()}),
            other_url=window.url(**{"as": "" if window.as_table else "table"}),
            clear_url=window.url(workspace=""),
            head_url=window.url(**{"from": window.pinned, "part": "head"}),
            parts=(*(books.part(cluster) for cluster, _ in parts[:at_once]), *later),
            rows=tuple(rows[:TABLE_ROWS]),
            is_cut=len(rows) > TABLE_ROWS,
            legend=books.legend(),
        )


def part_of(request: PageRequest, cluster: Cluster) -> ClusterPart:
    given = request.GET.get("node", "")
    first = int(given) if given.isdecimal() and len(given) < NODES_DIGITS else 0
    return _ScheduleRows(request, ScheduleWindow.of(request), [cluster], first=first).part(cluster)


class _ScheduleRows:
    """Loads the boxes of some clusters within the window together; with `first`, those of one cluster's nodes from there on."""

    def __init__(self, request: PageRequest, window: ScheduleWindow, clusters: Sequence[Cluster], *, first: int = 0) -> None:
        self._window, self._axis, self._first = window, window.axis, first
        self._clusters = {cluster.pk: cluster for cluster in clusters}
        nodes: Any = nodes_with_state(request.user, now=request.now).filter(cluster__in=clusters).order_by("shape", "name", "pk")
        self._nodes: dict[UUID, list[Any]] = defaultdict(list)
        for node in nodes.prefetch_related(None)[first : first + NODES_AT_ONCE if first else None]:
            self._nodes[node.cluster_id].append(node)
        self._stays: dict[UUID, list[Stay]] = defaultdict(list)
        self._slices: dict[UUID, Slice] = {}
        self._add_reservations()
        self._add_plan()
        self._add_aside()
        self._add_maintenance()

    def part(self, cluster: Cluster) -> ClusterPart:
        """Only the first part of a cluster has the curves, which are of all its nodes."""
        loaded = self._nodes[cluster.pk]
        nodes = loaded[:NODES_AT_ONCE]
        drawing = draw([self._stays[node.pk] for node in nodes], self._axis)
        of_shapes = groupby([] if self._first else loaded, key=lambda node: node.shape)
        return replace(
            _undrawn(cluster, self._first, self._window, len(nodes)),
            nodes=tuple(_name(node, cluster, lanes) for node, lanes in zip(nodes, drawing.lanes, strict=True)),
            drawing=drawing,
            curves=tuple(self._curve(shape, list(alike)) for shape, alike in of_shapes),
        )

    def _curve(self, shape: str, nodes: Sequence[Any]) -> FreeCurve:
        steps = free_steps([self._stays[node.pk] for node in nodes], self._axis)
        return FreeCurve(shape or "no GPUs", len(nodes), sum(node.state == "free" for node in nodes), steps)

    def table(self) -> list[TableRow]:
        """Shows a row for each box, with all its nodes."""
        boxes: dict[tuple[UUID, str, datetime, datetime], tuple[NodeBox, list[str]]] = {}
        for cluster_id, nodes in self._nodes.items():
            for node in nodes:
                for stay in self._stays[node.pk]:
                    key = (cluster_id, stay.key, stay.box.starts_at, stay.box.ends_at)
                    boxes.setdefault(key, (stay.box, []))[1].append(node.name)
        marks = {slice_.name: Mark.of(slice_) for slice_ in self._slices.values()}
        rows = [
            TableRow(
                cluster=self._clusters[key[0]].name,
                nodes=_names(names),
                name=box.name,
                url=box.url,
                mark=marks.get(box.workspace),
                kind=box.kind,
                starts_at=box.starts_at,
                ends_at=box.ends_at,
            )
            for key, (box, names) in boxes.items()
        ]
        return sorted(rows, key=lambda row: (row.starts_at, row.cluster, row.name))

    def legend(self) -> tuple[Mark, ...]:
        marks = sorted((Mark.of(slice_) for slice_ in self._slices.values()), key=lambda mark: mark.name)
        return tuple(Mark(mark.name, mark.hue, mark.mark, self._window.url(workspace=mark.name)) for mark in marks)

    def _add_reservations(self) -> None:
        node_ids = [node.pk for nodes in self._nodes.values() for node in nodes]
        here = Reservation.objects.filter(**{"node__in": node_ids} if self._first else {"cluster__in": self._clusters})
        rows = here.filter(starts_at__lt=self._axis.end, ends_at__gt=self._axis.start)
        # An overdue box is shown until its release.
        overdue = here.filter(state=ReservationState.HELD, ends_at__lte=self._axis.start)
        for row in with_holders(rows | overdue):
            ends_at = max(row.ends_at, self._axis.now) if row.state == ReservationState.HELD else row.ends_at
            self._add(row.node_id, f"{row.gpr_id}.{row.run}", _kind(row), row.starts_at, ends_at, row.gpr, row.slice)

    def _add_plan(self) -> None:
        if not self._clusters:
            return
        pools = Q()
        for cluster in self._clusters.values():
            pools |= Q(slot_pool__startswith=f"{cluster.name}/")
        waiting = Promise.objects.filter(pools, gpr__state=GprState.QUEUED, slot_start_at__lt=self._axis.end)
        known = {str(node.pk): node.pk for nodes in self._nodes.values() for node in nodes}
        for promise in waiting.select_related("gpr__slice"):
            starts_at = max(promise.slot_start_at, self._axis.now)
            ends_at = starts_at + timedelta(seconds=length_s(promise.gpr))
            if ends_at <= self._axis.start:
                continue
            for node_id in (known[text] for text in promise.slot_nodes if text in known):
                kind = "booked" if promise.gpr.is_booking else "planned"
                self._add(node_id, str(promise.gpr_id), kind, starts_at, ends_at, promise.gpr, promise.gpr.slice)

    def _add_aside(self) -> None:
        for node in (node for nodes in self._nodes.values() for node in nodes if node.state == "set-aside"):
            since = max(node.cordoned_at or self._axis.now, self._axis.start)
            is_announced = node.is_in_maintenance and node.is_ready and node.cordoned_at is None
            if since < self._axis.end and not is_announced:
                reason = node.cordon_reason or ("not ready" if not node.is_ready else "takes nothing new")
                box = NodeBox("aside", since, self._axis.end, f"Set aside: {reason}")
                self._stays[node.pk].append(Stay(f"aside.{node.pk}", box))

    def _add_maintenance(self) -> None:
        windows = MaintenanceWindow.objects.filter(cluster__in=self._clusters, canceled_at=None)
        for window in windows.filter(starts_at__lt=self._axis.end, ends_at__gt=self._axis.start):
            box = NodeBox("aside", window.starts_at, window.ends_at, f"Maintenance: {window.reason}")
            for node in self._nodes[window.cluster_id]:
                if window.node_id in {None, node.pk}:
                    self._stays[node.pk].append(Stay(f"maintenance.{window.pk}", box))

    def _add(self, node_id: UUID, key: str, kind: str, starts_at: datetime, ends_at: datetime, gpr: Any, slice_: Slice) -> None:
        self._slices[slice_.pk] = slice_
        mark = Mark.of(slice_)
        hue = mark.hue if self._window.workspace in {"", slice_.name} else GREY_HUE
        url = reverse("admin-inspect", args=[gpr.pk])
        box = NodeBox(kind, starts_at, ends_at, gpr.name, slice_.name, url, hue, mark.mark)
        self._stays[node_id].append(Stay(key, box))


def _spans(window: ScheduleWindow) -> tuple[Tab, ...]:
    """The neighbors of the present span have keyboard shortcuts."""
    here = list(SPANS).index(window.span)
    keys = {here - 1: ("+", "Zoom in"), here + 1: ("-", "Zoom out")}
    return tuple(
        Tab(word, window.zoomed_url(span), span == window.span, None, *keys.get(number, ()))
        for number, (span, word) in enumerate(SPAN_WORDS.items())
    )


def _at_once(parts: Sequence[tuple[Any, int]]) -> int:
    """Returns how many parts are drawn at once, at least one. Their clusters have node_count."""
    node_counts = accumulate(_node_count(*part) for part in parts)
    return max(sum(count <= NODES_AT_ONCE for count in node_counts), 1)


def _node_count(cluster: Any, first: int) -> int:
    return int(min(cluster.node_count - first, NODES_AT_ONCE))


def _undrawn(cluster: Cluster, first: int, window: ScheduleWindow, node_count: int) -> ClusterPart:
    # The URL has the start of the page's axis, so that all parts agree.
    url = window.url(**{"from": window.pinned, "part": str(cluster.pk), "node": str(first or "")})
    return ClusterPart(f"{cluster.pk}-{first}", cluster.name, url, node_count)


def _kind(row: Reservation) -> str:
    if row.state == ReservationState.RELEASED:
        return "ended"
    if row.state == ReservationState.PLANNED:
        return "booked"
    return "exiting" if row.phase == "EXITING" else "held"


def _name(node: Any, cluster: Cluster, lanes: int) -> NodeName:
    short = node.name.removeprefix(f"{cluster.name}-") or node.name
    return NodeName(node.name, short, node.state, node.gpus_free, node.gpu_count, lanes)


def _names(names: list[str]) -> str:
    rest = f" and {words.number(len(names) - NAMES_SHOWN)} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + rest


def _moment(request: PageRequest) -> datetime | None:
    """Reads `?from=`, by default in the reader's zone. Returns None for an invalid time."""
    # An unescaped plus arrives as a space.
    text = request.GET.get("from", "").strip().replace(" ", "+")[:40]
    try:
        at = parse_datetime(text)
        if at is None:
            return None
        aware = at if at.tzinfo else at.replace(tzinfo=request.zone)
        return aware if EARLIEST <= aware <= LATEST else None
    except (ValueError, OverflowError):
        return None
