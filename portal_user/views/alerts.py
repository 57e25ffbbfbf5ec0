from __future__ import annotations

from typing import Final
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_http_methods

from observability.alerts.selectors import firing_count
from portal_shared.access import PageRequest, needs_write, signed_in
from portal_shared.parts.alerts import views
from portal_shared.parts.alerts.names import AlertPortal
from portal_shared.shell import NavCount, Shell

PORTAL: Final = AlertPortal(is_admin=False, prefix="", gpr="gpr", gpu="gpu", shell_of=lambda request, page: Shell.user(request, page=page))


@require_GET
@signed_in
def alerts(request: PageRequest) -> HttpResponse:
    return views.render_alerts(request, PORTAL)


@require_GET
@signed_in
def alert(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.render_alert(request, PORTAL, pk)


@require_GET
@signed_in
def rules(request: PageRequest) -> HttpResponse:
    return views.render_rules(request, PORTAL)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def acknowledge(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.acknowledge(request, PORTAL, pk)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def silence(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.silence(request, PORTAL, pk)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def end_silence(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.end_silence(request, PORTAL, pk)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def create_rule(request: PageRequest) -> HttpResponse:
    return views.create_rule(request, PORTAL)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def change_rule(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.change_rule(request, PORTAL, pk)


@require_http_methods(["GET", "POST"])
@signed_in
@needs_write
def delete_rule(request: PageRequest, pk: UUID) -> HttpResponse:
    return views.delete_rule(request, PORTAL, pk)


@require_GET
@signed_in
def count(request: PageRequest) -> HttpResponse:
    """The count in the navigation of both portals."""
    return render(request, "components/shell/nav_count.html", {"count": NavCount.of_alerts(firing_count(request.user))})
