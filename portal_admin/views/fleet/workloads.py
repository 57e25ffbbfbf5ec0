from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, admin_only
from portal_shared.parts.portals import ADMIN
from portal_shared.parts.workloads.detail import render_workload
from portal_shared.parts.workloads.listing import render_workloads
from portal_shared.parts.workloads.pods import render_pods


@require_GET
@admin_only
def workloads(request: PageRequest) -> HttpResponse:
    return render_workloads(request, ADMIN, admin_shell(request, page="workloads"))


@require_GET
@admin_only
def workload(request: PageRequest, pk: UUID) -> HttpResponse:
    return render_workload(request, ADMIN, admin_shell(request, page="workloads"), pk)


@require_GET
@admin_only
def pods(request: PageRequest) -> HttpResponse:
    return render_pods(request, ADMIN, admin_shell(request, page="workloads"))
