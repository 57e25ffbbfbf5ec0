from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, admin_only
from portal_shared.parts.fleet_map import render_map
from portal_shared.parts.gpu_courses import render_comparison, render_gpu
from portal_shared.parts.gpus import render_table
from portal_shared.parts.portals import ADMIN


@require_GET
@admin_only
def gpus(request: PageRequest) -> HttpResponse:
    return render_table(request, ADMIN, admin_shell(request, page="gpus"))


@require_GET
@admin_only
def gpu(request: PageRequest, pk: UUID) -> HttpResponse:
    return render_gpu(request, ADMIN, admin_shell(request, page="gpus"), pk)


@require_GET
@admin_only
def gpu_map(request: PageRequest) -> HttpResponse:
    return render_map(request, ADMIN, admin_shell(request, page="gpus"))


@require_GET
@admin_only
def compare(request: PageRequest) -> HttpResponse:
    return render_comparison(request, ADMIN, admin_shell(request, page="gpus"))
