from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from portal_shared.access import PageRequest, signed_in
from portal_shared.parts.fleet_map import render_map
from portal_shared.parts.gpu_courses import render_comparison, render_gpu
from portal_shared.parts.gpus import render_table
from portal_shared.parts.portals import USER
from portal_shared.shell import Shell


@require_GET
@signed_in
def gpus(request: PageRequest) -> HttpResponse:
    return render_table(request, USER, Shell.user(request, page="gpus"))


@require_GET
@signed_in
def gpu(request: PageRequest, pk: UUID) -> HttpResponse:
    return render_gpu(request, USER, Shell.user(request, page="gpus"), pk)


@require_GET
@signed_in
def gpu_map(request: PageRequest) -> HttpResponse:
    return render_map(request, USER, Shell.user(request, page="gpus"))


@require_GET
@signed_in
def compare(request: PageRequest) -> HttpResponse:
    return render_comparison(request, USER, Shell.user(request, page="gpus"))
