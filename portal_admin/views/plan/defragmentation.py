"""Proposals to make room, their approval, and the question about a hypothetical booking."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.policy import Verb
from core.errors import Conflict, EgsError, InvalidInput, StaleState
from gpr.defragmentation.selectors import RoomAnswer, Suggestion, WantedRoom, room_question, suggestion_for
from gpr.defragmentation.services import gpr_make_room
from gpr.models import Gpr
from gpr.requests.selectors import gpr_for
from inventory.selectors import cluster_for, clusters_visible_to
from portal_admin.forms import ApprovalForm, BookingQuestionForm
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.defragmentation import BookingQuestionPage, DefragmentationPage, effects_of
from portal_admin.pages.plan.question import about
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.fields import errors_placed, rebound
from portal_shared.forms.questions import UNPROCESSABLE, Question, ask
from portal_shared.forms.refusals import refusal_of
from portal_shared.toasts import done

TOPICS = ("defragmentation", "queue", "schedule")
GONE = "This proposal no longer exists: the request starts about as soon without it, or the boxes in its way may not be moved."


@require_GET
@admin_only
def defragmentation(request: PageRequest) -> HttpResponse:
    return show(request, DefragmentationPage.build(request), "defragmentation/page", rows="defragmentation/rows")


@require_GET
@admin_only
def booking(request: PageRequest) -> HttpResponse:
    """Takes a GET form, since it changes nothing."""
    names = clusters_visible_to(request.user).order_by("name").values_list("name", flat=True)
    form = BookingQuestionForm(request.GET if "nodes" in request.GET else None, clusters=list(names))
    told, refused = _answer(request, form)
    page = BookingQuestionPage.build(request, form, told, refused)
    return show(request, page, "defragmentation/booking", status=UNPROCESSABLE if form.errors or refused else 200)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def apply(request: PageRequest, pk: UUID) -> HttpResponse:
    gpr = gpr_for(request.user, pk, verb=Verb.CHANGE)
    if request.method == "GET":
        made = _suggestion(request, gpr)
        return ask(request, _question(request, gpr, made, ApprovalForm(initial={"fingerprint": made.fingerprint})))
    form = ApprovalForm(request.POST)
    if not form.is_valid():
        return _again(request, gpr, form, status=UNPROCESSABLE)
    try:
        gpr_make_room(gpr=gpr, actor=request.user, now=request.now, **form.cleaned_data)
    except StaleState as error:
        return _again(request, gpr, form, status=error.status, refused=error)
    text = f"{gpr.name} has room: the requests that move have notice"
    return done(request, text, back_url=reverse("admin-defragmentation"), topics=TOPICS)


def _answer(request: PageRequest, form: BookingQuestionForm) -> tuple[RoomAnswer | None, str]:
    """Returns the answer, or why there is none."""
    if not form.is_bound or not form.is_valid():
        return None, ""
    data: dict[str, Any] = form.cleaned_data
    cluster = cluster_for(request.user, data["cluster"]) if data["cluster"] else None
    given = {name: data[name] for name in ("shape", "nodes", "gpus_per_node", "starts_at", "priority")}
    try:
        return room_question(WantedRoom(**given, duration_s=data["duration"], cluster=cluster), now=request.now), ""
    except InvalidInput as error:
        errors_placed(form, error)
        return None, ""
    except EgsError as error:
        return None, refusal_of(error).detail


def _suggestion(request: PageRequest, gpr: Gpr) -> Suggestion:
    """Raises Conflict if there is none any more."""
    made = suggestion_for(gpr, now=request.now)
    if made is None:
        raise Conflict(GONE)
    return made


def _again(request: PageRequest, gpr: Gpr, form: forms.Form, *, status: int, refused: EgsError | None = None) -> HttpResponse:
    """Ask again about the current proposal."""
    made = _suggestion(request, gpr)
    question = _question(request, gpr, made, rebound(form, fingerprint=made.fingerprint))
    return ask(request, question.refused_by(refused) if refused else question, status=status)


def _question(request: PageRequest, gpr: Gpr, made: Suggestion, form: forms.Form) -> Question:
    return Question(
        title=f"Make room for {gpr.name}?",
        text=f"{about(gpr)}. The requests below get notice, and wait again for the rest of their time.",
        verb="Make room",
        url=reverse("admin-defragmentation-apply", args=[gpr.pk]),
        back_url=reverse("admin-defragmentation"),
        form=form,
        shell=admin_shell(request, page="queue"),
        keep="Cancel",
        effects=effects_of(gpr, made, request),
    )
