from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_GET, require_http_methods

from portal_admin.forms import BudgetForm
from portal_admin.pages.nav import PORTAL
from portal_admin.pages.tenants.budgets import BudgetsPage
from portal_admin.views.rendering import show
from portal_shared.access import PageRequest, admin_only, needs_write
from portal_shared.forms.questions import decide, sent
from portal_shared.parts.limits.budgets import RULES, budget_given, budget_question, told


@require_GET
@admin_only
def budgets(request: PageRequest) -> HttpResponse:
    return show(request, BudgetsPage.build(request), "budgets/page", rows="budgets/rows")


@require_http_methods(["GET", "POST"])
@admin_only
@needs_write
def create(request: PageRequest) -> HttpResponse:
    def make(**data: Any) -> str:
        return told(budget_given(request, **data))

    question = budget_question(request, PORTAL, None, BudgetForm(sent(request)), "Give a budget", RULES, "Give budget")
    return decide(request, question, make, topics=("queue",))
