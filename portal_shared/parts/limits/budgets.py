from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Unpack
from uuid import UUID

from django import forms
from django.http import HttpResponse

from portal_shared.access import PageRequest
from portal_shared.forms.limit_forms import BudgetTermsForm, NewBudgetForm, OptionalReasonForm
from portal_shared.forms.questions import Question, decide, sent
from portal_shared.parts.limits.endings import back_of
from portal_shared.parts.portals import Portal
from slices.budgets.services import BudgetChange, budget_change, budget_create, budget_delete, terms
from slices.models import Budget, Slice
from slices.quotas.services import whose
from slices.selectors import budget_decided_by, slice_run_by

RULES: Final = (
    "GPU-hours count while GPUs are held, and while running and queued requests have them booked. "
    "Running requests keep their GPUs when a budget is spent."
)


def give(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    slice_ = slice_run_by(request.user, pk)

    def make(**data: Any) -> str:
        return told(budget_given(request, owner=slice_, **data))

    title = f"Give workspace {slice_.name} a budget"
    question = budget_question(request, portal, slice_, NewBudgetForm(sent(request)), title, RULES, "Give budget")
    return decide(request, question, make, topics=("queue",))


def change(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    budget = budget_decided_by(request.user, pk)

    def alter(why: str, **change: Unpack[BudgetChange]) -> str:
        return told(budget_change(budget=budget, change=change, actor=request.user, now=request.now, why=why))

    given = {name: getattr(budget, name) for name in ("gpu_hours", "starts_at", "ends_at", "at_limit")}
    form, title = BudgetTermsForm(sent(request), initial=given), f"Change the budget of {whose(budget)}?"
    question = budget_question(request, portal, budget.slice, form, title, RULES, "Change budget")
    return decide(request, question, alter, topics=("queue",))


def delete(request: PageRequest, portal: Portal, pk: UUID) -> HttpResponse:
    budget = budget_decided_by(request.user, pk)

    def remove(why: str) -> str:
        budget_delete(budget=budget, actor=request.user, now=request.now, why=why)
        return "The budget is deleted"

    text = "Its GPU-hours then have no limit. Requests that wait for approval go on waiting."
    form, title = OptionalReasonForm(sent(request)), f"Delete the budget of {whose(budget)}?"
    question = budget_question(request, portal, budget.slice, form, title, text, "Delete budget")
    return decide(request, replace(question, is_plain=False), remove, topics=("queue",))


def budget_given(request: PageRequest, *, owner: Any, shape: str, period: str, why: str, **change: Unpack[BudgetChange]) -> Budget:
    return budget_create(owner=owner, shape=shape, period=period, change=change, actor=request.user, now=request.now, why=why)


def budget_question(
    request: PageRequest, portal: Portal, slice_: Slice | None, form: forms.Form, title: str, text: str, verb: str
) -> Question:
    back_url = portal.url("budgets") if portal.is_admin else back_of(portal, slice_)
    return Question(title, text, verb, request.path, back_url=back_url, form=form, shell=portal.shell_of(request, "budgets"), is_plain=True)


def told(budget: Budget) -> str:
    return f"Budget of {whose(budget)}: {terms(budget)}."
