from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from core.errors import EgsError, NotFound
from gpr.models import Gpr
from gpr.policies.breaches import breaches_after
from portal_admin.forms import InheritForm, TermForm
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.question import Effects
from portal_admin.pages.tenants.policies import AdminPolicyPage, PoliciesPage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import Question, decide, sent
from portal_shared.forms.refusals import refusal_of
from portal_shared.parts.policies import said
from slices.models import Policy
from slices.policies.selectors import TermLine, policy_for, policy_views
from slices.policies.services import policy_change
from slices.policies.terms import TERMS

TOPICS = ("policies", "queue", "gpr")


@require_GET
@admin_only
def policies(request: PageRequest) -> HttpResponse:
    return show(request, PoliciesPage.build(request), "policies/page")


@require_GET
@admin_only
def policy(request: PageRequest, pk: UUID) -> HttpResponse:
    return show(request, AdminPolicyPage.build(request, policy_for(request.user, pk)), "policies/policy", rows="policies/policy_body")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def change(request: PageRequest, pk: UUID, term: str) -> HttpResponse:
    row, line = _line(request, pk, term)
    form = TermForm(sent(request), term=line.term, initial={"value": line.value, "version": row.version})

    def alter(value: Any, why: str, version: int | None) -> str:
        policy_change(policy=row, terms={term: value}, actor=request.user, now=request.now, why=why, version=version)
        return f"{line.term.label} of {row.of}: {said(line.term, value)}"

    text = f"{line.term.help} It is {said(line.term, line.value)} now. It applies to requests from now on; nothing that runs or waits ends."
    question = _question(request, row, form, f"Change “{line.term.label}” of {row.of}?", text, "Change it", "admin-policy-change", term)
    return decide(request, question, alter, topics=TOPICS, fields=dict.fromkeys(TERMS, "value"))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def inherit(request: PageRequest, pk: UUID, term: str) -> HttpResponse:
    row, line = _line(request, pk, term)
    form = InheritForm(sent(request), initial={"version": row.version})

    def alter(why: str, version: int | None) -> str:
        policy_change(policy=row, terms={term: None}, actor=request.user, now=request.now, why=why, version=version)
        return f"{line.term.label} of {row.of} is inherited again"

    text = f"It is {said(line.term, line.value)}, set here. Without that the value from above holds."
    question = _question(request, row, form, f"Inherit “{line.term.label}” in {row.of}?", text, "Inherit it", "admin-policy-inherit", term)
    return decide(request, question, alter, topics=TOPICS)


def _line(request: PageRequest, pk: UUID, term: str) -> tuple[Policy, TermLine]:
    """Raises NotFound."""
    (view,) = policy_views([policy_for(request.user, pk)])
    line = next((line for line in view.lines if line.term.name == term), None)
    if line is None:
        raise NotFound("page")
    return view.policy, line


def _question(request: PageRequest, row: Policy, form: forms.Form, title: str, text: str, verb: str, name: str, term: str) -> Question:
    return Question(
        title=title,
        text=text,
        verb=verb,
        url=reverse(name, args=[row.pk, term]),
        back_url=reverse("admin-policy", args=[row.pk]),
        form=form,
        shell=admin_shell(request, page="policies"),
        is_plain=True,
        effects=_effects(row, form, term),
        is_live="value" in form.fields,
    )


def _effects(row: Policy, form: forms.Form, term: str) -> Effects | None:
    """Returns None while the value is missing or invalid."""
    is_change = "value" in form.fields
    if is_change and not (form.is_bound and (form.is_valid() or "value" in form.cleaned_data)):
        return None
    try:
        found = breaches_after(row, {term: form.cleaned_data["value"] if is_change else None})
    except EgsError as error:
        return Effects(own=refusal_of(error).detail, shown=(), summary="")
    gprs = Gpr.objects.filter(pk__in=found).select_related("slice").order_by("-created_at", "pk")
    return Effects.of_policy(list(gprs[: Effects.MOST]), found)
