from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.policy import Verb
from core.errors import EgsError, IllegalTransition, NotAllowed, NotFound
from gpr.jobs.selectors import job_for
from gpr.jobs.services import TAKES_A_JOB, job_start_in, notebook_open, refuse_others
from gpr.models import Job
from gpr.requests.selectors import gpr_for
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import UNPROCESSABLE, closed
from portal_shared.shell import Shell
from portal_shared.toasts import toast
from portal_user.job_form import BoxJobForm, with_file
from portal_user.pages.jobs import PARTS, BoxJobPage, JobPage, JobsPage
from portal_user.pages.notebooks import NotebooksPage, OpenPage
from slices.selectors import slice_for


@require_GET
@signed_in
def jobs(request: PageRequest, slice: str) -> HttpResponse:
    """`?part=list` asks for the fragment."""
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
    """`?part=list` asks for the fragment."""
    page = NotebooksPage.build(request, slice_for(request.user, slice))
    template = "user/notebooks/list.html" if request.GET.get("part") == "list" else "user/notebooks/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def open_notebook(request: PageRequest, pk: UUID) -> HttpResponse:
    """Only POST reveals the token, since a GET may be repeated by browsers and proxies."""
    job = job_for(request.user, pk, notebook=True)
    refuse_others(job, request.user)
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


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def run_in(request: PageRequest, pk: UUID) -> HttpResponse:
    """Starts a job in the box of a request that is there. `?part=code`: the fragment that shows what it becomes."""
    gpr = gpr_for(request.user, pk, verb=Verb.CHANGE)
    if request.method == "GET":
        if has := Job.objects.filter(gpr=gpr).first():
            return HttpResponseRedirect(reverse("job", args=[has.pk]))
        if gpr.state not in TAKES_A_JOB:
            return closed(request, gpr, "given a job", shell=Shell.user(request, page="jobs", slice_=gpr.slice))
        return _run_in(request, BoxJobForm(gpr=gpr))
    is_question = request.GET.get("part") == "code" or request.POST.get("act") == "code"
    form = BoxJobForm(with_file(request.POST, request.FILES), gpr=gpr, is_question=is_question)
    if is_question or not form.is_valid():
        return _run_in(request, form)
    try:
        made = job_start_in(gpr=gpr, what=form.what(), actor=request.user, now=request.now)
    except (NotFound, NotAllowed):
        raise
    except EgsError as error:
        form.refuse(error)
        return _run_in(request, form)
    toast(request, f"A job is filed in {gpr.name}")
    return HttpResponseRedirect(reverse("job", args=[made.pk]))


def _run_in(request: PageRequest, form: BoxJobForm) -> HttpResponse:
    page = BoxJobPage.build(request, form)
    is_part = request.GET.get("part") == "code"
    status = UNPROCESSABLE if form.is_bound and form.errors and not is_part else 200
    shown = {"page": page, "panel": page.panel, "folds": page.folds, "form": form, "job": page.job}
    context = {**shown, "shell": page.shell, "now": request.now, "is_part": is_part}
    return render(request, "user/jobs/code.html" if is_part else "user/jobs/in_box.html", context, status=status)
