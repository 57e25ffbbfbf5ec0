from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from core.pages import words
from core.words import are, plural
from gpr.models import Gpr
from gpr.supplies.orders import gprs_on
from gpr.supplies.services import order_refuse
from inventory.models import Supply, SupplyOrderState
from inventory.selectors import cluster_for, clusters_visible_to, supply_for, supply_order_for
from inventory.services.supplies import SupplyChange, order_fail, supply_change, supply_create, terms
from portal_admin.forms import ReasonForm, SupplyForm, SupplyTermsForm
from portal_admin.pages.fleet.supplies import SuppliesPage
from portal_admin.pages.nav import admin_shell
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.limit_forms import OptionalReasonForm
from portal_shared.forms.questions import Question, decide, sent

RULES = (
    "Nodes are ordered for workspaces that may order, if a request starts sooner by at least the minimum gain. "
    "EGS keeps the list of orders; your controller reads it through the API and provides the nodes."
)
NAMED = 3
SPANS = {"lead_time": "lead_time_s", "gain": "gain_s"}  # form fields to service fields


@require_GET
@admin_only
def supplies(request: PageRequest) -> HttpResponse:
    return show(request, SuppliesPage.build(request), "supplies/page", rows="supplies/rows")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def create(request: PageRequest) -> HttpResponse:
    def make(cluster: str, **given: Any) -> str:
        made = Supply(cluster=cluster_for(request.user, cluster), **_in_seconds(given))
        return _told(supply_create(supply=made, actor=request.user, now=request.now))

    names = clusters_visible_to(request.user).order_by("name").values_list("name", flat=True)
    question = _question(request, SupplyForm(sent(request), clusters=list(names)), "Add a supply", RULES, "Add supply")
    return _decide(request, replace(question, url=reverse("admin-supply-create"), keep="Add nothing"), make)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def change(request: PageRequest, pk: UUID) -> HttpResponse:
    supply = supply_for(request.user, str(pk))

    def alter(why: str, **given: Any) -> str:
        found = SupplyChange(**_in_seconds(given))  # type: ignore[typeddict-item]
        return _told(supply_change(supply=supply, change=found, actor=request.user, now=request.now, why=why))

    given = {"name": supply.name, "node_count": supply.node_count}
    given |= {name: words.duration_exact(getattr(supply, field)) for name, field in SPANS.items()}
    form = SupplyTermsForm(sent(request), initial=given)
    text = "It applies to later orders; existing orders stay."
    question = _question(request, form, f"Change supply {supply.name} of {supply.cluster.name}?", text, "Change supply")
    return _decide(request, replace(question, url=reverse("admin-supply", args=[pk])), alter)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def enable(request: PageRequest, pk: UUID) -> HttpResponse:
    return _switch(request, pk, "enable", "Nodes may be ordered from it again.", is_enabled=True)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def disable(request: PageRequest, pk: UUID) -> HttpResponse:
    text = "Nothing more is ordered from it. Existing orders stay: cancel them one by one if needed."
    return _switch(request, pk, "disable", text, is_enabled=False)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def cancel_order(request: PageRequest, pk: UUID) -> HttpResponse:
    text = "These requests get no more orders from this supply. Others may: disable the supply to stop all orders."
    return _end_order(request, pk, ("cancel", "Cancel {}?", "Cancel order", text, "The order is canceled"), order_refuse)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def fail_order(request: PageRequest, pk: UUID) -> HttpResponse:
    text = "Nothing is ordered from the supply for the next 15 min."
    return _end_order(request, pk, ("fail", "Mark {} as failed?", "Mark as failed", text, "The order is marked as failed"), order_fail)


def _switch(request: PageRequest, pk: UUID, action: str, text: str, *, is_enabled: bool) -> HttpResponse:
    supply = supply_for(request.user, str(pk))

    def switch(why: str) -> str:
        change = SupplyChange(is_enabled=is_enabled)
        supply_change(supply=supply, change=change, actor=request.user, now=request.now, why=why)
        return f"Supply {supply.name} is {action}d"

    title, verb = f"{action.title()} supply {supply.name} of {supply.cluster.name}?", f"{action.title()} supply"
    question = _question(request, OptionalReasonForm(sent(request)), title, text, verb)
    closed = f"Supply {supply.name} is {action}d already: there is nothing to change." if supply.is_enabled == is_enabled else ""
    url = reverse(f"admin-supply-{action}", args=[pk])
    return _decide(request, replace(question, url=url, is_plain=is_enabled, closed=closed), switch)


def _end_order(request: PageRequest, pk: UUID, said: tuple[str, str, str, str, str], do: Callable[..., None]) -> HttpResponse:
    action, title, verb, text, told = said
    order = supply_order_for(request.user, pk)

    def end(why: str) -> str:
        do(order=order, actor=request.user, why=why, now=request.now)
        return told

    title = title.format(f"the order of a node from {order.supply.name} for {order.gpr.name}")
    question = _question(request, ReasonForm(sent(request)), title, f"{_whom(gprs_on(order))} {text}", verb)
    url = reverse(f"admin-supply-order-{action}", args=[pk])
    closed = "" if order.state == SupplyOrderState.ORDERED else "This order has ended already."
    return _decide(request, replace(question, url=url, is_plain=False, keep="Keep the order", closed=closed), end)


def _whom(gprs: Sequence[Gpr]) -> str:
    if not gprs:
        return "No request is planned on it any more."
    named = [f"{gpr.name} of {gpr.slice.name}" for gpr in gprs[:NAMED]]
    named += [plural(len(gprs) - NAMED, "other")] if len(gprs) > NAMED else []
    *first, last = named
    return f"{', '.join(first)}{' and ' if first else ''}{last} {are(len(gprs))} planned anew, and told why."


def _question(request: PageRequest, form: forms.Form, title: str, text: str, verb: str) -> Question:
    shell = admin_shell(request, page="supplies")
    return Question(title, text, verb, url="", back_url=reverse("admin-supplies"), form=form, shell=shell, is_plain=True)


def _decide(request: PageRequest, question: Question, do: Callable[..., str]) -> HttpResponse:
    return decide(request, question, do, topics=("gpus", "queue"))


def _in_seconds(given: dict[str, Any]) -> dict[str, Any]:
    return {SPANS.get(name, name): value for name, value in given.items()}


def _told(supply: Supply) -> str:
    return f"Supply {supply.name}: {terms(supply)}"
