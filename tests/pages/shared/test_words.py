from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.pages import words
from core.words import utc

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 19, 12, 8, 4, tzinfo=UTC)  # 13:08:04 in Berlin, a Thursday


def berlin(year: int, month: int, day: int, hour: int, minute: int) -> datetime:
    return datetime(year, month, day, hour, minute, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (berlin(2026, 11, 19, 14, 20), "14:20"),
        (berlin(2026, 11, 20, 3, 40), "Fri 03:40"),
        (berlin(2026, 11, 25, 23, 59), "Wed 23:59"),
        (berlin(2026, 11, 26, 9, 0), "26 Nov 09:00"),
        (berlin(2026, 12, 3, 14, 20), "3 Dec 14:20"),
        (berlin(2027, 1, 2, 8, 5), "2 Jan 2027 08:05"),
        (berlin(2026, 11, 16, 11, 5), "Mon 11:05"),
    ],
)
def test_a_moment_is_said_no_longer_than_it_must_be(at: datetime, said: str) -> None:
    assert words.moment(at, now=NOW, zone=BERLIN) == said


def test_today_is_the_readers_day_and_not_that_of_utc() -> None:
    just_after_midnight = datetime(2026, 11, 19, 23, 30, tzinfo=UTC)

    assert words.moment(just_after_midnight, now=NOW, zone=BERLIN) == "Fri 00:30"
    assert words.moment(just_after_midnight, now=NOW, zone=UTC) == "23:30"


@pytest.mark.parametrize(
    ("at", "zone", "title"),
    [
        (datetime(2026, 11, 19, 15, 21, tzinfo=UTC), "Europe/Berlin", "Thu 19 Nov 16:21 CET, 15:21 UTC"),
        (datetime(2026, 11, 19, 23, 21, tzinfo=UTC), "Europe/Berlin", "Fri 20 Nov 00:21 CET, Thu 19 Nov 23:21 UTC"),
        (datetime(2026, 11, 19, 15, 21, tzinfo=UTC), "UTC", "Thu 19 Nov 15:21 UTC"),
        (datetime(2026, 11, 19, 15, 21, tzinfo=UTC), "America/Sao_Paulo", "Thu 19 Nov 12:21 UTC-03, 15:21 UTC"),
    ],
)
def test_the_title_of_a_moment_names_the_readers_zone_and_utc(at: datetime, zone: str, title: str) -> None:
    assert words.moment_title(at, zone=ZoneInfo(zone)) == title


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (berlin(2026, 11, 19, 14, 20), "in 1 h 12 min"),
        (berlin(2026, 11, 19, 13, 4), "4 min ago"),
        (NOW + timedelta(seconds=59), "now"),
        (NOW - timedelta(seconds=59), "now"),
        (NOW + timedelta(seconds=60), "in 1 min"),
        (NOW + timedelta(days=2, hours=4, minutes=31), "in 2 d 4 h"),
    ],
)
def test_a_relative_time_agrees_with_the_clock_to_the_minute(at: datetime, said: str) -> None:
    assert words.relative(at, now=NOW) == said


def test_time_left_says_when_it_is_over() -> None:
    assert words.left(berlin(2026, 11, 19, 16, 21), now=NOW) == "3 h 13 min left"
    assert words.left(NOW + timedelta(seconds=5), now=NOW) == "under 1 min left"
    assert words.left(NOW, now=NOW) == "over"


@pytest.mark.parametrize(
    ("span_s", "said", "narrow"),
    [
        (38, "38 s", "0m"),
        (126, "2 min 06 s", "2m"),
        (2_700, "45 min", "45m"),
        (10_800, "3 h", "3h00"),
        (11_100, "3 h 05 min", "3h05"),
        (11_121, "3 h 05 min", "3h05"),
        (187_200, "2 d 4 h", "2d4h"),
        (86_400 + 5_400, "1 d 1 h 30 min", "1d1h"),
        (0, "0 s", "0m"),
    ],
)
def test_durations_are_said_in_the_units_that_matter(span_s: int, said: str, narrow: str) -> None:
    assert words.duration(span_s) == said
    assert words.duration_narrow(span_s) == narrow


@pytest.mark.parametrize(
    ("text", "span_s"),
    [
        ("90 min", 5_400),
        ("1h30m", 5_400),
        ("PT90M", 5_400),
        ("pt1h30m", 5_400),
        ("P2DT4H", 187_200),
        ("2 d 4 h", 187_200),
        ("3h05", 11_100),
        (" 3 Hours 5 minutes ", 11_100),
        ("45 s", 45),
    ],
)
def test_durations_are_understood_as_people_write_them(text: str, span_s: int) -> None:
    assert words.duration_parse(text) == span_s


@pytest.mark.parametrize("text", ["", "3", "90 parsecs", "h", "PT", "-1 h", "1.5 h", "9999999999 h", "999999999 d", "1 h 2 h", "٣ h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        words.duration_parse(text)


@given(st.integers(min_value=1, max_value=words.DURATION_S_MAX))
def test_a_form_gives_back_the_duration_that_it_was_given(span_s: int) -> None:
    assert words.duration_parse(words.duration_exact(span_s)) == span_s


@given(st.text(max_size=40))
def test_whatever_is_typed_is_a_duration_within_bounds_or_refused(text: str) -> None:
    with suppress(ValueError):
        assert 0 <= words.duration_parse(text) <= words.DURATION_S_MAX


def test_numbers_and_amounts_are_written_for_people() -> None:
    assert [words.number(10_000), words.number(5.4), words.number(0)] == ["10,000", "5.4", "0"]
    assert [words.plural(1, "node"), words.plural(2, "node"), words.plural(3, "policy")] == ["1 node", "2 nodes", "3 policies"]
    assert [words.ask(4, 8, "H100-80GB"), words.ask(1, None, "H100-80GB")] == ["4 × 8 H100-80GB", "1 node H100-80GB"]
    assert [words.late(2_700), words.late(59), words.late(-600)] == ["+45 min", "", ""]
    assert [words.initials("Nadia Brandt"), words.initials("vision"), words.initials("")] == ["NB", "VI", "?"]


def test_the_moments_in_a_sentence_are_found_and_nothing_of_it_is_lost() -> None:
    """Services write a moment in UTC; what only looks like one is somebody's own text."""
    sentence = f"From {utc(NOW)} to {utc(NOW + timedelta(hours=1))}, not 2026-99-99 00:00:00 UTC or 0001-01-01 00:00:00 UTC."

    parts = list(words.moments_in(sentence))

    assert parts[:4] == ["From ", NOW, " to ", NOW + timedelta(hours=1)]
    assert "".join(utc(part) if isinstance(part, datetime) else part for part in parts) == sentence
    assert list(words.moments_in("")) == [""]
