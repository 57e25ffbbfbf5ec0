from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpResponse

from core.errors import EgsError, NotFound
from gpr.policies.breaches import breaches_after
from portal_shared.access import PageRequest
from portal_shared.forms.limit_forms import InheritForm, TermForm
from portal_shared.forms.questions import Question, decide, sent
from portal_shared.forms.refusals import refusal_of
from portal_shared.parts.limits.endings import back_of
from portal_shared.parts.policies import PolicyEffects, said
from portal_shared.parts.portals import Portal
from slices.models import Policy
from slices.policies.selectors import TermLine, policy_decided_by, policy_views
from slices.policies.services import policy_change, refuse_wider
from slices.policies.terms import TERMS

TOPICS = ("policies", "queue", "gpr")


def change_term(request: PageRequest, portal: Portal, pk: UUID, term: str) -> HttpResponse:
    row, line = _line(request, pk, term)
    form = TermForm(sent(request), term=line.term, initial={"value": line.value, "version": row.version})

    def alter(value: Any, why: str, version: int | None) -> str:
        policy_change(policy=row, terms={term: value}, actor=request.user, now=request.now, why=why, version=version)
        return f"{line.term.label} of {row.of}: {said(line.term, value)}"

    text = f"{line.term.help} It is {said(line.term, line.value)} now. It applies to requests from now on; nothing that runs or waits ends."
    question = _question(request, portal, row, form, f"Change “{line.term.label}” of {row.of}?", text, "Change it", term)
    return decide(request, question, alter, topics=TOPICS, fields=dict.fromkeys(TERMS, "value"))


def inherit_term(request: PageRequest, portal: Portal, pk: UUID, term: str) -> HttpResponse:
    row, line = _line(request, pk, term)
    form = InheritForm(sent(request), initial={"version": row.version})

    def alter(why: str, version: int | None) -> str:
        policy_change(policy=row, terms={term: None}, actor=request.user, now=request.now, why=why, version=version)
        return f"{line.term.label} of {row.of} is inherited again"

    text = f"It is {said(line.term, line.value)}, set here. Without that the value from above holds."
    question = _question(request, portal, row, form, f"Inherit “{line.term.label}” in {row.of}?", text, "Inherit it", term)
    return decide(request, question, alter, topics=TOPICS)


def _line(request: PageRequest, pk: UUID, term: str) -> tuple[Policy, TermLine]:
    """Raises NotFound or NotAllowed."""
    (view,) = policy_views([policy_decided_by(request.user, pk)])
    line = next((line for line in view.lines if line.term.name == term), None)
    if line is None:
        raise NotFound("page")
    return view.policy, line


def _question(request: PageRequest, portal: Portal, row: Policy, form: forms.Form, title: str, text: str, verb: str, term: str) -> Question:
    return Question(
        title=title,
        text=text,
        verb=verb,
        url=request.path,
        back_url=portal.url("policy", row.pk) if portal.is_admin else back_of(portal, row.slice),
        form=form,
        shell=portal.shell_of(request, "policies"),
        is_plain=True,
        effects=_effects(request, portal, row, form, term),
        is_live="value" in form.fields,
    )


def _effects(request: PageRequest, portal: Portal, row: Policy, form: forms.Form, term: str) -> PolicyEffects | None:
    """Returns None while the value is missing or invalid."""
    is_change = "value" in form.fields
    if is_change and not (form.is_bound and (form.is_valid() or "value" in form.cleaned_data)):
        return None
    terms = {term: form.cleaned_data["value"] if is_change else None}
    try:
        refuse_wider(row, terms, request.user)
        return PolicyEffects.of(breaches_after(row, terms), portal.request_url)
    except EgsError as error:
        return PolicyEffects(refusal_of(error).detail)
