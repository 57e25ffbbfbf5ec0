from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from core.errors import Conflict, NotFound, StaleState
from gpr.replacement.services import boxes_replace
from inventory.models import Node, Reservation, ReservationState
from inventory.selectors import with_holders
from inventory.services.nodes import node_cordon, node_uncordon
from inventory.services.reservations import node_force_release
from portal_admin.forms import ForceReleaseForm, PlainForm, ReasonForm
from portal_admin.pages.fleet.inventory import InventoryPage
from portal_admin.pages.fleet.node import NodePage, node_known
from portal_admin.pages.nav import admin_shell
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.fields import rebound
from portal_shared.forms.questions import UNPROCESSABLE, Question, ask, decide, sent
from portal_shared.toasts import done

TOPICS = ("gpus", "queue", "schedule")


@require_GET
@admin_only
def inventory(request: PageRequest) -> HttpResponse:
    return show(request, InventoryPage.build(request), "inventory/page", rows="inventory/rows")


@require_GET
@admin_only
def node(request: PageRequest, pk: UUID) -> HttpResponse:
    return show(request, NodePage.build(request, pk), "inventory/node", head="inventory/node_head", rows="inventory/node_body")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def cordon(request: PageRequest, pk: UUID) -> HttpResponse:
    found = node_known(request.user, pk)
    text = "Nothing new starts on it. Running requests continue to their end; planned ones start elsewhere."
    question = _question(request, found, ReasonForm(sent(request)), "cordon", f"Set {found.name} aside?", "Set aside", text)
    if found.cordoned_at is not None:
        question = replace(question, closed=f"{found.name} is set aside already: nothing new starts on it any more.")

    def action(why: str) -> str:
        node_cordon(node=found, actor=request.user, why=why, now=request.now)
        return f"{found.name} is set aside"

    return decide(request, question, action, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def uncordon(request: PageRequest, pk: UUID) -> HttpResponse:
    found = node_known(request.user, pk)
    why = f"It was set aside: {found.cordon_reason}. " if found.cordon_reason else ""
    text = f"{why}Requests may start on it again."
    question = _question(request, found, PlainForm(sent(request)), "uncordon", f"Use {found.name} again?", "Use again", text)
    closed = "" if found.cordoned_at else f"{found.name} is not set aside any more."

    def action() -> str:
        node_uncordon(node=found, actor=request.user, now=request.now)
        return f"{found.name} is in use again"

    return decide(request, replace(question, is_plain=True, closed=closed), action, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def replace_node(request: PageRequest, pk: UUID) -> HttpResponse:
    found = node_known(request.user, pk)
    text = (
        "Running requests get another node, which is checked and opened first; then this one is set aside, closed and drained. "
        "Ends and promises do not change. The members see your reason."
    )
    question = _question(request, found, ReasonForm(sent(request)), "replace-node", f"Replace {found.name}?", "Replace", text)

    def action(why: str) -> str:
        boxes_replace(node=found, actor=request.user, why=why, now=request.now)
        return f"A spare for {found.name} is being prepared"

    return decide(request, question, action, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def force_release(request: PageRequest, pk: UUID) -> HttpResponse:
    found = node_known(request.user, pk)
    held = list(with_holders(Reservation.objects.filter(node=found, state=ReservationState.HELD)).order_by("pk"))
    if not held:
        raise Conflict(f"Nothing holds {found.name} any more: there is nothing to release.")
    shown = {"reservations": " ".join(str(row.pk) for row in held)}
    if request.method == "GET":
        return ask(request, _force_question(request, found, held, ForceReleaseForm(initial=shown)))
    form = ForceReleaseForm(request.POST)
    is_old = form.has_error("reservations")
    if form.is_valid():
        given = form.cleaned_data
        try:
            node_force_release(node=found, reservation_ids=given["reservations"], actor=request.user, why=given["why"], now=request.now)
            return done(request, f"{found.name} is free", back_url=reverse("admin-node", args=[pk]), topics=TOPICS)
        except (Conflict, NotFound):
            is_old = True
    if not is_old:
        return ask(request, _force_question(request, found, held, form), status=UNPROCESSABLE)
    # Another box has come since, or the form is invalid: ask again about the present holders.
    changed = StaleState(f"Other requests hold {found.name} than you were shown. Read below which would lose it now, and decide again.")
    question = replace(_force_question(request, found, held, rebound(form, **shown)), refused=changed.title, refused_why=changed.detail)
    return ask(request, question, status=changed.status)


def _force_question(request: PageRequest, node: Node, held: list[Reservation], form: forms.Form) -> Question:
    whom = ", ".join(f"{row.gpr.name} of {row.slice.name}" for row in held)
    text = f"{whom} would lose it at once, and the next request may start. Do this only if no pod of it runs there: EGS does not check."
    return _question(request, node, form, "force-release", f"Release {node.name} by force?", "Force release", text)


def _question(request: PageRequest, node: Node, form: forms.Form, name: str, title: str, verb: str, text: str) -> Question:
    return Question(
        title=title,
        text=text,
        verb=f"{verb}: {node.name}",
        url=reverse(f"admin-{name}", args=[node.pk]),
        back_url=reverse("admin-node", args=[node.pk]),
        form=form,
        shell=admin_shell(request, page="inventory"),
    )
