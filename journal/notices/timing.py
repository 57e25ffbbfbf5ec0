"""Computes when a message goes out: quiet hours, digests and the pauses between attempts. It reads no clock and no database."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from journal.models import Digest, NoticeSettings

PAUSES_S: Final = (10, 60, 300, 900, 3600, 3 * 3600, 6 * 3600)
ATTEMPTS_MAX: Final = len(PAUSES_S) + 1
JITTER: Final = 0.2
DAILY_AT: Final = time(8)


def due_at(*, now: datetime, digest: str, of: NoticeSettings, is_error: bool) -> datetime:
    """Errors wait for nothing."""
    if is_error:
        return now
    return quiet_end(digest_at(now, digest, zone_of(of)), of)


def digest_at(now: datetime, digest: str, zone: tzinfo) -> datetime:
    """Returns the next full hour, or the next morning at DAILY_AT, strictly after now."""
    if digest == Digest.NONE:
        return now
    if digest == Digest.HOURLY:
        return now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return _next(now, DAILY_AT, zone)


def quiet_end(at: datetime, of: NoticeSettings) -> datetime:
    """`at`, or the end of the quiet hours in which it lies."""
    begin, end = of.quiet_from, of.quiet_until
    if begin is None or end is None or begin == end:
        return at
    local = at.astimezone(zone_of(of)).time()
    is_quiet = begin <= local < end if begin < end else local >= begin or local < end
    return _next(at, end, zone_of(of)) if is_quiet else at


def pause(attempt_count: int, *, draw: float) -> timedelta:
    """Returns the pause after this many attempts. `draw` is between 0 and 1: receivers that failed together are not retried together."""
    pause_s = PAUSES_S[min(attempt_count, len(PAUSES_S)) - 1]
    return timedelta(seconds=pause_s * (1 - JITTER + 2 * JITTER * draw))


def zone_of(of: NoticeSettings) -> tzinfo:
    try:
        return ZoneInfo(of.zone)
    except (ValueError, OSError, KeyError):
        return UTC  # the time zone database of this machine has lost it


def _next(after: datetime, at: time, zone: tzinfo) -> datetime:
    local = after.astimezone(zone)
    day = local.date() if local.time() < at else local.date() + timedelta(days=1)
    return datetime.combine(day, at, tzinfo=zone).astimezone(UTC)
