"""Cancels followers whose predecessor did not end as they need it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from django.db.models import Q

from core.written_sql import WrittenQuery
from gpr.models import ENDED, ENDED_WELL, AfterCondition, Gpr, GprState, JobOutcome
from gpr.requests.editing import gpr_cancel
from journal.guard import set_aside_on_error

S = GprState
_ENDINGS: Final[Mapping[str, str]] = {
    S.CANCELED: "that was canceled",
    S.EVICTED: "that was evicted",
    S.FAILED: "that failed",
    S.REJECTED: "that was rejected",
}
_WAITS: Final = Gpr.objects.filter(after__isnull=False, after_condition=AfterCondition.SUCCESS, state__in=[S.QUEUED, S.PENDING_APPROVAL])
_BADLY: Final = Q(after__state__in=sorted(ENDED - ENDED_WELL)) | Q(
    after__state__in=sorted(ENDED_WELL), after__job__outcome__in=["", JobOutcome.FAILED]
)
_IN_VAIN: Final = WrittenQuery(_WAITS.filter(_BADLY).select_related("slice", "after"))


def followers_cancel(*, now: datetime) -> None:
    """Cancels requests that need a good end of their predecessor, which ended otherwise. Runs at each tick."""
    for gpr in _IN_VAIN():
        with set_aside_on_error("follower_cancel", "This request could not be canceled", now=now, gpr_id=gpr.pk):
            gpr_cancel(gpr=gpr, actor=None, now=now, why=_why(gpr))


def _why(gpr: Gpr) -> str:
    # Readers of its Events may be unable to see a request of another workspace, so only one of its own workspace is named.
    before = gpr.after
    if before is None:
        return ""
    name = before.name if before.slice_id == gpr.slice_id else "the request before it"
    return f"It was to start once {name} had ended well, but {_ENDINGS.get(before.state, 'its job did not succeed')}."
