"""Shows the quotas and budgets of a workspace and its project, as bars."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from core.pages.parts import Meter
from gpr.budgets.periods import span_words
from gpr.budgets.selectors import BudgetUse, budget_uses
from gpr.quotas.selectors import QuotaUsage, quota_usages
from portal_shared.parts.budgets import meter_of
from slices.models import Slice
from slices.quotas.services import whose
from slices.selectors import budgets_of, quotas_of


@dataclass(frozen=True, slots=True)
class QuotaBar:
    label: str
    meter: Meter
    note: str

    @classmethod
    def of(cls, usage: QuotaUsage) -> QuotaBar:
        quota = usage.quota
        label = f"{quota.shape} of this workspace" if quota.slice else f"{quota.shape} of project {quota.tenant.name}"
        meter = Meter(usage.held_gpus, guaranteed_count=quota.guaranteed_gpus, limit_count=quota.most_gpus)
        return cls(label, meter, usage.note)


def quota_bars(slice_: Slice, *, now: datetime) -> tuple[QuotaBar, ...]:
    """Returns bars by shape, the workspace's first, then those of budgets. Runs two queries if there are none."""
    found = sorted(quotas_of(slice_), key=lambda quota: (quota.shape, quota.slice is None))
    quotas = [QuotaBar.of(usage) for usage in quota_usages(found)] if found else []
    return (*quotas, *(_budget_bar(use) for use in budget_uses(budgets_of(slice_), now=now)))


def _budget_bar(use: BudgetUse) -> QuotaBar:
    budget = use.budget
    label = f"GPU-hours{f' of {budget.shape}' if budget.shape else ''} of {whose(budget)} {span_words(budget, use.span)}"
    return QuotaBar(label, meter_of(use), "")
