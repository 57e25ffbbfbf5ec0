"""The times of messages follow from rules, without a clock."""

from __future__ import annotations

from datetime import datetime, time
from zoneinfo import ZoneInfo

import pytest

from journal.models import Digest, NoticeSettings
from journal.notices.timing import digest_at, due_at, quiet_end

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = NoticeSettings(zone="Europe/Berlin", quiet_from=time(22), quiet_until=time(7))
NOON = NoticeSettings(zone="Europe/Berlin", quiet_from=time(12), quiet_until=time(13))


def berlin(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("wishes", "at", "expected"),
    [
        (NIGHT, "2027-01-15 21:59", "2027-01-15 21:59"),
        (NIGHT, "2027-01-15 22:00", "2027-01-16 07:00"),
        (NIGHT, "2027-01-16 06:59", "2027-01-16 07:00"),
        (NIGHT, "2027-01-16 07:00", "2027-01-16 07:00"),
        (NIGHT, "2027-03-27 23:00", "2027-03-28 07:00"),  # clocks go forward in this night
        (NIGHT, "2027-10-30 23:00", "2027-10-31 07:00"),  # and back in this one
        (NOON, "2027-01-15 12:30", "2027-01-15 13:00"),
        (NOON, "2027-01-15 13:30", "2027-01-15 13:30"),
        (NoticeSettings(), "2027-01-15 23:00", "2027-01-15 23:00"),
        (NoticeSettings(zone="No/Such", quiet_from=time(5), quiet_until=time(5)), "2027-01-15 05:00", "2027-01-15 05:00"),
    ],
)
def test_quiet_hours_end_by_the_clock_on_the_wall(wishes: NoticeSettings, at: str, expected: str) -> None:
    assert quiet_end(berlin(at), wishes) == berlin(expected)


def test_a_digest_comes_with_the_next_hour_or_morning_and_after_quiet_hours() -> None:
    at = berlin("2027-01-15 08:00")
    assert digest_at(at, Digest.HOURLY, BERLIN) == berlin("2027-01-15 09:00")
    assert digest_at(at, Digest.DAILY, BERLIN) == berlin("2027-01-16 08:00")
    assert digest_at(berlin("2027-01-15 07:59"), Digest.DAILY, BERLIN) == at
    late = berlin("2027-01-15 21:30")
    assert due_at(now=late, digest=Digest.HOURLY, of=NIGHT, is_error=False) == berlin("2027-01-16 07:00")
    assert due_at(now=late, digest=Digest.HOURLY, of=NIGHT, is_error=True) == late
