"""Shows budgets by project, with their use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID

from django.urls import reverse

from core.pages.parts import ListFoot, Meter
from core.pages.table import RowGroup
from gpr.budgets.periods import span_words
from gpr.budgets.selectors import BudgetUse, budget_uses
from portal_admin.pages.nav import admin_shell
from portal_admin.pages.plan.queue.page import Mark
from portal_shared.access import PageRequest, why_not_write
from portal_shared.parts.budgets import meter_of
from portal_shared.parts.paging import foot_of, page_of, url_with
from portal_shared.shell import Shell
from slices.models import AtLimit, Project
from slices.selectors import QUOTA_ORDER, budgets_visible_to


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """`mark` is None for a budget of a whole project."""

    id: UUID
    mark: Mark | None
    name: str
    shape: str
    period: str
    at_limit: str
    change_url: str
    delete_url: str
    limit: int
    used: float
    committed: float
    left: float
    meter: Meter

    @classmethod
    def of(cls, use: BudgetUse) -> BudgetRow:
        budget = use.budget
        return cls(
            id=budget.pk,
            mark=Mark.of(budget.slice) if budget.slice else None,
            name=str(budget),
            shape=budget.shape or "all",
            period=span_words(budget, use.span),
            at_limit=AtLimit(budget.at_limit).label,
            change_url=reverse("admin-budget", args=[budget.pk]),
            delete_url=reverse("admin-budget-delete", args=[budget.pk]),
            limit=budget.gpu_hours,
            used=round(use.used_hours, 1),
            committed=round(use.committed_hours, 1),
            left=round(use.left_hours, 1),
            meter=meter_of(use),
        )


@dataclass(frozen=True, slots=True)
class BudgetsPage:
    shell: Shell
    groups: tuple[RowGroup[BudgetRow], ...]
    foot: ListFoot
    url: str  # of its fragment
    read_only: str  # why there are no buttons
    why_none: str  # why budgets cannot be made yet, or empty

    @classmethod
    def build(cls, request: PageRequest) -> BudgetsPage:
        url = reverse("admin-budgets")
        found = page_of(request, budgets_visible_to(request.user), ordering=QUOTA_ORDER)
        return cls(
            shell=admin_shell(request, page="budgets"),
            groups=_groups(budget_uses(found.rows, now=request.now)),
            foot=foot_of(found, url),
            url=url_with(url, {"cursor": request.GET.get("cursor", ""), "part": "rows"}),
            read_only=why_not_write(request),
            why_none="" if Project.objects.exists() else "There is no project yet.",
        )


def _groups(found: Sequence[BudgetUse]) -> tuple[RowGroup[BudgetRow], ...]:
    by_project = groupby(found, key=lambda use: use.budget.tenant)
    return tuple(
        RowGroup(f"budgets-{number}", project.name, tuple(BudgetRow.of(use) for use in members))
        for number, (project, members) in enumerate(by_project)
    )
