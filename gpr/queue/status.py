"""The queue status of a waiting GPR: its position and the reason why it waits."""

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
    """`position` counts the requests of all slices by planned start, from 1; None without a planned start.

    `explanation` is None before the first plan.
    """

    position: int | None = None
    explanation: VisibleExplanation | None = None


NOT_PLANNED = QueueStatus()


def queue_statuses(gprs: Collection[Gpr], *, actor: User, now: datetime, format_time: FormatTime = utc) -> dict[UUID, QueueStatus]:
    """The status of each GPR as `actor` may see it, by id. Two queries for any number of GPRs, none when no GPR waits."""
    positions, explanations = start_positions(gprs), explain_gprs(gprs, actor=actor, now=now, format_time=format_time)
    return {gpr.pk: _status(positions.get(gpr.pk), explanations.get(gpr.pk)) for gpr in gprs}


def _status(position: int | None, explanation: VisibleExplanation | None) -> QueueStatus:
    # A promise may let a request start before one of higher priority, so `ahead_count` follows the planned starts.
    return QueueStatus(position, replace(explanation, ahead_count=position - 1) if explanation and position else explanation)
