from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Unpack
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from gpr.quotas.selectors import quota_usages
from portal_admin.forms import QuotaForm, QuotaTermsForm
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.tenants.quotas import QuotasPage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.limit_forms import OptionalReasonForm
from portal_shared.forms.questions import Question, decide, sent
from slices.models import Project, Quota, Slice
from slices.quotas.services import QuotaChange, quota_change, quota_create, quota_delete, terms, whose
from slices.selectors import quota_for

RULES = (
    "Guaranteed GPUs are available whenever they are requested. Idle GPUs may be borrowed beyond that, and are given back, after a notice, "
    "when a request is entitled to them. The guarantees of workspaces come out of their project's."
)


@require_GET
@admin_only
def quotas(request: PageRequest) -> HttpResponse:
    return show(request, QuotasPage.build(request), "quotas/page", rows="quotas/rows")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def create(request: PageRequest) -> HttpResponse:
    def make(owner: Project | Slice, shape: str, why: str, **change: Unpack[QuotaChange]) -> str:
        return _told(quota_create(owner=owner, shape=shape, change=change, actor=request.user, now=request.now, why=why))

    form = QuotaForm(sent(request))
    url = reverse("admin-quota-create")
    return _decide(request, _question(request, form, "Give a quota", RULES, "Give quota", url), make)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def change(request: PageRequest, pk: UUID) -> HttpResponse:
    quota = quota_for(request.user, pk)

    def alter(why: str, **change: Unpack[QuotaChange]) -> str:
        return _told(quota_change(quota=quota, change=change, actor=request.user, now=request.now, why=why))

    form = QuotaTermsForm(sent(request), initial={"guaranteed_gpus": quota.guaranteed_gpus, "most_gpus": quota.most_gpus})
    title, url = f"Change the quota of {quota.shape} for {whose(quota)}?", reverse("admin-quota", args=[pk])
    return _decide(request, _question(request, form, title, RULES, "Change quota", url), alter)


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def delete(request: PageRequest, pk: UUID) -> HttpResponse:
    quota = quota_for(request.user, pk)

    def remove(why: str) -> str:
        quota_delete(quota=quota, actor=request.user, now=request.now, why=why)
        return "The quota is deleted"

    title, url = f"Delete the quota of {quota.shape} for {whose(quota)}?", reverse("admin-quota-delete", args=[pk])
    text = "It then has no guarantee and no limit of its own. Running requests keep their GPUs until their end."
    question = _question(request, OptionalReasonForm(sent(request)), title, text, "Delete quota", url)
    return _decide(request, replace(question, is_plain=False), remove)


def _question(request: PageRequest, form: forms.Form, title: str, text: str, verb: str, url: str) -> Question:
    shell = admin_shell(request, page="quotas")
    return Question(title, text, verb, url, back_url=reverse("admin-quotas"), form=form, shell=shell, is_plain=True)


def _decide(request: PageRequest, question: Question, do: Callable[..., str]) -> HttpResponse:
    return decide(request, question, do, topics=("queue",))


def _told(quota: Quota) -> str:
    """Adds a note if more is held than allowed."""
    (usage,) = quota_usages([quota])
    return f"{quota}: {terms(quota)}. {usage.note}".strip()
