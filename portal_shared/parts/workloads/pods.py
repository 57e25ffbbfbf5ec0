from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Count, Q, QuerySet, Sum
from django.http import HttpResponse

from core.pages import words
from core.pages.parts import Fact, ListFoot, Tab
from core.rest.references import id_of
from core.streaming import StreamedText
from observability.workloads.models import Pod
from observability.workloads.selectors import PodView, pods_in, pods_matching, pods_visible_to
from portal_shared.access import PageRequest
from portal_shared.parts.csv_files import Cell, list_csv
from portal_shared.parts.paging import at_page, foot_of, page_of, url_with
from portal_shared.parts.portals import Portal
from portal_shared.parts.workloads.filters import ListFilters
from portal_shared.shell import WorkspaceMark
from protocol.pods import Hold

ORDER: Final = ("-created_at", "id")
CSV_COLUMNS: Final = (
    *("name", "place", "namespace", "workspace", "cluster", "state", "why", "workload", "workload_kind", "request", "node"),
    *("gpus", "restarts", "created_at", "started_at", "ended_at"),
)
VIEWS: Final = {"": "There now", PodView.RUNNING: "Running", PodView.HELD_BACK: "Kept from running", PodView.ENDED: "Ended"}
HOLDS: Final = {Hold.GATE: "Waits", Hold.SCHEDULER: "Not placed", Hold.IMAGE: "No image", Hold.CONTAINER: "Starts"}


@dataclass(frozen=True, slots=True)
class PodLine:
    id: Any
    name: str
    place: str
    namespace: str
    state: str  # as in StepRow
    state_word: str
    why: str
    workload: str
    workload_kind: str
    workload_url: str
    gpr: str
    gpr_url: str
    node: str
    gpu_count: int
    restarts: int
    created_at: datetime
    mark: WorkspaceMark

    @classmethod
    def of(cls, pod: Pod, portal: Portal) -> PodLine:
        workload = pod.workload
        state, word = state_of(pod)
        return cls(
            id=pod.pk,
            name=pod.name,
            place=pod.place,
            namespace=workload.namespace,
            state=state,
            state_word=word,
            why=pod.why,
            workload=workload.name,
            workload_kind=workload.kind,
            workload_url=portal.url("workload", workload.pk),
            gpr=pod.gpr.name if pod.gpr else "",
            gpr_url=portal.request_url(pod.gpr.pk) if pod.gpr else "",
            node=pod.node,
            gpu_count=pod.gpu_count,
            restarts=pod.restarts,
            created_at=pod.created_at,
            mark=WorkspaceMark.of(workload.slice),
        )


def state_of(pod: Pod) -> tuple[str, str]:
    if pod.gone_at is not None:
        return "skipped", "Ended"
    if pod.hold:
        tone = "failed" if pod.hold == Hold.IMAGE else "waiting"
        return tone, HOLDS.get(Hold(pod.hold), pod.hold) if pod.hold in set(Hold) else pod.hold
    return ("running", pod.phase) if pod.node else ("waiting", pod.phase)


@dataclass(frozen=True, slots=True)
class PodTable:
    facts: tuple[Fact, ...]
    tabs: tuple[Tab, ...]
    filters: ListFilters
    clusters: tuple[str, ...]
    rows: tuple[PodLine, ...]
    foot: ListFoot
    url: str
    facts_url: str
    workloads_url: str
    clear_url: str
    about: str  # of which workload or request alone, for people
    is_bare: bool

    @classmethod
    def build(cls, request: PageRequest, portal: Portal) -> PodTable:
        url, filters = portal.url("pods"), ListFilters.of(request, VIEWS)
        known = pods_visible_to(request.user)
        counts = _counts(_within(known, filters))
        found = page_of(request, _shown(known, filters), ordering=ORDER)
        clusters: Any = known.order_by().values_list("cluster__name", flat=True).distinct()
        return cls(
            facts=tuple(_facts(counts, url, filters)),
            tabs=tuple(
                Tab(word, url_with(url, filters.in_url, view=view), filters.view == view, counts[view or "there"])
                for view, word in VIEWS.items()
            ),
            filters=filters,
            clusters=tuple(sorted(clusters)),
            rows=tuple(PodLine.of(pod, portal) for pod in found.rows),
            foot=foot_of(
                found,
                url,
                filters.in_url,
                total=None if filters.q else counts[filters.view or "there"],
                csv_url=portal.url("pods-csv"),
            ),
            url=url_with(url, filters.in_url, **at_page(request), part="rows"),
            facts_url=url_with(url, filters.in_url, part="facts"),
            workloads_url=portal.url("workloads"),
            clear_url=filters.clear_url(url),
            about=_about(found.rows, filters),
            is_bare=not counts["all"] and not filters.clear_url(url),
        )


def _about(rows: list[Pod], filters: ListFilters) -> str:
    if not rows:
        return ""
    if filters.workload:
        return f"of {rows[0].workload.kind} {rows[0].workload.name}"
    return f"of request {rows[0].gpr.name}" if filters.gpr and rows[0].gpr else ""


def _shown(known: QuerySet[Pod, Pod], filters: ListFilters) -> QuerySet[Pod, Pod]:
    rows = _within(known.filter(pods_in(filters.view) if filters.view else Q(gone_at=None)), filters)
    return rows.filter(pods_matching(filters.q)) if filters.q else rows


def _within(rows: QuerySet[Pod, Pod], filters: ListFilters) -> QuerySet[Pod, Pod]:
    if filters.cluster:
        rows = rows.filter(cluster__name=filters.cluster)
    for name in ("workload", "gpr"):
        if given := getattr(filters, name):
            id_ = id_of(given)
            rows = rows.filter(**{name: id_}) if id_ else rows.none()
    return rows


def _counts(rows: QuerySet[Pod, Pod]) -> dict[str, Any]:
    there = Q(gone_at=None)
    by_view = {str(view): Count("pk", filter=pods_in(view)) for view in PodView}
    by_hold = {f"hold_{hold.value}": Count("pk", filter=there & Q(hold=hold)) for hold in HOLDS}
    whole: Any = rows.select_related(None).order_by()
    counted: dict[str, Any] = whole.aggregate(
        all=Count("pk"),
        there=Count("pk", filter=there),
        gpus=Sum("gpu_count", filter=pods_in(PodView.RUNNING), default=0),
        **by_view,
        **by_hold,
    )
    return counted


def _facts(counts: dict[str, Any], url: str, filters: ListFilters) -> list[Fact]:
    held_back = url_with(url, filters.in_url, view=PodView.HELD_BACK)

    def fact(label: str, hold: Hold) -> Fact:
        count = counts[f"hold_{hold.value}"]
        return Fact(label, words.number(count), url=held_back, tone="bad" if count and hold is Hold.IMAGE else "")

    return [
        Fact("Running", words.number(counts[PodView.RUNNING]), url=url_with(url, filters.in_url, view=PodView.RUNNING)),
        Fact("Their GPUs", words.number(counts["gpus"])),
        fact("Wait for a box", Hold.GATE),
        fact("Not placed yet", Hold.SCHEDULER),
        fact("No image", Hold.IMAGE),
        fact("Starting, or failing to", Hold.CONTAINER),
    ]


def render_pods(request: PageRequest, portal: Portal) -> HttpResponse:
    parts = {"rows": "components/workloads/pod_rows.html", "facts": "components/workloads/pod_facts.html"}
    template = parts.get(request.GET.get("part", ""), f"{portal.name}/workloads/pods.html")
    return portal.render(request, template, nav="workloads", table=PodTable.build(request, portal))


def pods_csv(request: PageRequest, _: Portal) -> StreamedText:
    rows = _shown(pods_visible_to(request.user), ListFilters.of(request, VIEWS))
    return list_csv(rows, ordering=ORDER, columns=CSV_COLUMNS, cells=_cells, name="pods")


def _cells(pod: Pod) -> Sequence[Cell]:
    workload = pod.workload
    return [
        *(pod.name, pod.place, workload.namespace, workload.slice.name, pod.cluster.name, state_of(pod)[1], pod.why),
        *(workload.name, workload.kind, pod.gpr.name if pod.gpr else "", pod.node, pod.gpu_count, pod.restarts),
        *(pod.created_at, pod.started_at, pod.gone_at),
    ]
