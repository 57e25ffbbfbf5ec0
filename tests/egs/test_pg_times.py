"""A time that PostgreSQL holds is read as Django would read it, whoever parses it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import DataError, connection

pytestmark = [pytest.mark.django_db, pytest.mark.postgres_only]


def read(text: str) -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::timestamptz", [text])
        (moment,) = cursor.fetchone()
    assert isinstance(moment, datetime)
    return moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-25 03:17:23.8+00", datetime(2026, 11, 25, 3, 17, 23, 800_000, UTC)),
        ("2026-11-25 03:17:23.000001+02", datetime(2026, 11, 25, 1, 17, 23, 1, UTC)),
        ("0001-01-01 00:00:00+00", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31 23:59:59.999999+00", datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
    ],
)
def test_a_time_comes_back_to_the_microsecond_and_in_utc(text: str, moment: datetime) -> None:
    assert read(text) == moment
    assert read(text).tzinfo is UTC


def test_the_fast_parser_is_the_one_in_use() -> None:
    connection.ensure_connection()
    assert connection.connection.adapters.get_loader(1184, 0).__name__ == "UtcLoader"


@pytest.mark.parametrize("text", ["infinity", "-infinity", "294276-01-01 00:00:00+00", "0044-03-15 10:00:00+00 BC"])
def test_what_no_calendar_holds_is_refused_and_not_made_up(text: str) -> None:
    with pytest.raises(DataError):
        read(text)
