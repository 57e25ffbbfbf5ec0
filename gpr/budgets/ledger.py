"""Finds out whether a request fits what its budgets have left."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from core.errors import OverPolicy
from core.words import duration_exact, number, plural
from gpr.budgets.bounds import Bounded, budgets_send
from gpr.budgets.periods import Span, period_at, periods_between, span_words
from gpr.budgets.selectors import HOUR_S
from gpr.budgets.windows import GpuWindow, windows_load
from slices.models import AtLimit, Budget, Slice
from slices.quotas.services import whose

MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class Excess:
    """Describes the first period in which a request books more than a budget has left."""

    budget: Budget
    span: Span
    asked_s: float
    left_s: float
    gpu_count: int
    fitting_s: int  # the longest duration that fits with this many GPUs

    @property
    def needs_approval(self) -> bool:
        return self.budget.at_limit == AtLimit.APPROVE

    @property
    def text(self) -> str:
        shape = f" of {self.budget.shape}" if self.budget.shape else ""
        left, asked = number(math.floor(self.left_s / HOUR_S * 10) / 10), number(math.ceil(self.asked_s / HOUR_S * 10) / 10)
        has = f"has {left} of {number(self.budget.gpu_hours)} GPU-hours left {span_words(self.budget, self.span)}"
        follows = ", which needs approval" if self.needs_approval else ""
        return f"The budget{shape} of {whose(self.budget)} {has}; {asked} were asked for{follows}. {self._fit}"

    @property
    def _fit(self) -> str:
        if not self.fitting_s:
            return f"{plural(self.gpu_count, 'GPU')} do not fit for a minute." if self.gpu_count > 1 else "It does not fit for a minute."
        return f"{plural(self.gpu_count, 'GPU')} may be booked for {duration_exact(self.fitting_s)} at most."

    def refusal(self) -> OverPolicy:
        return OverPolicy(self.text, limit="gpu_hours", most=math.floor(self.left_s / HOUR_S), fitting_duration_s=self.fitting_s)


@dataclass(slots=True)
class Ledger:
    """Holds the budgets of some workspaces and their projects, and loads what counts for them if the bounds do not suffice."""

    budgets: Collection[Bounded]
    project_ids: Collection[UUID]
    now: datetime
    _loaded: list[GpuWindow] | None = None
    _added: list[GpuWindow] = field(default_factory=list)

    @classmethod
    def load(cls, slices: Iterable[Slice], *, now: datetime) -> Ledger:
        """Runs one query. To keep budgets under concurrent requests the caller holds the plan lock."""
        return cls.send(slices, now=now)()

    @classmethod
    def send(cls, slices: Iterable[Slice], *, now: datetime) -> Callable[[], Ledger]:
        """Asks for it; what it returns waits for it."""
        projects = {slice_.pk: slice_.project_id for slice_ in slices}
        sent = budgets_send({*projects, *projects.values()}, now=now)
        return lambda: cls(sent(), set(projects.values()), now)

    def add(self, window: GpuWindow) -> None:
        self._added.append(window)

    def excesses(self, asked: GpuWindow, *, granted: GpuWindow | None = None) -> list[Excess]:
        """`granted`: what the request has already, and may keep. Runs up to five queries, once, where a budget may not suffice."""
        found = (self._excess(each, asked, granted) for each in self.budgets if asked.counts_for(each.budget))
        return [excess for excess in found if excess is not None]

    def _excess(self, bounded: Bounded, asked: GpuWindow, granted: GpuWindow | None) -> Excess | None:
        budget = bounded.budget
        added = [window for window in self._added if window.counts_for(budget)]
        if bounded.given_most_s + sum(window.gpu_s for window in [*added, asked]) <= budget.gpu_hours * HOUR_S:
            return None
        taken = [*added, *(window for window in self._windows() if window.counts_for(budget))]
        for span in periods_between(budget, asked.starts_at, asked.ends_at):
            asked_s, had_s = asked.gpu_s_within(span), granted.gpu_s_within(span) if granted else 0.0
            taken_s = sum(window.gpu_s_within(span) for window in taken)
            left_s = max(budget.gpu_hours * HOUR_S - taken_s, 0.0) + had_s
            if asked_s > left_s:
                fitting_s = max((span.starts_at - asked.starts_at).total_seconds(), 0.0) + left_s / asked.gpu_count
                return Excess(budget, span, asked_s, left_s, round(asked.gpu_count), math.floor(fitting_s / MINUTE_S) * MINUTE_S)
        return None

    def _windows(self) -> list[GpuWindow]:
        if self._loaded is None:
            spans = [period_at(each.budget, self.now) for each in self.budgets]
            self._loaded = windows_load(self.project_ids, spans=spans, now=self.now)
        return self._loaded
