from __future__ import annotations

from typing import Final
from uuid import UUID

from django.http import HttpResponse
from django.views.decorators.http import require_GET, require_http_methods

from portal_admin.pages.nav import admin_shell
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.parts.alerts import views
from portal_shared.parts.alerts.names import AlertPortal

PORTAL: Final = AlertPortal(
    is_admin=True,
    prefix="admin-",
    gpr="admin-inspect",
    gpu="admin-gpu",
    shell_of=lambda request, page: admin_shell(request, page=page),
)


@require_GET
@admin_only
def alerts(request: PageRequest) -> HttpResponse:
    return views.render_alerts(request, PORTAL)


@require_GET
@admin_only
def alert(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.render_alert(request, PORTAL, pk)


@require_GET
@admin_only
def rules(request: PageRequest) -> HttpResponse:
    return views.render_rules(request, PORTAL)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def acknowledge(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.acknowledge(request, PORTAL, pk)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def silence(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.silence(request, PORTAL, pk)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def end_silence(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.end_silence(request, PORTAL, pk)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def create_rule(request: PageRequest) -> HttpResponse:
    return views.create_rule(request, PORTAL)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def change_rule(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.change_rule(request, PORTAL, pk)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def delete_rule(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.delete_rule(request, PORTAL, pk)
