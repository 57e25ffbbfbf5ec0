"""Maintenance: what is announced, a new announcement with its preview, and taking one back."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from egs.errors import EgsError, InvalidInput
from egs.pages.access import PageRequest, admin_only, needs_write
from egs.pages.asking import UNPROCESSABLE
from egs.pages.refusals import refusal_of
from egs.pages.toasts import done
from egs.rest.references import one_by_reference
from gpr.previews import preview_maintenance
from inventory.models import MaintenanceWindow
from inventory.selectors import cluster_for, clusters_visible_to, maintenance_for, nodes_visible_to
from inventory.services.maintenance import window_announce, window_cancel, window_draft
from portal_admin.forms import MaintenanceForm, PlainForm, add_errors
from portal_admin.pages.maintenance import MaintenancePage
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.question import Effects, Question
from portal_admin.views.asking import ask
from portal_admin.views.showing import show

TOPICS = ("gpus", "queue", "schedule")


@require_GET
@admin_only
def maintenance(request: PageRequest) -> HttpResponse:
    return show(request, MaintenancePage.build(request), "maintenance", rows="maintenance_rows")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def announce(request: PageRequest) -> HttpResponse:
    """GET asks, with what has been typed already, to see its preview."""
    if request.method == "GET":
        return ask(request, _question(request, _form(request, request.GET if "starts_at" in request.GET else None)))
    form = _form(request, request.POST)
    try:
        window = _draft(request, form)
        if window is None:
            return ask(request, _question(request, form), status=UNPROCESSABLE)
        window_announce(window=window, actor=request.user, now=request.now)
    except EgsError as error:
        return _refused(request, form, error)
    return done(request, f"{window.place} is announced as closed", back_url=reverse("admin-maintenance"), topics=TOPICS)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def cancel(request: PageRequest, pk: UUID) -> HttpResponse:
    window = maintenance_for(request.user, pk)
    if request.method == "GET":
        return ask(request, _cancel_question(request, window))
    window_cancel(window=window, actor=request.user, now=request.now)
    return done(request, f"{window.place} is not closed any more", back_url=reverse("admin-maintenance"), topics=TOPICS)


def _form(request: PageRequest, data: Any) -> MaintenanceForm:
    names = clusters_visible_to(request.user).order_by("name").values_list("name", flat=True)
    return MaintenanceForm(data, clusters=list(names))


def _draft(request: PageRequest, form: MaintenanceForm) -> MaintenanceWindow | None:
    """None where the form has faults. Raises InvalidInput or NotFound."""
    if not form.is_valid():
        return None
    data = form.cleaned_data
    cluster = cluster_for(request.user, data["cluster"])
    nodes = nodes_visible_to(request.user, now=request.now).filter(cluster=cluster)
    node = one_by_reference(nodes, data["node"], what="node") if data["node"] else None
    given = {name: data[name] for name in ("starts_at", "ends_at", "reason")}
    return window_draft(cluster=cluster, node=node, **given, now=request.now)


def _question(request: PageRequest, form: MaintenanceForm) -> Question:
    return Question(
        title="Announce maintenance?",
        text="Nothing starts there that would reach into it. What runs, runs to its end; who is planned there starts elsewhere, or later.",
        verb="Announce maintenance",
        url=reverse("admin-maintenance-announce"),
        back_url=reverse("admin-maintenance"),
        form=form,
        shell=admin_shell(request, page="maintenance"),
        is_plain=True,
        keep="Announce nothing",
        effects=_effects(request, form),
        is_live=True,
    )


def _refused(request: PageRequest, form: MaintenanceForm, error: EgsError) -> HttpResponse:
    if not isinstance(error, InvalidInput):
        return ask(request, _question(request, form).refused_by(error), status=error.status)
    add_errors(form, error)
    return ask(request, _question(request, form), status=UNPROCESSABLE)


def _effects(request: PageRequest, form: MaintenanceForm) -> Effects | None:
    """None while something is missing; why not, where what is typed cannot be."""
    try:
        window = _draft(request, form) if form.is_bound else None
    except EgsError as error:
        return Effects(own=refusal_of(error).detail, shown=(), summary="")
    return Effects.of_maintenance(preview_maintenance(window=window, now=request.now)) if window else None


def _cancel_question(request: PageRequest, window: MaintenanceWindow) -> Question:
    return Question(
        title=f"Cancel the maintenance of {window.place[0].lower()}{window.place[1:]}?",
        text="What is left of it is open again at once. Promises that it moved stay as they are; their requests may start earlier.",
        verb="Cancel maintenance",
        url=reverse("admin-maintenance-cancel", args=[window.pk]),
        back_url=reverse("admin-maintenance"),
        form=PlainForm(),
        shell=admin_shell(request, page="maintenance"),
        keep="Keep it",
    )
