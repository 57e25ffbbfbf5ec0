from __future__ import annotations

from dataclasses import replace
from typing import Unpack
from uuid import UUID

from django import forms
from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from portal_admin.forms import BudgetForm, BudgetTermsForm, OptionalReasonForm
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.tenants.budgets import BudgetsPage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import Question, decide, sent
from slices.budgets.services import BudgetChange, budget_change, budget_create, budget_delete, terms
from slices.models import Budget, Project, Slice
from slices.quotas.services import whose
from slices.selectors import budget_for

RULES = (
    "GPU-hours count while GPUs are held, and while running and queued requests have them booked. "
    "Running requests keep their GPUs when a budget is spent."
)


@require_GET
@admin_only
def budgets(request: PageRequest) -> HttpResponse:
    return show(request, BudgetsPage.build(request), "budgets/page", rows="budgets/rows")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def create(request: PageRequest) -> HttpResponse:
    def make(owner: Project | Slice, shape: str, period: str, why: str, **change: Unpack[BudgetChange]) -> str:
        made = budget_create(owner=owner, shape=shape, period=period, change=change, actor=request.user, now=request.now, why=why)
        return _told(made)

    question = _question(request, BudgetForm(sent(request)), "Give a budget", RULES, "Give budget", reverse("admin-budget-create"))
    return decide(request, question, make, topics=("queue",))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def change(request: PageRequest, pk: UUID) -> HttpResponse:
    budget = budget_for(request.user, pk)

    def alter(why: str, **change: Unpack[BudgetChange]) -> str:
        return _told(budget_change(budget=budget, change=change, actor=request.user, now=request.now, why=why))

    given = {name: getattr(budget, name) for name in ("gpu_hours", "starts_at", "ends_at", "at_limit")}
    title, url = f"Change the budget of {whose(budget)}?", reverse("admin-budget", args=[pk])
    question = _question(request, BudgetTermsForm(sent(request), initial=given), title, RULES, "Change budget", url)
    return decide(request, question, alter, topics=("queue",))


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def delete(request: PageRequest, pk: UUID) -> HttpResponse:
    budget = budget_for(request.user, pk)

    def remove(why: str) -> str:
        budget_delete(budget=budget, actor=request.user, now=request.now, why=why)
        return "The budget is deleted"

    title, url = f"Delete the budget of {whose(budget)}?", reverse("admin-budget-delete", args=[pk])
    text = "Its GPU-hours then have no limit. Requests that wait for approval go on waiting."
    question = _question(request, OptionalReasonForm(sent(request)), title, text, "Delete budget", url)
    return decide(request, replace(question, is_plain=False), remove, topics=("queue",))


def _question(request: PageRequest, form: forms.Form, title: str, text: str, verb: str, url: str) -> Question:
    shell = admin_shell(request, page="budgets")
    return Question(title, text, verb, url, back_url=reverse("admin-budgets"), form=form, shell=shell, is_plain=True)


def _told(budget: Budget) -> str:
    return f"Budget of {whose(budget)}: {terms(budget)}."
