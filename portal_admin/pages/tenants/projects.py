"""Shows projects and their workspaces: who runs them, when they end, and what archiving or removing one would end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, Prefetch, Q
from django.urls import reverse

from core.pages import words
from core.pages.parts import ListFoot
from core.pages.table import RowGroup
from gpr.closing.services import WAITING
from gpr.models import PROVISIONED, Gpr
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell
from slices.models import Life, Project, ProjectAdmin, Slice


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """`mark` is None for the project itself. Empty URLs: not possible now."""

    id: UUID
    mark: Mark | None
    name: str
    people: str
    people_url: str
    life: str
    note: str
    ends_at: datetime | None
    runs: int
    waits: int
    add_url: str = ""
    take_url: str = ""
    end_url: str = ""
    archive_url: str = ""
    remove_url: str = ""
    restore_url: str = ""


@dataclass(frozen=True, slots=True)
class ProjectsPage:
    shell: Shell
    groups: tuple[RowGroup[OwnerRow], ...]
    foot: ListFoot
    url: str  # of its fragment
    with_removed_url: str
    read_only: str

    @classmethod
    def build(cls, request: PageRequest) -> ProjectsPage:
        url, shows_removed = reverse("admin-projects"), request.GET.get("removed") == "1"
        filters = {"removed": "1"} if shows_removed else {}
        shown = Q() if shows_removed else ~Q(life=Life.REMOVED)
        slices = (
            Slice.objects.filter(shown)
            .annotate(people_count=Count("memberships", filter=Q(memberships__user__is_service=False)))
            .order_by("name")
        )
        admins = ProjectAdmin.objects.select_related("user")
        projects = Project.objects.filter(shown).prefetch_related(Prefetch("slices", slices), Prefetch("admins", admins))
        found = page_of(request, projects, ordering=("name", "id"))
        counts = _counts([slice_.pk for project in found.rows for slice_ in project.slices.all()])
        return cls(
            shell=admin_shell(request, page="projects"),
            groups=tuple(_group(number, project, counts) for number, project in enumerate(found.rows)),
            foot=foot_of(found, url, filters),
            url=url_with(url, {**filters, "cursor": request.GET.get("cursor", ""), "part": "rows"}),
            with_removed_url="" if shows_removed else url_with(url, {"removed": "1"}),
            read_only=why_not_write(request),
        )


def _counts(slice_ids: Sequence[UUID]) -> Mapping[UUID, tuple[int, int]]:
    """Returns requests that hold nodes and that wait. Runs one query."""
    rows = Gpr.objects.filter(slice__in=slice_ids, state__in=[*PROVISIONED, *WAITING]).values("slice")
    counted = rows.annotate(runs=Count("pk", filter=Q(state__in=PROVISIONED)), waits=Count("pk", filter=Q(state__in=WAITING))).order_by()
    found: dict[UUID, tuple[int, int]] = defaultdict(lambda: (0, 0))
    found.update({row["slice"]: (row["runs"], row["waits"]) for row in counted})
    return found


def _group(number: int, project: Project, counts: Mapping[UUID, tuple[int, int]]) -> RowGroup[OwnerRow]:
    slices = [_slice_row(slice_, counts[slice_.pk]) for slice_ in project.slices.all()]
    runs, waits = sum(row.runs for row in slices), sum(row.waits for row in slices)
    note = words.plural(len(slices), "workspace")
    return RowGroup(f"projects-{number}", project.name, (_project_row(project, runs, waits), *slices), note=note)


def _project_row(project: Project, runs: int, waits: int) -> OwnerRow:
    names = [row.user.name for row in project.admins.all()]
    return OwnerRow(
        id=project.pk,
        mark=None,
        name=project.name,
        people=f"run by {', '.join(names)}" if names else "no administrator of its own",
        people_url="",
        life=project.get_life_display(),
        note=_note(project),
        ends_at=project.ends_at if project.is_open else None,
        runs=runs,
        waits=waits,
        add_url=reverse("admin-project-admin-add", args=[project.pk]) if project.is_open else "",
        take_url=reverse("admin-project-admin-remove", args=[project.pk]) if names else "",
        **dict(_ways(project, "admin-project")),
    )


def _slice_row(slice_: Slice, counts: tuple[int, int]) -> OwnerRow:
    people_count: int = slice_.people_count  # type: ignore[attr-defined]
    return OwnerRow(
        id=slice_.pk,
        mark=Mark.of(slice_),
        name=slice_.name,
        people=words.plural(people_count, "member"),
        people_url=reverse("workspace-people", args=[slice_.name]),
        life=slice_.get_life_display(),
        note=_note(slice_),
        ends_at=slice_.ends_at if slice_.is_open else None,
        runs=counts[0],
        waits=counts[1],
        **dict(_ways(slice_, "admin-slice")),
    )


def _ways(owner: Project | Slice, route: str) -> Iterator[tuple[str, str]]:
    if owner.is_open:
        yield "end_url", reverse(f"{route}-end", args=[owner.pk])
        yield "archive_url", reverse(f"{route}-archive", args=[owner.pk])
    if owner.life == Life.ARCHIVED:
        yield "restore_url", reverse(f"{route}-restore", args=[owner.pk])
    if owner.life != Life.REMOVED:
        yield "remove_url", reverse(f"{route}-remove", args=[owner.pk])


def _note(owner: Project | Slice) -> str:
    if owner.is_open:
        return ""
    return "" if owner.settled_at else "what runs goes on" if not owner.is_drained else "what runs is being ended"
