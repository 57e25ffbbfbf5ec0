"""Records times when EGS itself was down: agents could not report then."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings

from core.written_sql import WrittenQuery
from gpr.models import AllocatorRecord
from inventory.models import HubAbsence

# EGS counts as away after so long without a tick, or without a sign of a web server. After a shorter gap agents still report in time.
AWAY_S: Final = 30
# Each web server writes this often that it is there.
SERVED_EVERY_S: Final = 10
ALLOCATOR_RECORD: Final = WrittenQuery(AllocatorRecord.objects.all())


def absence_of(record: AllocatorRecord | None, now: datetime) -> HubAbsence | None:
    """Returns the last absence up to `now`. An absence lasts until the next tick begins."""
    if record is None or (there_at := _last_there_at(record, now)) is None:
        return None
    last = HubAbsence(record.away_at, record.back_at) if record.away_at is not None and record.back_at is not None else None
    if (now - there_at).total_seconds() > AWAY_S:
        # A second absence before agents could report extends the first, so agents that were live before the first are waited for.
        # It is also the same absence when a web server stays away for many ticks.
        is_same = last is not None and last.began_at <= there_at <= last.ended_at + timedelta(seconds=settings.EGS_AGENT_UNREACHABLE_S)
        return HubAbsence(last.began_at if last is not None and is_same else there_at, now)
    # An absence that ends later than now means that the clock was set back.
    return last if last is not None and last.ended_at <= now else None


def is_just_over(absence: HubAbsence | None, now: datetime) -> bool:
    """Agents have had too little time since then to report."""
    return absence is not None and (now - absence.ended_at).total_seconds() <= settings.EGS_AGENT_UNREACHABLE_S


def was_just_away(*, now: datetime) -> bool:
    """Runs one query."""
    return is_just_over(absence_of(next(iter(ALLOCATOR_RECORD()), None), now), now)


def web_server_seen(*, now: datetime) -> None:
    AllocatorRecord.objects.update(served_at=now)


def _last_there_at(record: AllocatorRecord, now: datetime) -> datetime | None:
    # Web servers count only if one has ever reported.
    ticked_at = _last_ticked_at(record, now)
    return ticked_at and min(ticked_at, record.served_at or ticked_at)


def _last_ticked_at(record: AllocatorRecord, now: datetime) -> datetime | None:
    # A failed tick has only `began_at`. `last_tick_at` may be later than now if the clock was set back.
    over_at = record.last_tick_at and min(record.last_tick_at, now) + timedelta(seconds=record.last_duration_s)
    return max((at for at in (record.began_at, over_at) if at is not None), default=None)
