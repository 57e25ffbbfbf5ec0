from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Prefetch
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from core.errors import EgsError
from gpr.queue.previews import preview_maintenance
from inventory.models import MaintenanceWindow, Node
from inventory.selectors import clusters_visible_to, maintenance_for
from inventory.services.maintenance import window_announce, window_cancel, window_draft
from portal_admin.forms import MaintenanceForm, PlainForm
from portal_admin.pages.fleet.maintenance import MaintenancePage
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.question import Effects
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import Question, decide, sent
from portal_shared.forms.refusals import refusal_of

TOPICS = ("gpus", "queue", "schedule")


@require_GET
@admin_only
def maintenance(request: PageRequest) -> HttpResponse:
    return show(request, MaintenancePage.build(request), "maintenance/page", rows="maintenance/rows")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def announce(request: PageRequest) -> HttpResponse:
    clusters = clusters_visible_to(request.user).order_by("name").prefetch_related(Prefetch("nodes", _nodes()))
    form = MaintenanceForm(sent(request), clusters=list(clusters))

    def action(**given: Any) -> str:
        window = _draft(given, request.now)
        window_announce(window=window, actor=request.user, now=request.now)
        return f"{window.place} is announced as closed"

    return decide(request, _question(request, form), action, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def cancel(request: PageRequest, pk: UUID) -> HttpResponse:
    window = maintenance_for(request.user, pk)

    def action() -> str:
        window_cancel(window=window, actor=request.user, now=request.now)
        return f"{window.place} is not closed any more"

    return decide(request, _cancel_question(request, window), action, topics=TOPICS)


def _nodes() -> Any:
    return Node.objects.filter(gone_at=None).order_by("name")


def _draft(given: Mapping[str, Any], now: datetime) -> MaintenanceWindow:
    """Raises InvalidInput."""
    cluster, node = given["place"]
    times = {name: given[name] for name in ("starts_at", "ends_at", "reason")}
    return window_draft(cluster=cluster, node=node, **times, now=now)


def _question(request: PageRequest, form: MaintenanceForm) -> Question:
    return Question(
        title="Announce maintenance?",
        text="Nothing that overlaps this window will start there. Running requests continue; planned ones start elsewhere or later.",
        verb="Announce maintenance",
        url=reverse("admin-maintenance-announce"),
        back_url=reverse("admin-maintenance"),
        form=form,
        shell=admin_shell(request, page="maintenance"),
        is_plain=True,
        keep="Cancel",
        effects=_effects(form, request.now),
        is_live=True,
    )


def _effects(form: MaintenanceForm, now: datetime) -> Effects | None:
    """Returns None while fields are missing, and the error if the window is invalid."""
    if not form.is_bound or not form.is_valid():
        return None
    try:
        return Effects.of_maintenance(preview_maintenance(window=_draft(form.cleaned_data, now), now=now))
    except EgsError as error:
        return Effects(own=refusal_of(error).detail, shown=(), summary="")


def _cancel_question(request: PageRequest, window: MaintenanceWindow) -> Question:
    return Question(
        title=f"Cancel the maintenance of {window.place[0].lower()}{window.place[1:]}?",
        text="The rest of it opens again at once. Promises that it moved stay as they are; their requests may start earlier.",
        verb="Cancel maintenance",
        url=reverse("admin-maintenance-cancel", args=[window.pk]),
        back_url=reverse("admin-maintenance"),
        form=PlainForm(sent(request)),
        shell=admin_shell(request, page="maintenance"),
        keep="Keep it",
        closed="" if window.is_ahead(request.now) else "It is over or canceled already.",
    )
