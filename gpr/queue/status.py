"""Tells the queue position of a waiting GPR and why it waits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from accounts.models import User
from core.words import utc
from gpr.models import Gpr
from gpr.queue.explanations import FormatTime, VisibleExplanation, explain_gprs
from gpr.requests.selectors import start_positions


@dataclass(frozen=True, slots=True)
class QueueStatus:
    position: int | None = None  # by planned start among all slices, from 1; None: no planned start
    explanation: VisibleExplanation | None = None  # None: not planned yet

    @property
    def reason(self) -> str:
        return self.explanation.sentence if self.explanation else ""


NOT_PLANNED = QueueStatus()


def queue_statuses(gprs: Collection[Gpr], *, actor: User, now: datetime, format_time: FormatTime = utc) -> dict[UUID, QueueStatus]:
    """Returns statuses by GPR id. Runs two queries for any number of GPRs, none when no GPR waits."""
    positions, explanations = start_positions(gprs), explain_gprs(gprs, actor=actor, now=now, format_time=format_time)
    return {gpr.pk: _status(positions.get(gpr.pk), explanations.get(gpr.pk)) for gpr in gprs}


def _status(position: int | None, explanation: VisibleExplanation | None) -> QueueStatus:
    # A promise may let a request start before one of higher priority, so `ahead_count` follows the planned starts.
    return QueueStatus(position, replace(explanation, ahead_count=position - 1) if explanation and position else explanation)
