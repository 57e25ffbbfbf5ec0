"""Makes every write to budgets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

from django.db import IntegrityError, transaction

from accounts.models import User
from core.errors import Conflict, InvalidInput, NotFound
from core.words import number, utc
from inventory.selectors import shapes_known
from journal.changes import difference, values_of
from journal.hints import hint, slice_topic
from journal.services import event_record
from slices.models import AtLimit, Budget, Period, Project, Slice
from slices.quotas.services import whose


class BudgetChange(TypedDict, total=False):
    gpu_hours: int
    starts_at: datetime | None
    ends_at: datetime | None
    at_limit: str


@transaction.atomic
def budget_create(
    *, owner: Project | Slice, shape: str, period: str, change: BudgetChange, actor: User | None, now: datetime, why: str = ""
) -> Budget:
    """Raises InvalidInput, or Conflict when it exists already."""
    of = {"project": owner} if isinstance(owner, Project) else {"slice": owner}
    budget = Budget(**of, shape=shape, period=period, created_at=now, **change)
    if shape and shape not in shapes_known():
        known = ", ".join(sorted(shapes_known())) or "none yet"
        raise InvalidInput({"shape": [f"No cluster has {shape}. There are: {known}."]})
    _check(budget)
    try:
        with transaction.atomic():
            budget.save(force_insert=True)
    except IntegrityError:
        raise Conflict(f"There is already {_title(budget).replace('The', 'a', 1)}. Change that one.") from None
    _record(budget, "created", f"{_title(budget)} was made: {terms(budget)}.", why, actor, now)
    return budget


@transaction.atomic
def budget_change(*, budget: Budget, change: BudgetChange, actor: User, now: datetime, why: str = "") -> Budget:
    """A smaller budget ends nothing. Its warnings are told anew. Raises InvalidInput, NotFound."""
    found = _locked(budget)
    old, before = terms(found), values_of(found, change)
    for name, value in change.items():
        setattr(found, name, value)
    if terms(found) == old:
        return found
    _check(found)
    found.warned_at = found.spent_at = None
    found.save(update_fields=[*change, "warned_at", "spent_at"])
    text = f"{_title(found)} was changed: {terms(found)}; before it was {old}."
    _record(found, "changed", text, why, actor, now, difference(before, change))
    return found


@transaction.atomic
def budget_delete(*, budget: Budget, actor: User | None, now: datetime, why: str = "") -> None:
    """Raises NotFound."""
    found = _locked(budget)
    Budget.objects.filter(pk=found.pk).delete()
    _record(found, "deleted", f"{_title(found)} was deleted; it was {terms(found)}.", why, actor, now)


def terms(budget: Budget) -> str:
    """Returns e.g. `1,000 GPU-hours in each week, beyond it approval`."""
    return f"{number(budget.gpu_hours)} GPU-hours {period_words(budget)}, beyond it {AtLimit(budget.at_limit).label.lower()}"


def period_words(budget: Budget) -> str:
    if budget.starts_at is not None and budget.ends_at is not None:
        return f"from {utc(budget.starts_at)} to {utc(budget.ends_at)}"
    return f"in each {budget.period}"


def _title(budget: Budget) -> str:
    shape = f" of {budget.shape}" if budget.shape else ""
    return f"The budget{shape} for {whose(budget)}"


def _check(budget: Budget) -> None:
    """Raises InvalidInput."""
    if budget.period != Period.RANGE:
        given = [name for name in ("starts_at", "ends_at") if getattr(budget, name) is not None]
        faults = {name: [f"A budget of each {budget.period} has no dates."] for name in given}
    else:
        faults = {name: ["Say when the range starts and ends."] for name in ("starts_at", "ends_at") if getattr(budget, name) is None}
        if budget.starts_at is not None and budget.ends_at is not None and budget.ends_at <= budget.starts_at:
            faults = {"ends_at": ["Must be later than the start."]}
    if faults:
        raise InvalidInput(faults)


def _locked(budget: Budget) -> Budget:
    """Raises NotFound when it is gone."""
    if not Budget.objects.select_for_update().filter(pk=budget.pk).exists():
        raise NotFound("budget")
    return Budget.objects.select_related("project", "slice__project").get(pk=budget.pk)


def _record(
    budget: Budget, what: str, message: str, why: str, actor: User | None, now: datetime, changed: Mapping[str, Any] | None = None
) -> None:
    data = {"project": budget.tenant.name, "shape": budget.shape, "gpu_hours": budget.gpu_hours, "why": why, **(changed or {})}
    if budget.slice is not None:
        data["slice"] = budget.slice.name
    event_record(kind=f"budget.{what}", message=f"{message} {why}".strip(), at=now, actor=actor, slice_id=budget.slice_id, data=data)
    for slice_id in budget.tenant.slices.values_list("pk", flat=True):
        hint(slice_topic(slice_id))
