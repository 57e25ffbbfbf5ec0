"""Shows requests for workspaces: those that wait first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Case, IntegerField, Value, When
from django.urls import reverse

from core.pages.parts import ListFoot
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.parts.workspace_requests import WorkspaceRequestRow
from portal_shared.shell import Shell
from slices.models import RequestState
from slices.workspace_requests.selectors import workspace_requests_visible_to

ORDER = ("rank", "-created_at", "id")


@dataclass(frozen=True, slots=True)
class WorkspaceRequestsPage:
    shell: Shell
    requests: tuple[WorkspaceRequestRow, ...]
    foot: ListFoot
    url: str
    read_only: str

    @classmethod
    def build(cls, request: PageRequest) -> WorkspaceRequestsPage:
        url = reverse("admin-workspace-requests")
        rank = Case(When(state=RequestState.PENDING, then=Value(0)), default=Value(1), output_field=IntegerField())
        rows: Any = workspace_requests_visible_to(request.user).annotate(rank=rank)
        found = page_of(request, rows, ordering=ORDER)
        return cls(
            shell=admin_shell(request, page="workspace-requests"),
            requests=tuple(WorkspaceRequestRow.of(row) for row in found.rows),
            foot=foot_of(found, url),
            url=url_with(url, {"cursor": request.GET.get("cursor", ""), "part": "rows"}),
            read_only=why_not_write(request),
        )
