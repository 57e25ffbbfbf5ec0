"""Finds the periods of a budget, in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from slices.budgets.services import period_words
from slices.models import Budget, Period


class Span(NamedTuple):
    starts_at: datetime
    ends_at: datetime


def period_at(budget: Budget, at: datetime) -> Span:
    """Returns the week or month that contains `at`, or the one range of the budget."""
    if budget.starts_at is not None and budget.ends_at is not None:
        return Span(budget.starts_at, budget.ends_at)
    day = at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if budget.period == Period.WEEK:
        monday = day - timedelta(days=day.weekday())
        return Span(monday, monday + timedelta(days=7))
    first = day.replace(day=1)
    return Span(first, (first + timedelta(days=31)).replace(day=1))


def periods_between(budget: Budget, starts_at: datetime, ends_at: datetime) -> Iterator[Span]:
    """Returns the periods that overlap, the earliest first."""
    span = period_at(budget, starts_at)
    while span.starts_at < ends_at:
        if span.ends_at > starts_at:
            yield span
        if budget.period == Period.RANGE:
            return
        span = period_at(budget, span.ends_at)


def span_words(budget: Budget, span: Span) -> str:
    if budget.period == Period.RANGE:
        return period_words(budget)
    return f"in the {budget.period} from {span.starts_at:%Y-%m-%d}"
