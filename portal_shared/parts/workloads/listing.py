from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.db.models import Count, Q, QuerySet, Sum
from django.http import HttpResponse

from core.pages import words
from core.pages.parts import Fact, ListFoot, Tab
from core.streaming import StreamedText
from inventory.models import agent_is_live
from observability.workloads.models import Workload, WorkloadState
from observability.workloads.selectors import WorkloadView, workloads_in, workloads_matching, workloads_visible_to
from portal_shared.access import PageRequest
from portal_shared.parts.csv_files import Cell, list_csv
from portal_shared.parts.gpus import with_unit
from portal_shared.parts.paging import at_page, foot_of, page_of, url_with
from portal_shared.parts.portals import Portal
from portal_shared.parts.workloads.filters import ListFilters
from portal_shared.shell import WorkspaceMark

ORDER: Final = ("-created_at", "id")
CSV_COLUMNS: Final = (
    *("name", "kind", "namespace", "workspace", "cluster", "state", "model", "framework", "requests", "pods_running", "pods_waiting"),
    *("gpus_held", "gpus_asked", "use_percent", "efficiency_percent", "held_gpu_hours", "used_gpu_hours", "wasted_gpu_hours"),
    *("temperature_c", "power_w", "stragglers", "created_at", "ended_at"),
)
VIEWS: Final = {
    "": "There now",
    WorkloadView.RUNNING: "Running",
    WorkloadView.WAITING: "Waiting",
    WorkloadView.IDLE: "Held and idle",
    WorkloadView.STRAGGLING: "Stragglers",
    WorkloadView.ENDED: "Ended",
}
STATE_TONES: Final = {WorkloadState.RUNNING: "running", WorkloadState.WAITING: "waiting", WorkloadState.ENDED: "skipped"}


@dataclass(frozen=True, slots=True)
class Carrier:
    name: str
    url: str


@dataclass(frozen=True, slots=True)
class WorkloadLine:
    id: Any
    name: str
    url: str
    kind: str
    namespace: str
    state: str  # as in StepRow
    state_word: str
    model: str
    framework: str
    pods: str
    gpus: str
    use: str
    efficiency: str
    heat: str
    carrier: Carrier | None
    more_carriers: int
    mark: WorkspaceMark
    created_at: Any
    notes: tuple[str, ...]

    @classmethod
    def of(cls, row: Workload, portal: Portal, request: PageRequest) -> WorkloadLine:
        gprs = list(row.gprs.all())
        is_now = row.state == WorkloadState.RUNNING
        return cls(
            id=row.pk,
            name=row.name,
            url=portal.url("workload", row.pk),
            kind=row.kind,
            namespace=row.namespace,
            state=STATE_TONES[WorkloadState(row.state)],
            state_word=row.get_state_display(),
            model=row.model,
            framework=row.framework,
            pods=pods_said(row),
            gpus=gpus_said(row),
            use=with_unit(row.use_percent, "%") if is_now else "none",
            efficiency=with_unit(row.efficiency_percent, "%"),
            heat=with_unit(row.temperature_c, "°C") if is_now else "none",
            carrier=Carrier(gprs[0].name, portal.request_url(gprs[0].pk)) if gprs else None,
            more_carriers=max(0, len(gprs) - 1),
            mark=WorkspaceMark.of(row.slice),
            created_at=row.created_at,
            notes=tuple(notes_of(row, request)),
        )


def pods_said(row: Workload) -> str:
    if not row.pods_waiting:
        return str(row.pods_running)
    return f"{row.pods_running} of {row.pods_running + row.pods_waiting}"


def gpus_said(row: Workload) -> str:
    return words.number(row.gpus_held) if row.gpus_held or not row.gpus_asked else f"asks for {words.number(row.gpus_asked)}"


def is_silent(row: Workload, request: PageRequest) -> bool:
    return not agent_is_live(getattr(row.cluster, "agent", None), request.now, within_s=settings.EGS_AGENT_UNREACHABLE_S)


def notes_of(row: Workload, request: PageRequest) -> list[str]:
    if row.state == WorkloadState.ENDED:
        return []
    notes = [f"{row.cluster.name} is silent"] if is_silent(row, request) else []
    if row.state == WorkloadState.RUNNING:
        notes += [words.plural(row.straggler_count, "straggler")] if row.straggler_count else []
        notes += ["Not measured"] if row.measured_at is None else []
    return notes


@dataclass(frozen=True, slots=True)
class WorkloadTable:
    facts: tuple[Fact, ...]
    tabs: tuple[Tab, ...]
    filters: ListFilters
    clusters: tuple[str, ...]
    kinds: tuple[str, ...]
    rows: tuple[WorkloadLine, ...]
    foot: ListFoot
    url: str
    facts_url: str
    pods_url: str
    clear_url: str
    is_bare: bool  # there was no workload at all that this reader may see

    @classmethod
    def build(cls, request: PageRequest, portal: Portal) -> WorkloadTable:
        url, filters = portal.url("workloads"), ListFilters.of(request, VIEWS)
        known = workloads_visible_to(request.user)
        counts = _counts(known)
        found = page_of(request, _shown(known, filters), ordering=ORDER)
        total = None if filters.clear_url(url) else counts[filters.view or "there"]
        places: Any = known.prefetch_related(None).order_by().values_list("cluster__name", "kind").distinct()
        kinds = {(cluster, kind) for cluster, kind in places}
        return cls(
            facts=tuple(_facts(counts, url, portal)),
            tabs=tuple(
                Tab(word, url_with(url, filters.in_url, view=view), filters.view == view, counts[view or "there"])
                for view, word in VIEWS.items()
            ),
            filters=filters,
            clusters=tuple(sorted({cluster for cluster, _ in kinds})),
            kinds=tuple(sorted({kind for _, kind in kinds})),
            rows=tuple(WorkloadLine.of(row, portal, request) for row in found.rows),
            foot=foot_of(found, url, filters.in_url, total=total, csv_url=portal.url("workloads-csv")),
            url=url_with(url, filters.in_url, **at_page(request), part="rows"),
            facts_url=url_with(url, {"part": "facts"}),
            pods_url=portal.url("pods"),
            clear_url=filters.clear_url(url),
            is_bare=not counts["all"],
        )


def _shown(known: QuerySet[Workload, Workload], filters: ListFilters) -> QuerySet[Workload, Workload]:
    rows = known.filter(workloads_in(filters.view)) if filters.view else known.exclude(state=WorkloadState.ENDED)
    exact = {"cluster__name": filters.cluster, "kind": filters.kind}
    rows = rows.filter(**{name: value for name, value in exact.items() if value})
    return rows.filter(workloads_matching(filters.q)) if filters.q else rows


def _counts(known: QuerySet[Workload, Workload]) -> dict[str, Any]:
    there = ~Q(state=WorkloadState.ENDED)
    by_view = {str(view): Count("pk", filter=workloads_in(view)) for view in WorkloadView}
    rows: Any = known.prefetch_related(None).order_by()
    counted: dict[str, Any] = rows.aggregate(
        all=Count("pk"),
        there=Count("pk", filter=there),
        held=Sum("gpus_held", filter=there, default=0),
        asked=Sum("gpus_asked", filter=there, default=0),
        waiting_pods=Sum("pods_waiting", filter=there, default=0),
        **by_view,
    )
    return counted


def _facts(counts: dict[str, Any], url: str, portal: Portal) -> list[Fact]:
    idle, slow, waiting = counts[WorkloadView.IDLE], counts[WorkloadView.STRAGGLING], counts["waiting_pods"]
    return [
        Fact("Running", words.number(counts[WorkloadView.RUNNING]), url=f"{url}?view=running"),
        Fact("GPUs of their pods", words.number(counts["held"])),
        Fact("Waiting", words.number(counts[WorkloadView.WAITING]), url=f"{url}?view=waiting"),
        Fact("GPUs asked for", words.number(counts["asked"])),
        Fact("Held and idle", words.number(idle), url=f"{url}?view=idle", tone="late" if idle else ""),
        Fact("With a straggler", words.number(slow), url=f"{url}?view=straggling", tone="late" if slow else ""),
        Fact("Pods kept back", words.number(waiting), url=f"{portal.url('pods')}?view=held-back", tone="late" if waiting else ""),
    ]


def render_workloads(request: PageRequest, portal: Portal) -> HttpResponse:
    parts = {"rows": "components/workloads/rows.html", "facts": "components/workloads/facts.html"}
    template = parts.get(request.GET.get("part", ""), f"{portal.name}/workloads/page.html")
    return portal.render(request, template, nav="workloads", table=WorkloadTable.build(request, portal))


def workloads_csv(request: PageRequest, _: Portal) -> StreamedText:
    rows = _shown(workloads_visible_to(request.user), ListFilters.of(request, VIEWS))
    return list_csv(rows, ordering=ORDER, columns=CSV_COLUMNS, cells=_cells, name="workloads")


def _cells(row: Workload) -> Sequence[Cell]:
    requests = ", ".join(gpr.name for gpr in row.gprs.all())
    return [
        *(row.name, row.kind, row.namespace, row.slice.name, row.cluster.name, row.get_state_display(), row.model, row.framework, requests),
        *(row.pods_running, row.pods_waiting, row.gpus_held, row.gpus_asked, row.use_percent, row.efficiency_percent),
        *(round(hours, 4) for hours in (row.held_hours, row.used_hours, row.wasted_hours)),
        *(row.temperature_c, row.power_w, row.straggler_count, row.created_at, row.ended_at),
    ]
