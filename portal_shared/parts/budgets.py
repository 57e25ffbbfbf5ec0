from __future__ import annotations

from core.pages.parts import Meter
from gpr.budgets.selectors import BudgetUse


def meter_of(use: BudgetUse) -> Meter:
    """Shows used, committed and allowed GPU-hours."""
    used, taken = round(use.used_hours), round(use.used_hours + use.committed_hours)
    return Meter(
        used,
        taken - used,
        limit_count=use.budget.gpu_hours,
        unit="GPU-hours",
        held_words="used",
        more_words="with what is booked",
    )
