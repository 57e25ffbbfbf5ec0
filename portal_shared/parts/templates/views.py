from __future__ import annotations

from collections.abc import Callable

from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from core.errors import EgsError, NotAllowed, NotFound
from gpr.models import GprTemplate
from gpr.templates.services import TemplateChange, template_change, template_create, template_delete
from portal_shared.access import PageRequest
from portal_shared.forms.questions import UNPROCESSABLE, decide, sent
from portal_shared.parts.templates.pages import SWITCHES, Home, TemplatePage, TemplatesPage, delete_question, form_of, switch_question
from portal_shared.toasts import toast

TOPICS = ("gpr",)


def render_templates(request: PageRequest, home: Home) -> HttpResponse:
    """`?part=list` asks for the fragment."""
    page = TemplatesPage.build(request, home)
    template = "components/templates/list.html" if request.GET.get("part") == "list" else "components/templates/page.html"
    return render(request, template, {"page": page, "shell": page.shell, "now": request.now})


def create_in(request: PageRequest, home: Home) -> HttpResponse:
    def make(change: TemplateChange) -> GprTemplate:
        return template_create(slice_=home.slice, change=change, actor=request.user, now=request.now)

    return _fill_in(request, home, None, make)


def change_in(request: PageRequest, home: Home, template: GprTemplate) -> HttpResponse:
    def alter(change: TemplateChange) -> GprTemplate:
        return template_change(template=template, change=change, actor=request.user, now=request.now)

    return _fill_in(request, home, template, alter)


def switch_in(request: PageRequest, home: Home, template: GprTemplate, key: str) -> HttpResponse:
    if key not in SWITCHES:
        raise NotFound("page")

    def turn() -> str:
        template_change(template=template, change=SWITCHES[key].change, actor=request.user, now=request.now)
        return f"{template.name} {SWITCHES[key].done}"

    return decide(request, switch_question(request, home, template, key, sent(request)), turn, topics=TOPICS)


def delete_in(request: PageRequest, home: Home, template: GprTemplate) -> HttpResponse:
    def remove() -> str:
        template_delete(template=template, actor=request.user, now=request.now)
        return f"Template {template.name} is deleted"

    return decide(request, delete_question(request, home, template, sent(request)), remove, topics=TOPICS)


def _fill_in(
    request: PageRequest, home: Home, template: GprTemplate | None, store: Callable[[TemplateChange], GprTemplate]
) -> HttpResponse:
    form = form_of(home, template, sent(request))
    if form.is_bound and form.is_valid():
        try:
            toast(request, f"Template {store(form.change()).name} saved")
            return HttpResponseRedirect(home.url("templates"))
        except (NotFound, NotAllowed):
            raise
        except EgsError as error:
            form.refuse(error)
    page = TemplatePage.build(request, home, template, form)
    status = UNPROCESSABLE if form.is_bound else 200
    return render(request, "components/templates/template.html", {"page": page, "shell": page.shell, "now": request.now}, status=status)
