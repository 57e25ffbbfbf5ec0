"""Shows the policy that holds in a workspace, or what a project sets, for those who work there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.urls import reverse

from accounts.policy import Verb, may
from core.pages.parts import Meter
from gpr.budgets.periods import span_words
from gpr.budgets.selectors import BudgetUse, budget_uses
from portal_shared.access import PageRequest
from portal_shared.parts.budgets import meter_of
from portal_shared.parts.policies import PolicyPanel
from portal_shared.shell import Shell
from portal_user.pages.requests.listing import may_create
from slices.models import AtLimit, Policy, Slice
from slices.selectors import budgets_of


@dataclass(frozen=True, slots=True)
class OwnBudgetRow:
    """Empty URLs: the reader may not change it."""

    id: UUID
    name: str
    of: str
    shape: str
    period: str
    at_limit: str
    limit: int
    left: float
    change_url: str
    delete_url: str
    meter: Meter

    @classmethod
    def of_use(cls, use: BudgetUse, *, is_changeable: bool) -> OwnBudgetRow:
        budget = use.budget
        may_change = is_changeable and budget.slice is not None
        return cls(
            id=budget.pk,
            name=str(budget),
            of="the workspace" if budget.slice else "its project",
            shape=budget.shape or "all",
            period=span_words(budget, use.span),
            at_limit=AtLimit(budget.at_limit).label,
            limit=budget.gpu_hours,
            left=round(use.left_hours, 1),
            change_url=reverse("budget", args=[budget.pk]) if may_change else "",
            delete_url=reverse("budget-delete", args=[budget.pk]) if may_change else "",
            meter=meter_of(use),
        )


@dataclass(frozen=True, slots=True)
class PolicyPage:
    shell: Shell
    panel: PolicyPanel
    url: str
    above_url: str  # of the project's policy, for who runs it
    is_fixed: bool
    budgets: tuple[OwnBudgetRow, ...]
    acts: Mapping[str, str]  # addresses by name; empty: the reader may not change it

    @classmethod
    def build(cls, request: PageRequest, policy: Policy, slice_: Slice | None, *, sees_project: bool) -> PolicyPage:
        above = reverse("project-policy", args=[slice_.project.name]) if slice_ and sees_project else ""
        shell = Shell.user(request, page="policy", slice_=slice_, may_create=slice_ is not None and may_create(request, slice_))
        is_run = slice_ is not None and request.may_write and slice_.is_open and may(request.user, Verb.DECIDE, slice_)
        acts: dict[str, Any] = {}
        if is_run:
            acts = {f"{name}_url": partial(_term_url, f"policy-{name}", policy) for name in ("change", "inherit")}
        uses = budget_uses(budgets_of(slice_), now=request.now) if slice_ is not None else []
        return cls(
            shell=shell,
            panel=PolicyPanel.build(policy, request.user, **acts),
            url=request.path,
            above_url=above,
            is_fixed=not is_run,
            budgets=tuple(OwnBudgetRow.of_use(use, is_changeable=is_run) for use in uses),
            acts=_acts(slice_) if is_run and slice_ is not None else {},
        )


def _term_url(name: str, policy: Policy, term: str) -> str:
    return reverse(name, args=[policy.pk, term])


def _acts(slice_: Slice) -> dict[str, str]:
    names = {"give": "slice-budget-create", "end": "slice-end", "archive": "slice-archive", "remove": "slice-remove"}
    return {act: reverse(name, args=[slice_.pk]) for act, name in names.items()}
