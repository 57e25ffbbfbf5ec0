"""Serves the pages of templates of a workspace."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.policy import Verb, may
from core.errors import NotFound
from gpr.models import GprTemplate
from gpr.requests.selectors import template_for
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.parts.templates.pages import Home
from portal_shared.parts.templates.views import change_in, create_in, delete_in, render_templates, switch_in
from portal_shared.shell import Shell
from portal_user.pages.requests.listing import may_create
from slices.models import Slice
from slices.selectors import slice_for


@require_GET
@signed_in
def templates(request: PageRequest, slice: str) -> HttpResponse:
    return render_templates(request, _home(request, slice_for(request.user, slice)))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def create(request: PageRequest, slice: str) -> HttpResponse:
    return create_in(request, _home(request, slice_for(request.user, slice, verb=Verb.MANAGE)))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def change(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    return change_in(request, *_template(request, slice, pk))


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def switch(request: PageRequest, slice: str, pk: UUID, switch: str) -> HttpResponse:
    return switch_in(request, *_template(request, slice, pk), switch)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def delete(request: PageRequest, slice: str, pk: UUID) -> HttpResponse:
    return delete_in(request, *_template(request, slice, pk))


def _home(request: PageRequest, slice_: Slice) -> Home:
    may_use = may_create(request, slice_)
    return Home(
        slice_,
        shell_of=lambda request: Shell.user(request, page="templates", slice_=slice_, may_create=may_use),
        may_use=may_use,
        may_change=request.may_write and may(request.user, Verb.MANAGE, slice_),
    )


def _template(request: PageRequest, slice: str, pk: UUID) -> tuple[Home, GprTemplate]:
    slice_ = slice_for(request.user, slice)
    template = template_for(request.user, pk, slice_=slice_, write=True)
    if template.slice is None:  # an administrator changes it on the page of the platform's
        raise NotFound("template")
    return _home(request, slice_), template
