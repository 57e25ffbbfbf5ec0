from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.policy import Verb
from core.errors import EgsError, NotAllowed, NotFound
from gpr.models import GprTemplate
from gpr.requests.selectors import template_for
from gpr.templates.services import template_change, template_create, template_delete
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.forms.questions import UNPROCESSABLE, decide, sent
from portal_shared.toasts import toast
from portal_user.forms import TemplateForm
from portal_user.pages.templates import SWITCHES, TemplatePage, TemplatesPage, delete_question, form_of, switch_question
from slices.models import Slice
from slices.selectors import slice_for

TOPICS = ("gpr",)


@require_GET
@signed_in
def templates(request: PageRequest, slice: str) -> HttpResponse:
    """`?part=list`: the fragment."""
    page = TemplatesPage.build(request, slice_for(request.user, slice))
    template = "user/templates/list.html" if request.GET.get("part") == "list" else "user/templates/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def create(request: PageRequest, slice: str) -> HttpResponse:
    slice_ = slice_for(request.user, slice, verb=Verb.MANAGE)

    def make(form: TemplateForm) -> GprTemplate:
        return template_create(slice_=slice_, change=form.change(), actor=request.user, now=request.now)

    return _fill_in(request, slice_, None, make)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def change(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    template = _template(request, slice, pk)

    def alter(form: TemplateForm) -> GprTemplate:
        return template_change(template=template, change=form.change(), actor=request.user, now=request.now)

    return _fill_in(request, template.slice, template, alter)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def switch(request: PageRequest, slice: str, pk: UUID, switch: str) -> HttpResponse:
    template = _template(request, slice, pk)
    if switch not in SWITCHES:
        raise NotFound("page")

    def turn() -> str:
        template_change(template=template, change=SWITCHES[switch].change, actor=request.user, now=request.now)
        return f"{template.name} {SWITCHES[switch].done}"

    return decide(request, switch_question(request, template, switch, sent(request)), turn, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def delete(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    template = _template(request, slice, pk)

    def remove() -> str:
        template_delete(template=template, actor=request.user, now=request.now)
        return f"Template {template.name} is deleted"

    return decide(request, delete_question(request, template, sent(request)), remove, topics=TOPICS)


def _template(request: PageRequest, slice: str, pk: UUID) -> GprTemplate:
    return template_for(request.user, pk, slice_=slice_for(request.user, slice), write=True)


def _fill_in(
    request: PageRequest, slice_: Slice, template: GprTemplate | None, store: Callable[[TemplateForm], GprTemplate]
) -> HttpResponse:
    form = form_of(slice_, template, sent(request))
    if form.is_bound and form.is_valid():
        try:
            toast(request, f"Template {store(form).name} saved")
            return HttpResponseRedirect(reverse("templates", args=[slice_.name]))
        except (NotFound, NotAllowed):
            raise
        except EgsError as error:
            form.refuse(error)
    page = TemplatePage.build(request, slice_, template, form)
    status = UNPROCESSABLE if form.is_bound else 200
    return render(request, "user/templates/template.html", {"page": page, "shell": page.shell, "now": request.now}, status=status)
