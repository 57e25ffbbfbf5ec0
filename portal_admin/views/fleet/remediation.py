from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from core.words import plural
from observability.models import RemediationCase
from observability.remediation.cases import case_approve, case_give_back, case_keep, case_resume
from observability.remediation.faults import REPAIRS, Action
from observability.remediation.models import CLOSED
from observability.remediation.policies import policy_for, remediation_policy_change, terms
from observability.remediation.selectors import case_for, log_text, preview_of
from portal_admin.forms import PlainForm, ReasonForm, RemediationPolicyForm, RepairForm
from portal_admin.pages.fleet.remediation import CasePage, RemediationPage
from portal_admin.pages.nav import admin_shell
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import Question, decide, sent

TOPICS = ("gpus", "schedule")


@require_GET
@admin_only
def remediation(request: PageRequest) -> HttpResponse:
    return show(request, RemediationPage.build(request), "remediation/page", rows="remediation/rows")


@require_GET
@admin_only
def case(request: PageRequest, pk: UUID) -> HttpResponse:
    page = CasePage.build(request, pk)
    return show(request, page, "remediation/case", head="remediation/case_head", rows="remediation/case_body")


@require_GET
@admin_only
def log(request: PageRequest, pk: UUID) -> HttpResponse:
    found = case_for(request.user, pk)
    headers = {"Content-Disposition": f'attachment; filename="{found.node.name}-{found.opened_at:%Y%m%d-%H%M}.txt"'}
    return HttpResponse(log_text(found, now=request.now), content_type="text/plain; charset=utf-8", headers=headers)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def approve(request: PageRequest, pk: UUID) -> HttpResponse:
    found = case_for(request.user, pk)
    form = RepairForm(sent(request), initial={"action": found.action if found.action in REPAIRS else Action.CHECK})
    wanted = form["action"].value()
    preview = preview_of(found, wanted if wanted in REPAIRS else Action.CHECK)
    waits = f" It waits until the node is free: {plural(len(preview.boxes), 'request')} on it." if preview.boxes else ""
    text = f"The node stays set aside, and returns when all checks have passed.{waits}"
    question = _question(request, found, form, "approve", f"Repair and check {found.node.name}?", "Repair and check", text)

    def do(action: str, why: str) -> str:
        case_approve(case=found, action=action, actor=request.user, why=why, now=request.now)
        return f"{found.node.name} is repaired and checked as soon as it is free"

    points = (f"Steps: {', '.join(preview.steps)}",)
    return decide(request, replace(question, is_plain=True, points=points), do, topics=TOPICS)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def keep(request: PageRequest, pk: UUID) -> HttpResponse:
    found = case_for(request.user, pk)
    text = "EGS does nothing more to it. A repair at work ends. It stays set aside until somebody lets EGS go on, or uses it."

    def do(why: str) -> str:
        case_keep(case=found, actor=request.user, why=why, now=request.now)
        return f"{found.node.name} is kept aside"

    return _decide(request, found, ReasonForm(sent(request)), "keep", f"Keep {found.node.name} aside?", "Keep aside", text, do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def give_back(request: PageRequest, pk: UUID) -> HttpResponse:
    found = case_for(request.user, pk)
    text = f"Requests may start on it at once, and nothing is checked before. It was set aside: {found.why}"

    def do(why: str) -> str:
        case_give_back(case=found, actor=request.user, why=why, now=request.now)
        return f"{found.node.name} is in use again"

    return _decide(request, found, ReasonForm(sent(request)), "give-back", f"Use {found.node.name} without checks?", "Use", text, do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def resume(request: PageRequest, pk: UUID) -> HttpResponse:
    found = case_for(request.user, pk)
    text = "EGS goes on as the policy of the cluster says. EGS counts failed repairs from zero again."

    def do() -> str:
        case_resume(case=found, actor=request.user, now=request.now)
        return f"EGS goes on with {found.node.name}"

    return _decide(request, found, PlainForm(sent(request)), "resume", f"Let EGS go on with {found.node.name}?", "Let EGS go on", text, do)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def policy(request: PageRequest, pk: UUID) -> HttpResponse:
    """Takes the id of the policy's cluster."""
    found = policy_for(request.user, str(pk))
    form = RemediationPolicyForm(sent(request), initial=RemediationPolicyForm.typed(found))

    def do(**_: Any) -> str:
        changed = remediation_policy_change(cluster=found.cluster, change=form.change(), actor=request.user, now=request.now)
        return f"Remediation in {found.cluster.name}: {terms(changed)}"

    question = Question(
        title=f"Change remediation in {found.cluster.name}?",
        text="It applies from now on, also to nodes that are set aside already.",
        verb="Change remediation",
        url=reverse("admin-remediation-policy", args=[pk]),
        back_url=reverse("admin-remediation"),
        form=form,
        shell=admin_shell(request, page="remediation"),
        is_plain=True,
    )
    return decide(request, question, do, topics=TOPICS, fields={"ignored_xids": "ignored_xids"})


def _question(request: PageRequest, found: RemediationCase, form: forms.Form, name: str, title: str, verb: str, text: str) -> Question:
    return Question(
        title=title,
        text=text,
        verb=f"{verb}: {found.node.name}",
        url=reverse(f"admin-case-{name}", args=[found.pk]),
        back_url=reverse("admin-case", args=[found.pk]),
        form=form,
        shell=admin_shell(request, page="remediation"),
        closed="This case is closed." if found.state in CLOSED else "",
    )


def _decide(
    request: PageRequest, found: RemediationCase, form: forms.Form, name: str, title: str, verb: str, text: str, do: Callable[..., str]
) -> HttpResponse:
    return decide(request, _question(request, found, form, name, title, verb, text), do, topics=TOPICS)
