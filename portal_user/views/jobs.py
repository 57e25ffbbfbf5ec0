from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from portal_shared.access import PageRequest, signed_in
from portal_user.pages.jobs import PARTS, JobPage, JobsPage
from slices.selectors import slice_for


@require_GET
@signed_in
def jobs(request: PageRequest, slice: str) -> HttpResponse:
    """`?part=list`: the fragment."""
    page = JobsPage.build(request, slice_for(request.user, slice))
    template = "user/jobs/list.html" if request.GET.get("part") == "list" else "user/jobs/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_GET
@signed_in
def job(request: PageRequest, pk: UUID) -> HttpResponse:
    asked = request.GET.get("part", "")
    part = asked if asked in PARTS else ""
    page = JobPage.build(request, pk, part=part)
    return render(request, f"user/jobs/{part or 'job'}.html", {"page": page, "shell": page.shell, "now": request.now})
