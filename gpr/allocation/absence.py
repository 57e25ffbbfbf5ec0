"""EGS itself was away: no tick for a while, or no web server. No agent could be heard then, so that is no silence of theirs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.conf import settings

from gpr.models import AllocatorRecord
from inventory.models import HubAbsence

# No tick for so long after the last one was over, or no word of a web server. After a shorter gap agents have time enough left to be heard.
AWAY_S: Final = 30
# Each web server says that it is there.
SERVED_EVERY_S: Final = 10


def absence_load(*, now: datetime) -> HubAbsence | None:
    """The last one. One query."""
    return absence_of(AllocatorRecord.objects.first(), now)


def absence_of(record: AllocatorRecord | None, now: datetime) -> HubAbsence | None:
    """Until a tick begins it lasts, whoever plans meanwhile. None of what is yet to come: the clock was set back."""
    if record is None or (there_at := _last_there_at(record, now)) is None:
        return None
    last = HubAbsence(record.away_at, record.back_at) if record.away_at is not None and record.back_at is not None else None
    if (now - there_at).total_seconds() > AWAY_S:
        # Away again before agents had their time: then those who were live before the first absence are waited for.
        # Or it is the same still: a web server is away for many ticks.
        is_same = last is not None and last.began_at <= there_at <= last.ended_at + timedelta(seconds=settings.EGS_AGENT_UNREACHABLE_S)
        return HubAbsence(last.began_at if last is not None and is_same else there_at, now)
    return last if last is not None and last.ended_at <= now else None


def is_just_over(absence: HubAbsence | None, now: datetime) -> bool:
    """Agents have not had their time since to say how it stands."""
    return absence is not None and (now - absence.ended_at).total_seconds() <= settings.EGS_AGENT_UNREACHABLE_S


def was_just_away(*, now: datetime) -> bool:
    """EGS itself. One query."""
    return is_just_over(absence_load(now=now), now)


def web_server_seen(*, now: datetime) -> None:
    """A web server is there."""
    AllocatorRecord.objects.update(served_at=now)


def _last_there_at(record: AllocatorRecord, now: datetime) -> datetime | None:
    """When both were: ticks, and web servers where any has ever said so."""
    ticked_at = _last_ticked_at(record, now)
    return ticked_at and min(ticked_at, record.served_at or ticked_at)


def _last_ticked_at(record: AllocatorRecord, now: datetime) -> datetime | None:
    """When a tick began, also one that failed; or when one that took long was over."""
    # Later than now it may be where the clock was set back.
    over_at = record.last_tick_at and min(record.last_tick_at, now) + timedelta(seconds=record.last_duration_s)
    return max((at for at in (record.began_at, over_at) if at is not None), default=None)
