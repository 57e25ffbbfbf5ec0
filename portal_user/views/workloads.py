from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from portal_shared.access import PageRequest, signed_in
from portal_shared.parts.portals import USER
from portal_shared.parts.workloads.detail import render_workload
from portal_shared.parts.workloads.listing import render_workloads
from portal_shared.parts.workloads.pods import render_pods
from portal_shared.shell import Shell


@require_GET
@signed_in
def workloads(request: PageRequest) -> HttpResponse:
    return render_workloads(request, USER, Shell.user(request, page="workloads"))


@require_GET
@signed_in
def workload(request: PageRequest, pk: UUID) -> HttpResponse:
    return render_workload(request, USER, Shell.user(request, page="workloads"), pk)


@require_GET
@signed_in
def pods(request: PageRequest) -> HttpResponse:
    return render_pods(request, USER, Shell.user(request, page="workloads"))
