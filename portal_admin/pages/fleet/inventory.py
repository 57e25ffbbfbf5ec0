"""Shows nodes by cluster and shape, with their GPUs and holders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Case, CharField, Count, Exists, OuterRef, Q, QuerySet, Sum, Value, When
from django.urls import reverse

from accounts.models import User
from core.pages import words
from core.pages.parts import GpuTile, ListFoot, Tab
from core.pages.table import RowGroup
from inventory.models import Cluster, Node, Reservation, ReservationState, ReservedGpu, agent_is_live
from inventory.selectors import gpus_visible_to, nodes_visible_to, stays
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark, clean
from portal_shared.access import PageRequest
from portal_shared.parts.paging import foot_of, page_of, state_of, url_with
from portal_shared.shell import Shell
from protocol.assignments import Phase

NODE_ORDER = ("cluster__name", "shape", "name", "id")
STATES = {"": "All", **words.NODE_WORDS}
# Short words fit into a tile.
FREE_TILE, ASIDE_TILE, SICK_TILE = "free", "aside", "sick"


@dataclass(frozen=True, slots=True)
class BoxHolder:
    name: str
    url: str
    mark: Mark
    until: datetime
    phase: str

    @classmethod
    def of(cls, row: Reservation) -> BoxHolder:
        url = reverse("admin-inspect", args=[row.gpr_id])
        return cls(row.gpr.name, url, Mark.of(row.slice), row.ends_at, Phase(row.phase).value.title())


@dataclass(frozen=True, slots=True)
class NodeLine:
    id: UUID
    name: str
    url: str
    state: str
    node_type: str
    place: str
    gpus: tuple[GpuTile, ...]
    gpus_free: int
    gpu_count: int
    holders: tuple[BoxHolder, ...]
    note: str

    @classmethod
    def of(cls, node: Any, gpus: Sequence[Any]) -> NodeLine:
        """`node` has the selectors' annotations, `gpus` are its own of `tiles_of`."""
        return cls(
            id=node.pk,
            name=node.name,
            url=reverse("admin-node", args=[node.pk]),
            state=node.state,
            node_type=node.node_type,
            place=" ".join(part for part in (node.zone, node.rack) if part),
            gpus=tuple(_tile(gpu, is_usable=node.is_usable) for gpu in gpus),
            gpus_free=node.gpus_free,
            gpu_count=node.gpu_count,
            holders=tuple(BoxHolder.of(row) for row in node.held_by),
            note=_note(node, gpus),
        )


@dataclass(frozen=True, slots=True)
class InventoryFilters:
    cluster: str = ""
    shape: str = ""
    state: str = ""
    q: str = ""

    @classmethod
    def of(cls, request: PageRequest) -> InventoryFilters:
        given = {name: clean(request.GET.get(name, "")) for name in ("cluster", "shape", "q")}
        return cls(state=state_of(request, STATES), **given)

    @property
    def in_url(self) -> dict[str, str]:
        return {"cluster": self.cluster, "shape": self.shape, "state": self.state, "q": self.q}

    def narrow(self, rows: QuerySet[Node, Node]) -> QuerySet[Node, Node]:
        exact = {"cluster__name": self.cluster, "shape": self.shape, "state": self.state}
        rows = rows.filter(**{name: value for name, value in exact.items() if value})
        if not self.q:
            return rows
        held = Reservation.objects.filter(node=OuterRef("pk"), state=ReservationState.HELD)
        holder = held.filter(Q(gpr__name__icontains=self.q) | Q(slice__name__icontains=self.q))
        return rows.filter(Q(name__icontains=self.q) | Q(gpus__uuid=self.q) | Exists(holder)).distinct()


@dataclass(frozen=True, slots=True)
class InventoryPage:
    shell: Shell
    tabs: tuple[Tab, ...]
    clusters: tuple[str, ...]
    shapes: tuple[str, ...]
    filters: InventoryFilters
    groups: tuple[RowGroup[NodeLine], ...]
    foot: ListFoot
    url: str
    clear_url: str
    is_bare: bool  # no node has ever joined

    @classmethod
    def build(cls, request: PageRequest) -> InventoryPage:
        url, filters = reverse("admin-inventory"), InventoryFilters.of(request)
        counts = _counts(request.user, request.now)
        page = page_of(request, filters.narrow(nodes_with_state(request.user, now=request.now)), ordering=NODE_ORDER)
        of_state: dict[str, int] = defaultdict(int)
        for row in counts:
            of_state[row["state"]] += row["nodes"]
        return cls(
            shell=admin_shell(request, page="inventory"),
            tabs=tuple(
                Tab(
                    word,
                    url_with(url, filters.in_url, state=state),
                    filters.state == state,
                    of_state[state] if state else sum(of_state.values()),
                )
                for state, word in STATES.items()
            ),
            clusters=tuple(sorted({row["cluster__name"] for row in counts})),
            shapes=tuple(sorted({row["shape"] for row in counts})),
            filters=filters,
            groups=tuple(_groups(page.rows, counts, request)),
            foot=foot_of(page, url, filters.in_url),
            url=url_with(url, filters.in_url, cursor=request.GET.get("cursor", ""), part="rows"),
            clear_url=url_with(url, {"state": filters.state}) if filters.cluster or filters.shape or filters.q else "",
            is_bare=not counts,
        )


def nodes_with_state(actor: User, *, now: datetime) -> QuerySet[Node, Node]:
    """`state` is a key of words.NODE_WORDS."""
    agents = {cluster.pk: getattr(cluster, "agent", None) for cluster in Cluster.objects.select_related("agent")}
    silent = [pk for pk, agent in agents.items() if not agent_is_live(agent, now, within_s=settings.EGS_AGENT_UNREACHABLE_S)]
    leaves = Reservation.objects.filter(~stays(), node=OuterRef("pk"), state=ReservationState.HELD)
    state = Case(
        When(cluster__in=silent, then=Value("silent")),
        When(Q(is_held=True) & (Q(cordoned_at__isnull=False) | Exists(leaves)), then=Value("draining")),
        When(is_held=True, then=Value("held")),
        When(is_usable=True, then=Value("free")),
        default=Value("set-aside"),
        output_field=CharField(),
    )
    return nodes_visible_to(actor, now=now).annotate(state=state)


def tiles_of(nodes: Iterable[Any], request: PageRequest) -> dict[UUID, list[Any]]:
    """Shows GPUs by node, each with its `holder`, which is among those of the node."""
    holders, gpus = {row.pk: row for node in nodes for row in node.held_by}, defaultdict[UUID, list[Any]](list)
    reserved = ReservedGpu.objects.filter(state=ReservationState.HELD, reservation__in=holders).values_list("gpu", "reservation")
    holder_of = {gpu_id: holders[reservation_id] for gpu_id, reservation_id in reserved}
    there: QuerySet[Any] = gpus_visible_to(request.user, now=request.now).select_related(None).prefetch_related(None)
    for gpu in there.filter(node__in=[node.pk for node in nodes]).order_by("index", "pk"):
        gpu.holder = holder_of.get(gpu.pk)
        gpus[gpu.node_id].append(gpu)
    return gpus


def _counts(actor: User, now: datetime) -> list[dict[str, Any]]:
    rows: Any = nodes_with_state(actor, now=now).prefetch_related(None).order_by()
    return list(rows.values("cluster__name", "shape", "state").annotate(nodes=Count("pk"), gpus=Sum("gpu_count"), free=Sum("gpus_free")))


def _groups(nodes: Sequence[Any], counts: Sequence[dict[str, Any]], request: PageRequest) -> Iterator[RowGroup[NodeLine]]:
    """Counts include the nodes of other pages."""
    gpus = tiles_of(nodes, request)
    for number, ((cluster, shape), members) in enumerate(groupby(nodes, key=lambda node: (node.cluster.name, node.shape))):
        mine = [row for row in counts if (row["cluster__name"], row["shape"]) == (cluster, shape)]
        total, free, all_gpus = (sum(row[name] for row in mine) for name in ("nodes", "free", "gpus"))
        told = f"{words.plural(total, 'node')}, {words.number(free)} of {words.number(all_gpus)} GPUs free"
        lines = tuple(NodeLine.of(node, gpus[node.pk]) for node in members)
        yield RowGroup(f"nodes-{number}", f"{cluster}, {shape or 'no GPUs'}", lines, note=told)


def _tile(gpu: Any, *, is_usable: bool) -> GpuTile:
    # Without the hardware UUID: if boxes share a node, nobody knows which box has which GPU.
    name = f"GPU {gpu.index}"
    if row := gpu.holder:
        mark = Mark.of(row.slice)
        title = f"{name}, held by {row.gpr.name} of {row.slice.name}"
        return GpuTile(gpu.index, words.initials(row.slice.name), title=title, css=f"is-held ws-h{mark.hue}")
    if not gpu.is_healthy:
        return GpuTile(gpu.index, SICK_TILE, title=f"{name}, reported as not healthy", css="is-sick")
    if not is_usable:
        return GpuTile(gpu.index, ASIDE_TILE, title=f"{name}, not held, but nothing starts on its node now")
    return GpuTile(gpu.index, FREE_TILE, title=f"{name}, free")


def _note(node: Any, gpus: Sequence[Any]) -> str:
    notes = [node.cordon_reason or "Set aside"] if node.cordoned_at else []
    if not node.is_ready:
        notes.append("Not ready in the cluster")
    sick = sum(not gpu.is_healthy for gpu in gpus)
    if sick:
        notes.append(f"{words.plural(sick, 'GPU')} not healthy")
    if node.is_in_maintenance:
        notes.append("Closed for maintenance")
    if node.state == "silent":
        notes.append("Its agent is silent")
    elif node.state == "set-aside" and not notes:
        notes.append("Its cluster takes nothing new")
    return "; ".join(note.rstrip(".") for note in notes)
