"""Reads the use of budgets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from gpr.budgets.periods import Span, period_at
from gpr.budgets.windows import GpuWindow, windows_load
from slices.models import Budget

HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """Counts GPU-hours of the present period, or of the range."""

    budget: Budget
    span: Span
    used_hours: float  # GPUs held until now
    committed_hours: float  # what running and queued requests have booked from now on

    @property
    def left_hours(self) -> float:
        return max(self.budget.gpu_hours - self.used_hours - self.committed_hours, 0.0)


def budget_uses(budgets: Iterable[Budget], *, now: datetime) -> list[BudgetUse]:
    """Runs five queries at most, none without budgets."""
    spans = [(budget, period_at(budget, now)) for budget in budgets]
    if not spans:
        return []
    projects = {budget.tenant.pk for budget, _ in spans}
    windows_of: dict[UUID | None, list[GpuWindow]] = defaultdict(list)
    for window in windows_load(projects, spans=[span for _, span in spans], now=now):
        windows_of[window.slice_id].append(window)
        windows_of[window.project_id].append(window)
    uses = []
    for budget, span in spans:
        counted = [window for window in windows_of[budget.slice_id or budget.project_id] if window.counts_for(budget)]
        past, ahead = Span(span.starts_at, min(span.ends_at, now)), Span(max(span.starts_at, now), span.ends_at)
        used_s, committed_s = (sum(window.gpu_s_within(part) for window in counted) for part in (past, ahead))
        uses.append(BudgetUse(budget, span, used_s / HOUR_S, committed_s / HOUR_S))
    return uses
