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
from gpr.queue.decision_previews import Act, PossibleDecision
from portal_admin.actions import APPROVE, EVICT, MOVE, PRIORITY, REJECT, AdminAction
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.question import Effects, about
from portal_shared.access import PageRequest, admin_only, moment_formatter, needs_write
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
    """Returns the value for the preview; None if it is missing or invalid."""
    if not name:
        return None
    if not form.is_bound:
        return form.get_initial_for_field(form.fields[name], name)
    form.is_valid()
    return form.cleaned_data.get(name)


def _effects(request: PageRequest, action: AdminAction, gpr: Gpr, chosen: Any) -> Effects | None:
    if action.live_field and chosen is None:
        return None
    decision = PossibleDecision(act=Act(action.name), **({action.live_field: chosen} if action.live_field else {}))
    try:
        preview = decision.preview(gpr, actor=request.user, now=request.now)
    except EgsError as error:
        return Effects(error.detail, (), "")
    return Effects.of(decision.sentence(preview, now=request.now, format_time=moment_formatter(request)), preview)
