from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from inventory.models import CheckPolicy
from inventory.selectors import check_policy_for, cluster_for, clusters_visible_to
from inventory.services.checks import check_policy_change, check_policy_create, check_policy_delete, terms
from portal_admin.forms import CheckPolicyForm, CheckPolicyTermsForm
from portal_admin.pages.fleet.checks import ChecksPage
from portal_admin.pages.nav import admin_shell
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.limit_forms import OptionalReasonForm
from portal_shared.forms.questions import Question, decide, sent
from protocol.nodes.check_limits import IMAGES, LIMITS

RULES = "It applies to every entry and exit check that begins from now on. Empty fields keep the defaults."
FIELDS = {f"limits.{name}": f"limit_{name}" for name in LIMITS} | {f"images.{name}": f"image_{name}" for name in IMAGES}


@require_GET
@admin_only
def checks(request: PageRequest) -> HttpResponse:
    return show(request, ChecksPage.build(request), "checks/page", rows="checks/rows")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def create(request: PageRequest) -> HttpResponse:
    names = clusters_visible_to(request.user).order_by("name").values_list("name", flat=True)
    form = CheckPolicyForm(sent(request), clusters=list(names))

    def make(cluster: str, shape: str, **_: Any) -> str:
        policy = CheckPolicy(cluster=cluster_for(request.user, cluster), shape=shape, **form.change())
        return _told(check_policy_create(policy=policy, actor=request.user, now=request.now))

    question = _question(request, form, "Set checks of a cluster", RULES, "Set checks", reverse("admin-check-policy-create"))
    return _decide(request, replace(question, keep="Set nothing"), make)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def change(request: PageRequest, pk: UUID) -> HttpResponse:
    policy = check_policy_for(request.user, pk)
    form = CheckPolicyTermsForm(sent(request), initial=CheckPolicyTermsForm.typed(policy))

    def alter(why: str, **_: Any) -> str:
        return _told(check_policy_change(policy=policy, change=form.change(), actor=request.user, now=request.now, why=why))

    title = f"Change checks of {policy.name}?"
    return _decide(request, _question(request, form, title, RULES, "Change checks", reverse("admin-check-policy", args=[pk])), alter)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def delete(request: PageRequest, pk: UUID) -> HttpResponse:
    policy = check_policy_for(request.user, pk)

    def drop(why: str) -> str:
        check_policy_delete(policy=policy, actor=request.user, now=request.now, why=why)
        return f"Checks of {policy.name} have their defaults again"

    text = f"The default limits apply from now on. The policy is: {terms(policy)}."
    url = reverse("admin-check-policy-delete", args=[pk])
    question = _question(request, OptionalReasonForm(sent(request)), f"Delete checks of {policy.name}?", text, "Delete checks", url)
    return _decide(request, replace(question, is_plain=False), drop)


def _question(request: PageRequest, form: Any, title: str, text: str, verb: str, url: str) -> Question:
    shell = admin_shell(request, page="checks")
    return Question(title, text, verb, url=url, back_url=reverse("admin-checks"), form=form, shell=shell, is_plain=True)


def _decide(request: PageRequest, question: Question, do: Callable[..., str]) -> HttpResponse:
    return decide(request, question, do, topics=("gpus",), fields=FIELDS)


def _told(policy: CheckPolicy) -> str:
    return f"Checks of {policy.name}: {terms(policy)}"
