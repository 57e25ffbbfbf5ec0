from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods

from core.errors import IllegalTransition
from gpr.jobs.selectors import job_for
from gpr.jobs.services import notebook_open
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_user.pages.jobs import PARTS, JobPage, JobsPage
from portal_user.pages.notebooks import NotebooksPage, OpenPage
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


@require_GET
@signed_in
def notebooks(request: PageRequest, slice: str) -> HttpResponse:
    """`?part=list`: the fragment."""
    page = NotebooksPage.build(request, slice_for(request.user, slice))
    template = "user/notebooks/list.html" if request.GET.get("part") == "list" else "user/notebooks/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def open_notebook(request: PageRequest, pk: UUID) -> HttpResponse:
    """Only POST reveals the token, since a GET may be repeated by browsers and proxies."""
    job = job_for(request.user, pk, notebook=True)
    if request.method == "GET":
        return _show(request, OpenPage.of(request, job))
    try:
        access = notebook_open(job=job, actor=request.user, now=request.now)
    except IllegalTransition as error:
        # Fragments get 200: see portal_shared.questions.ask.
        return _show(request, OpenPage.of(request, job, refused=error.detail), status=200 if request.htmx else error.status)
    return _show(request, OpenPage.of(request, job, access=access))


def _show(request: PageRequest, page: OpenPage, *, status: int = 200) -> HttpResponse:
    template = "user/notebooks/open_dialog.html" if request.htmx else "user/notebooks/open.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now}, status=status)
