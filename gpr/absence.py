"""EGS itself was away: known by the gap between two ticks. No agent could be heard then, so that is no silence of theirs."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.conf import settings

from egs.readable import first_readable
from gpr.models import AllocatorRecord
from inventory.models import HubAbsence

# No tick for so long after the last one was over. After a shorter gap agents have time enough left to be heard.
AWAY_S: Final = 30


def absence_load(*, now: datetime) -> HubAbsence | None:
    """The last one. One query."""
    return absence_of(first_readable(AllocatorRecord.objects.all()), now)


def absence_of(record: AllocatorRecord | None, now: datetime) -> HubAbsence | None:
    """Until a whole tick is over it lasts, whoever plans meanwhile. None of what is yet to come: the clock was set back."""
    if record is None or record.last_tick_at is None:
        return None
    last = HubAbsence(record.away_at, record.back_at) if record.away_at is not None and record.back_at is not None else None
    # Not during a tick, however long that takes.
    if (now - record.last_tick_at).total_seconds() - record.last_duration_s > AWAY_S:
        # Away again before agents had their time: then those who were live before the first absence are waited for.
        is_same = last is not None and 0 <= (record.last_tick_at - last.ended_at).total_seconds() <= settings.EGS_AGENT_UNREACHABLE_S
        return HubAbsence(last.began_at if last is not None and is_same else record.last_tick_at, now)
    return last if last is not None and last.ended_at <= now else None
