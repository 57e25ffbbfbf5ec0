"""Looks for requests on which nobody has decided in time. It does not import the planner, which needs 80 MB, until there is one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db.models import QuerySet

from gpr.models import Gpr, GprState
from journal.notices.periodic import Throttle

_THROTTLE: Final = Throttle(timedelta(seconds=30))


def approvals_watch(*, now: datetime) -> None:
    """Does nothing within half a minute of the last time."""
    if _THROTTLE.is_due(now) and (late := overdue(now)).exists():
        from gpr.approvals.services import approvals_expire

        approvals_expire(late, now=now)


def overdue(now: datetime) -> QuerySet[Gpr]:
    return Gpr.objects.filter(state=GprState.PENDING_APPROVAL, decide_by_at__lte=now)
