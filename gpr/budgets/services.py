"""Tells of budgets that are nearly or wholly used."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from core.words import number
from gpr.budgets.periods import span_words
from gpr.budgets.selectors import BudgetUse, budget_uses
from journal.models import Severity
from journal.notices.periodic import Throttle
from journal.services import event_record
from slices.models import AtLimit, Budget
from slices.quotas.services import whose

WARNED_AT_SHARE = 0.8
WARNED, SPENT = "budget.warned", "budget.spent"
_THROTTLE: Final = Throttle(timedelta(minutes=1))
_FOLLOWS = {
    AtLimit.APPROVE: "Requests beyond it wait for approval.",
    AtLimit.REFUSE: "Requests beyond it are refused.",
}


def budgets_watch(*, now: datetime) -> None:
    """Does nothing within a minute of the last time."""
    if _THROTTLE.is_due(now):
        budgets_record(now=now)


def budgets_record(*, now: datetime) -> None:
    """Tells once in each period at 80 % and at 100 % of use. Runs one query if there is no budget."""
    for use in budget_uses(Budget.objects.select_related("project", "slice__project"), now=now):
        budget, start_at = use.budget, use.span.starts_at
        if not start_at <= now < use.span.ends_at:
            continue
        if use.used_hours >= budget.gpu_hours:
            _tell(use, SPENT, {"spent_at": start_at, "warned_at": start_at}, now)
        elif use.used_hours >= WARNED_AT_SHARE * budget.gpu_hours:
            _tell(use, WARNED, {"warned_at": start_at}, now)


@transaction.atomic
def _tell(use: BudgetUse, kind: str, marks: dict[str, datetime], now: datetime) -> None:
    budget, column = use.budget, next(iter(marks))
    if getattr(budget, column) == marks[column]:
        return
    # Another process may be about to tell the same.
    if not Budget.objects.filter(pk=budget.pk).exclude(**{column: marks[column]}).update(**marks):
        return
    shape = f" of {budget.shape}" if budget.shape else ""
    used = f"{number(int(use.used_hours))} of {number(budget.gpu_hours)} GPU-hours{shape} {span_words(budget, use.span)}"
    event_record(
        kind=kind,
        message=f"{used} are used by {whose(budget)}. {_FOLLOWS[AtLimit(budget.at_limit)]}",
        at=now,
        severity=Severity.WARNING,
        slice_id=budget.slice_id,
        data={
            "budget": str(budget.pk),
            "project": budget.tenant.name,
            "used_hours": round(use.used_hours, 1),
            "gpu_hours": budget.gpu_hours,
        },
    )
