"""Shows the table of GPUs in both portals: what a reader may know is the selectors' matter."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Count, Max, Q, QuerySet, Sum
from django.http import HttpResponse

from core.errors import InvalidInput
from core.pages import words
from core.pages.parts import Fact, ListFoot, Tab
from core.rest.references import id_of
from core.streaming import StreamedText
from inventory.models import Gpu, Reservation, ReservedGpu
from inventory.selectors import HELD
from observability.models import LatestReading, Reading15s
from observability.telemetry.selectors import (
    HOT_C,
    IDLE_PERCENT,
    View,
    gpus_with_readings,
    in_view,
    reading_of,
)
from observability.xid_counts import counts_from
from portal_shared.access import PageRequest
from portal_shared.parts.csv_files import Cell, list_csv
from portal_shared.parts.paging import at_page, foot_of, page_of, url_with
from portal_shared.parts.portals import Portal
from portal_shared.shell import WorkspaceMark

ORDER: Final = ("-heat", "id")
VIEWS: Final = {"": "All", View.HOT: f"{HOT_C} °C or more", View.IDLE: "Held and idle", View.FAULTY: "Faults", View.STALE: "Stale"}
HEAT_FROM_C: Final = (35, 45, 55, 65, 72, 78, HOT_C, 87)  # where each class of heat after the first begins
CSV_COLUMNS: Final = (
    *("cluster", "node", "gpu", "uuid", "shape", "temperature_c", "use_percent", "power_w", "memory_used_mib", "memory_gib"),
    *("request", "workspace", "notes", "read_at"),
)
SPARK: Final = timedelta(minutes=30)
SPARK_WIDTH, SPARK_HEIGHT, SPARK_LEAST_C, SPARK_MOST_C = 154, 22, 25, 95
FILTER_MAX_CHARS, TICKED_MAX = 100, 50


@dataclass(frozen=True, slots=True)
class Spark:
    points: str
    last_x: str
    last_y: str
    limit_y: str
    spoken: str

    @classmethod
    def of(cls, course: Sequence[tuple[datetime, int]], now: datetime) -> Spark | None:
        if len(course) < 2:
            return None
        placed = [(_x(at, now), _y(celsius)) for at, celsius in course]
        spoken = f"Last half hour, from {min(c for _, c in course)} to {max(c for _, c in course)} °C"
        return cls(" ".join(f"{x},{y}" for x, y in placed), *placed[-1], _y(HOT_C), spoken)


@dataclass(frozen=True, slots=True)
class GpuHolder:
    name: str
    url: str
    mark: WorkspaceMark

    @classmethod
    def of(cls, box: Reservation, portal: Portal) -> GpuHolder:
        return cls(box.gpr.name, portal.request_url(box.gpr_id), WorkspaceMark.of(box.slice))


@dataclass(frozen=True, slots=True)
class GpuLine:
    id: UUID
    node: str
    index: int
    url: str
    temperature: str
    heat: str  # the class of its cell
    use: str
    power: str
    memory: str
    spark: Spark | None
    holder: GpuHolder | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GpuFilters:
    """Holds as `gpus` ids with commas between, which leave no room for other filters."""

    view: str = ""
    cluster: str = ""
    shape: str = ""
    q: str = ""
    gpus: str = ""

    @classmethod
    def of(cls, request: PageRequest) -> GpuFilters:
        if ticked := list(filter(id_of, ",".join(request.GET.getlist("gpu")).split(",")[:TICKED_MAX])):
            return cls(gpus=",".join(ticked))
        given = {
            name: request.GET.get(name, "").replace("\x00", "")[:FILTER_MAX_CHARS].strip() for name in ("view", "cluster", "shape", "q")
        }
        if given["view"] not in VIEWS:
            raise InvalidInput({"view": [f"There is no such view. There are: {', '.join(filter(None, VIEWS))}."]})
        return cls(**given)

    @property
    def in_url(self) -> dict[str, str]:
        return {"view": self.view, "cluster": self.cluster, "shape": self.shape, "q": self.q, "gpu": self.gpus}

    @property
    def is_narrow(self) -> bool:
        return any((self.cluster, self.shape, self.q, self.gpus))

    def narrow(self, rows: QuerySet[Gpu, Gpu]) -> QuerySet[Gpu, Gpu]:
        if self.gpus:
            return rows.filter(pk__in=self.gpus.split(","))
        exact = {"node__cluster__name": self.cluster, "node__shape": self.shape}
        rows = rows.filter(**{name: value for name, value in exact.items() if value})
        if not self.q:
            return rows
        # A member finds only rows that his own workspaces hold, so these names tell him nothing of others.
        box = ReservedGpu.objects.filter(HELD)
        of = Q(reservation__gpr__name__icontains=self.q) | Q(reservation__slice__name__icontains=self.q)
        held = box.filter(of).values("gpu")
        return rows.filter(Q(node__name__icontains=self.q) | Q(uuid=self.q) | Q(hardware_uuid=self.q) | Q(pk__in=held))


@dataclass(frozen=True, slots=True)
class GpuTable:
    facts: tuple[Fact, ...]
    tabs: tuple[Tab, ...]
    filters: GpuFilters
    clusters: tuple[str, ...]
    shapes: tuple[str, ...]
    rows: tuple[GpuLine, ...]
    foot: ListFoot
    url: str
    facts_url: str
    clear_url: str
    map_url: str
    compare_url: str
    is_bare: bool  # there is no GPU at all that this reader may see here

    @classmethod
    def build(cls, request: PageRequest, portal: Portal) -> GpuTable:
        url, filters = portal.url("gpus"), GpuFilters.of(request)
        known = gpus_with_readings(request.user, now=request.now)
        counts, hottest, places = _counted(known)
        found = page_of(request, filters.narrow(known.filter(in_view(filters.view))), ordering=ORDER)
        total = None if filters.is_narrow else counts[filters.view or "all"]
        return cls(
            facts=tuple(_facts(counts, hottest, url)),
            tabs=tuple(
                Tab(word, url_with(url, filters.in_url, view=view), filters.view == view, counts[view or "all"])
                for view, word in VIEWS.items()
            ),
            filters=filters,
            clusters=tuple(sorted({cluster for cluster, _ in places})),
            shapes=tuple(sorted({shape for _, shape in places})),
            rows=tuple(_lines(found.rows, portal, request)),
            foot=foot_of(found, url, filters.in_url, total=total, csv_url=portal.url("gpus-csv")),
            url=url_with(url, filters.in_url, **at_page(request), part="rows"),
            facts_url=url_with(url, {"part": "facts"}),
            clear_url=url_with(url, {"view": filters.view}) if filters.is_narrow else "",
            map_url=portal.url("gpu-map"),
            compare_url=portal.url("gpu-compare"),
            is_bare=not counts["all"],
        )


def _counted(known: QuerySet[Gpu, Gpu]) -> tuple[Counter[str], int, list[tuple[str, str]]]:
    """Returns counts of GPUs, their highest temperature (-1: none), and which clusters have them in which shapes."""
    counted = {
        "all": Count("pk"),
        "power_w": Sum("latest_reading__power_w", filter=Q(is_fresh=True), default=0),
        "throttled": Count("pk", filter=Q(is_fresh=True, latest_reading__throttled_percent__gt=0)),
        **{str(view): Count("pk", filter=in_view(view)) for view in View},
    }
    rows: Any = known.prefetch_related(None).order_by().values("node__cluster__name", "node__shape")
    groups = list(rows.annotate(hottest=Max("heat"), **counted))
    counts: Counter[str] = Counter()
    for group in groups:
        counts.update({name: group[name] for name in counted})
    hottest = max((group["hottest"] for group in groups), default=-1)
    return counts, hottest, [(group["node__cluster__name"], group["node__shape"]) for group in groups]


def _facts(counts: Counter[str], hottest: int, url: str) -> list[Fact]:
    return [
        Fact("GPUs", words.number(counts["all"])),
        Fact("Hottest", with_unit(hottest if hottest >= 0 else None, "°C"), tone="bad" if hottest >= HOT_C else ""),
        Fact(f"{HOT_C} °C or more", words.number(counts[View.HOT]), url=f"{url}?view=hot", tone="late" if counts[View.HOT] else ""),
        Fact("Throttled now", words.number(counts["throttled"]), tone="late" if counts["throttled"] else ""),
        Fact("Held and idle", words.number(counts[View.IDLE]), url=f"{url}?view=idle", tone="late" if counts[View.IDLE] else ""),
        Fact("Power", f"{counts['power_w'] / 1000:,.1f} kW"),
        Fact("Stale", words.number(counts[View.STALE]), "no reading for a minute", url=f"{url}?view=stale"),
    ]


def _lines(gpus: Sequence[Any], portal: Portal, request: PageRequest) -> list[GpuLine]:
    sparks = _sparks(gpus, request.now)
    return [line_of(gpu, portal, sparks.get(gpu.pk), request.now) for gpu in gpus]


def line_of(gpu: Any, portal: Portal, spark: Spark | None, now: datetime) -> GpuLine:
    reading = reading_of(gpu)
    box = gpu.held_by[0].reservation if gpu.held_by else None
    return GpuLine(
        id=gpu.pk,
        node=gpu.node.name,
        index=gpu.index,
        url=portal.url("gpu", gpu.pk),
        temperature=with_unit(reading.temperature_c if reading else None, "°C"),
        heat=heat_class(reading, is_fresh=gpu.is_fresh),
        use=with_unit(reading.utilization_percent if reading else None, "%"),
        power=with_unit(reading.power_w if reading else None, "W"),
        memory=_memory(reading, gpu),
        spark=spark,
        holder=GpuHolder.of(box, portal) if box else None,
        notes=tuple(_notes(reading, is_fresh=gpu.is_fresh, is_held=box is not None, now=now)),
    )


def heat_class(reading: LatestReading | None, *, is_fresh: bool) -> str:
    if reading is None or reading.temperature_c is None:
        return "heat-none"
    if not is_fresh:
        return "is-stale"
    return f"heat-{sum(reading.temperature_c >= least for least in HEAT_FROM_C)}"


def _notes(reading: LatestReading | None, *, is_fresh: bool, is_held: bool, now: datetime) -> list[str]:
    if reading is None:
        return ["No reading yet"]
    if not is_fresh:
        return [f"Stale for {words.duration((now - reading.at).total_seconds())}"]
    use = reading.utilization_percent
    notes = ["Idle"] if is_held and use is not None and use < IDLE_PERCENT else []
    notes += [f"Throttled {reading.throttled_percent} %"] if reading.throttled_percent else []
    notes += [f"Xid {xid}" for xid in sorted({*counts_from(reading.xid_counts), *([reading.xid] if reading.xid else [])})]
    notes += ["Row remap failed"] if reading.rows_failed else []
    notes += [words.plural(reading.new_faults, "new fault")] if reading.new_faults else []
    return notes


def _memory(reading: LatestReading | None, gpu: Gpu) -> str:
    if reading is None or reading.memory_used_mib is None:
        return "none"
    return f"{reading.memory_used_mib / 1024:.0f} of {gpu.memory_gib} GiB"


def with_unit(value: int | None, unit: str) -> str:
    return "none" if value is None else f"{value} {unit}"


def _sparks(gpus: Sequence[Any], now: datetime) -> dict[UUID, Spark]:
    series = {gpu.latest_reading.pk: gpu for gpu in gpus if gpu.is_known}
    rows = Reading15s._default_manager.filter(series_id__in=series, at__gt=now - SPARK)
    courses: dict[int, list[tuple[datetime, int]]] = defaultdict(list)
    for series_id, at, celsius in rows.order_by("at").values_list("series_id", "at", "temperature_c"):
        # A member's row tells of nothing before his box.
        if celsius is not None and at >= getattr(series[series_id], "own_since", at):
            courses[series_id].append((at, celsius))
    made = {series[key].pk: Spark.of(course, now) for key, course in courses.items()}
    return {pk: spark for pk, spark in made.items() if spark}


def _x(at: datetime, now: datetime) -> str:
    return f"{max(0.0, (SPARK_WIDTH - 4) * (1 - (now - at) / SPARK)):.0f}"


def _y(celsius: float) -> str:
    share = (min(max(celsius, SPARK_LEAST_C), SPARK_MOST_C) - SPARK_LEAST_C) / (SPARK_MOST_C - SPARK_LEAST_C)
    return f"{(SPARK_HEIGHT - 4) * (1 - share) + 2:.1f}"


def render_table(request: PageRequest, portal: Portal) -> HttpResponse:
    parts = {"rows": "components/gpus/rows.html", "facts": "components/gpus/facts.html"}
    template = parts.get(request.GET.get("part", ""), f"{portal.name}/gpus/page.html")
    return portal.render(request, template, nav="gpus", table=GpuTable.build(request, portal))


def gpus_csv(request: PageRequest, _: Portal) -> StreamedText:
    filters = GpuFilters.of(request)
    rows = filters.narrow(gpus_with_readings(request.user, now=request.now).filter(in_view(filters.view)))

    def cells(gpu: Any) -> Sequence[Cell]:
        reading, box = reading_of(gpu), gpu.held_by[0].reservation if gpu.held_by else None
        notes = _notes(reading, is_fresh=gpu.is_fresh, is_held=box is not None, now=request.now)
        measured = ("temperature_c", "utilization_percent", "power_w", "memory_used_mib")
        return [
            *(gpu.node.cluster.name, gpu.node.name, gpu.index, gpu.uuid, gpu.node.shape),
            *((getattr(reading, name) if reading else None) for name in measured),
            gpu.memory_gib,
            *((box.gpr.name, box.slice.name) if box else ("", "")),
            "; ".join(notes),
            reading.at if reading else None,
        ]

    return list_csv(rows, ordering=ORDER, columns=CSV_COLUMNS, cells=cells, name="gpus")
