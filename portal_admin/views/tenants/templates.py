"""Serves the pages of templates of the platform."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.policy import is_platform_admin
from core.rest.references import one_by_id
from gpr.models import GprTemplate
from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.parts.templates.pages import Home
from portal_shared.parts.templates.views import change_in, create_in, delete_in, render_templates


@require_GET
@admin_only
def templates(request: PageRequest) -> HttpResponse:
    return render_templates(request, _home(request))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def create(request: PageRequest) -> HttpResponse:
    return create_in(request, _home(request))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def change(request: PageRequest, pk: UUID) -> HttpResponse:
    return change_in(request, _home(request), _template(pk))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def delete(request: PageRequest, pk: UUID) -> HttpResponse:
    return delete_in(request, _home(request), _template(pk))


def _home(request: PageRequest) -> Home:
    may_change = request.may_write and is_platform_admin(request.user)
    return Home(None, shell_of=lambda request: admin_shell(request, page="templates"), may_use=False, may_change=may_change)


def _template(pk: UUID) -> GprTemplate:
    return one_by_id(GprTemplate.objects.filter(slice=None), pk, what="template")
