"""Draws the fleet map for both portals: every GPU is one cell. Selectors decide what a reader may know of a cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse, JsonResponse

from core.errors import InvalidInput
from core.pages import words
from core.pages.parts import Tab
from inventory.models import ReservedGpu
from inventory.selectors import HELD, Availability, gpus_visible_to, reservations_visible_to
from observability.telemetry.selectors import IDLE_PERCENT, gpus_with_readings
from portal_shared.access import PageRequest
from portal_shared.parts.gpus import HEAT_FROM_C
from portal_shared.parts.paging import url_with
from portal_shared.parts.portals import Portal
from portal_shared.shell import mark_of

COLORS: Final = {"use": "Use", "temperature": "Temperature", "power": "Power", "holder": "Holder", "health": "Health"}
UNITS: Final = {"use": "%", "temperature": "°C", "power": "W"}
# Each class of heat after the first begins at its number. Use and power are no trouble by themselves, so they stay within the blues.
SCALES: Final[Mapping[str, tuple[int, ...]]] = {
    "use": (IDLE_PERCENT, 30, 60, 85),
    "temperature": HEAT_FROM_C,
    "power": (100, 250, 400, 550),
}
SICK: Final = "sick"
STATES: Final = (*Availability.values, SICK)
STATE_WORDS: Final = {
    Availability.FREE: "Free",
    Availability.HELD: "Held",
    Availability.DRAINING: "Being cleared",
    Availability.UNUSABLE: "Closed",
    SICK: "Sick",
}
NOT_IN_A_RACK: Final = "no rack"


@dataclass(slots=True)
class Cell:
    id: UUID
    cluster: str
    rack: str
    node: str
    shape: str
    index: int
    state: str
    temperature: int | None  # these three: of a fresh reading that the reader may know
    use: int | None
    power: int | None
    holder: tuple[str, str, int] | None  # request, workspace and its hue

    @property
    def is_idle(self) -> bool:
        return self.state == Availability.HELD and self.use is not None and self.use < IDLE_PERCENT


@dataclass(slots=True)
class RackLine:
    """Shows one row of the map's table."""

    cluster: str
    rack: str
    nodes: set[str] = field(default_factory=set)
    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    idle_count: int = 0
    temperatures: list[int] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    power_w: int = 0

    def add(self, cell: Cell) -> None:
        self.nodes.add(cell.node)
        self.states[cell.state] += 1
        self.idle_count += cell.is_idle
        self.temperatures += [] if cell.temperature is None else [cell.temperature]
        self.uses += [] if cell.use is None else [cell.use]
        self.power_w += cell.power or 0

    @property
    def gpu_count(self) -> int:
        return sum(self.states.values())

    @property
    def hottest(self) -> str:
        return f"{max(self.temperatures)} °C" if self.temperatures else "none"

    @property
    def use(self) -> str:
        return f"{sum(self.uses) / len(self.uses):.0f} %" if self.uses else "none"

    @property
    def power(self) -> str:
        return f"{self.power_w / 1000:.1f} kW" if self.power_w else "none"

    @property
    def held(self) -> str:
        count = self.states[Availability.HELD] + self.states[Availability.DRAINING]
        return f"{count}, {self.idle_count} idle" if self.idle_count else str(count)


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """It is an entry of a legend: the class that colors it, and its words."""

    css: str
    text: str


@dataclass(frozen=True, slots=True)
class FleetMap:
    tabs: tuple[Tab, ...]
    by: str
    keys: Mapping[str, tuple[LegendEntry, ...]]
    racks: tuple[RackLine, ...]
    gpus: str
    data: Mapping[str, Any]
    cells_url: str
    table_url: str

    @classmethod
    def build(cls, request: PageRequest, portal: Portal) -> FleetMap:
        by, url = request.GET.get("by", "use"), portal.url("gpu-map")
        if by not in COLORS:
            raise InvalidInput({"by": [f"There is no such color. There are: {', '.join(COLORS)}."]})
        cells = cells_for(request)
        return cls(
            tabs=tuple(Tab(word, url_with(url, {"by": name}), name == by) for name, word in COLORS.items()),
            by=by,
            keys=_keys(cells),
            racks=tuple(_racks(cells)),
            gpus=words.plural(len(cells), "GPU"),
            data=cells_data(cells, portal),
            cells_url=url_with(url, {"part": "cells"}),
            table_url=portal.url("gpus"),
        )


def cells_for(request: PageRequest) -> list[Cell]:
    """Returns cells in order of cluster, rack, node and index. A member sees the GPUs of his clusters, and readings and holders of his own
    boxes only.
    """
    readings = _readings(request)
    holders = _holders(request)
    names = ("node__cluster__name", "node__rack", "node__name", "node__shape", "index", "availability", "is_healthy")
    rows: Any = gpus_visible_to(request.user, now=request.now).prefetch_related(None).order_by().values_list("pk", *names)
    cells = [
        Cell(pk, cluster, rack, node, shape, index, state if is_healthy else SICK, *readings.get(pk, NO_READING), holders.get(pk))
        for pk, cluster, rack, node, shape, index, state, is_healthy in rows
    ]
    return sorted(cells, key=attrgetter("cluster", "rack", "node", "index", "id"))


NO_READING: Final = (None, None, None)


def _readings(request: PageRequest) -> dict[UUID, tuple[int | None, int | None, int | None]]:
    known: Any = gpus_with_readings(request.user, now=request.now)
    fresh = known.prefetch_related(None).order_by().filter(is_fresh=True)
    names = (f"latest_reading__{name}" for name in ("temperature_c", "utilization_percent", "power_w"))
    return {pk: (temperature, use, power) for pk, temperature, use, power in fresh.values_list("pk", *names)}


def _holders(request: PageRequest) -> dict[UUID, tuple[str, str, int]]:
    rows = ReservedGpu.objects.filter(HELD, reservation__in=reservations_visible_to(request.user)).order_by()
    told = rows.values_list("gpu", "reservation__gpr__name", "reservation__slice__name", "reservation__slice__number")
    return {gpu: (gpr, slice_, mark_of(number)[0]) for gpu, gpr, slice_, number in told}


def _racks(cells: Iterable[Cell]) -> list[RackLine]:
    lines: dict[tuple[str, str], RackLine] = {}
    for cell in cells:
        lines.setdefault((cell.cluster, cell.rack), RackLine(cell.cluster, cell.rack or NOT_IN_A_RACK)).add(cell)
    return list(lines.values())


def _keys(cells: Iterable[Cell]) -> dict[str, tuple[LegendEntry, ...]]:
    workspaces = sorted({cell.holder[1:] for cell in cells if cell.holder})
    sick = LegendEntry("fleet-sick-mark", STATE_WORDS[SICK])
    keys = {name: (*_scale_keys(name), LegendEntry("fleet-unknown", "No reading"), sick) for name in SCALES}
    keys["use"] += (LegendEntry("fleet-idle-mark", "Held and idle"),)
    others = (LegendEntry("fleet-held", "Held by others"), LegendEntry("fleet-free", "Free"), LegendEntry("fleet-unusable", "Closed"), sick)
    keys["holder"] = (*(LegendEntry(f"fleet-holder ws-h{hue}", name) for name, hue in workspaces), *others)
    keys["health"] = tuple(LegendEntry(f"fleet-{state}", STATE_WORDS[state]) for state in STATES)
    return keys


def _scale_keys(name: str) -> list[LegendEntry]:
    begins = SCALES[name]
    texts = [f"under {begins[0]}", *map(str, begins[:-1]), f"{begins[-1]} {UNITS[name]} or more"]
    return [LegendEntry(f"heat-{number}", text) for number, text in enumerate(texts)]


def cells_data(cells: list[Cell], portal: Portal) -> dict[str, Any]:
    """Columns, since 10,000 objects with names would be three times as long."""
    nodes: dict[tuple[str, str, str, str], int] = defaultdict(int)
    holders: dict[tuple[str, str, int], int] = {}
    for cell in cells:
        nodes[cell.cluster, cell.rack or NOT_IN_A_RACK, cell.node, cell.shape] += 1
    return {
        "nodes": [[*node, count] for node, count in nodes.items()],
        "ids": "".join(cell.id.hex for cell in cells),
        "index": [cell.index for cell in cells],
        "state": [STATES.index(cell.state) for cell in cells],
        "temperature": [cell.temperature for cell in cells],
        "use": [cell.use for cell in cells],
        "power": [cell.power for cell in cells],
        "holder": [-1 if cell.holder is None else holders.setdefault(cell.holder, len(holders)) for cell in cells],
        "holders": list(holders),
        "states": [[state, STATE_WORDS[state]] for state in STATES],
        "scales": SCALES,
        "idle": IDLE_PERCENT,
        "gpu_url": portal.url("gpu", UUID(int=0)),
    }


def render_map(request: PageRequest, portal: Portal) -> HttpResponse:
    if request.GET.get("part") == "cells":
        return JsonResponse(cells_data(cells_for(request), portal))
    return portal.render(request, f"{portal.name}/gpus/map.html", nav="gpus", map=FleetMap.build(request, portal))
