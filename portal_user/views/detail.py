from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from core.errors import NotFound
from gpr.requests.selectors import gpr_for
from portal_shared.access import PageRequest, signed_in
from portal_user.pages.requests.detail import PARTS, GprDetailPage
from portal_user.pages.requests.use import box_job


@require_GET
@signed_in
def gpr(request: PageRequest, pk: UUID) -> HttpResponse:
    part = request.GET.get("part", "")
    page = GprDetailPage.build(request, pk, part=part if part in PARTS else "")
    template = "user/gpr/page.html" if page.shell else f"user/gpr/{part}.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_GET
@signed_in
def job(request: PageRequest, pk: UUID) -> HttpResponse:
    found = box_job(gpr_for(request.user, pk))
    if found is None:
        raise NotFound("Job")
    headers = {"Content-Disposition": f'attachment; filename="{found.name}.yaml"'}
    return HttpResponse(found.manifest, content_type="application/yaml", headers=headers)
