"""Takes decisions about a GPR, with previews."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from core.errors import EgsError
from gpr.models import Gpr
from gpr.queue.moves import MoveTo
from gpr.queue.previews import preview_approval, preview_eviction, preview_move, preview_priority, preview_withdrawal
from portal_admin.actions import APPROVE, EVICT, MOVE, PRIORITY, REJECT, AdminAction
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.question import Effects, about, own_of_approval, own_of_eviction, own_of_priority, own_of_rejection
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import Question, decide_on


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def priority(request: PageRequest, pk: UUID) -> HttpResponse:
    return _decide(request, pk, PRIORITY)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def move(request: PageRequest, pk: UUID) -> HttpResponse:
    return _decide(request, pk, MOVE)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def evict(request: PageRequest, pk: UUID) -> HttpResponse:
    return _decide(request, pk, EVICT)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def reject(request: PageRequest, pk: UUID) -> HttpResponse:
    return _decide(request, pk, REJECT)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def approve(request: PageRequest, pk: UUID) -> HttpResponse:
    return _decide(request, pk, APPROVE)


def _decide(request: PageRequest, pk: UUID, action: AdminAction) -> HttpResponse:
    def question_of(gpr: Gpr, form: forms.Form) -> Question:
        return _question(request, action, gpr, form)

    return decide_on(request, pk, action, question_of, topics=("queue", "schedule"))


def _question(request: PageRequest, action: AdminAction, gpr: Gpr, form: forms.Form) -> Question:
    title, verb = _WORDS[action.name]
    chosen = _chosen(form, action.live_field)
    return Question(
        title=title.format(name=gpr.name),
        text=about(gpr),
        verb=verb.format(name=gpr.name),
        url=reverse(f"admin-{action.name}", args=[gpr.pk]),
        back_url=reverse("admin-inspect", args=[gpr.pk]),
        form=form,
        shell=admin_shell(request, page="queue"),
        is_plain=not action.is_stop,
        effects=_effects(request, action, gpr, chosen) if action.suits(gpr) else None,
        is_live=bool(action.live_field),
    )


_WORDS = {
    "priority": ("Set the priority of {name}?", "Set priority"),
    "move": ("Move {name} in the queue?", "Move"),
    "approve": ("Approve {name}?", "Approve {name}"),
    "reject": ("Reject {name}?", "Reject {name}"),
    "evict": ("Evict {name}?", "Evict {name}"),
}


def _chosen(form: forms.Form, name: str) -> Any:
    """The value for the preview; None if it is missing or invalid."""
    if not name:
        return None
    if not form.is_bound:
        return form.get_initial_for_field(form.fields[name], name)
    form.is_valid()
    return form.cleaned_data.get(name)


def _effects(request: PageRequest, action: AdminAction, gpr: Gpr, chosen: Any) -> Effects | None:
    given: dict[str, Any] = {"gpr": gpr, "now": request.now}
    if action.live_field and chosen is None:
        return None
    if action is PRIORITY:
        preview = preview_priority(**given, priority=chosen)
        return Effects.of(own_of_priority(preview, request), preview)
    if action is MOVE:
        return _effects_of_move(request, given, MoveTo(chosen))
    if action is EVICT:
        preview = preview_eviction(**given)
        return Effects.of(own_of_eviction(gpr, preview, request), preview)
    if action is APPROVE:
        preview = preview_approval(**given)
        return Effects.of(own_of_approval(preview, request), preview)
    preview = preview_withdrawal(**given)
    return Effects.of(own_of_rejection(gpr), preview)


def _effects_of_move(request: PageRequest, given: dict[str, Any], to: MoveTo) -> Effects:
    try:
        preview = preview_move(**given, to=to)
    except EgsError as error:
        return Effects(error.detail, (), "")
    return Effects.of(own_of_priority(preview, request), preview)
