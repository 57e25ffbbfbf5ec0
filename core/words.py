"""Writes durations and times as text. Stored sentences hold times as `utc` writes them; pages show these in the reader's time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
# Longer than any box, and short enough that no sum leaves the calendar.
DURATION_S_MAX = 10_000 * DAY_S

UTC_FORMAT = "%Y-%m-%d %H:%M:%S UTC"
UTC_TEXT = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", re.ASCII)


def utc(at: datetime) -> str:
    """Returns e.g. `2026-11-19 15:21:00 UTC`."""
    return f"{at.astimezone(UTC):{UTC_FORMAT}}"


def duration(span_s: float) -> str:
    """Returns e.g. `38 s`, `2 min 06 s`, `45 min`, `3 h 05 min`, `2 d 4 h`."""
    return duration_exact(span_s if span_s < HOUR_S else span_s - span_s % MINUTE_S)


def duration_exact(span_s: float) -> str:
    days, hours, minutes, seconds = split(span_s)
    parts: list[str] = []
    for count, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")):
        if count:
            parts.append(f"{count:02d} {unit}" if parts and unit in {"min", "s"} else f"{count} {unit}")
    return " ".join(parts) or "0 s"


_UNITS = {
    "d": r"(\d{1,9})\s*(?:d|days?)",
    "h": r"(\d{1,9})\s*(?:h|hrs?|hours?)",
    "m": r"(\d{1,9})\s*(?:m|min|mins|minutes?)",
    "s": r"(\d{1,9})\s*(?:s|sec|secs|seconds?)",
}
_SPOKEN = re.compile(r"\s*".join(f"(?:{unit})?" for unit in _UNITS.values()), re.ASCII)
_NARROW = re.compile(r"(\d{1,9})h(\d\d)", re.ASCII)
_ISO = re.compile(r"p(?:(\d{1,9})d)?(?:t(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?)?", re.ASCII)


def duration_parse(text: str) -> int:
    """Read `90 min`, `1h30m`, `PT90M`, `2 d 4 h` or `3h05`. Raises ValueError, also without a unit."""
    text = text.strip().lower()
    narrow = _NARROW.fullmatch(text)
    if narrow:
        return _within(int(narrow[1]) * HOUR_S + int(narrow[2]) * MINUTE_S)
    match = _SPOKEN.fullmatch(text) or _ISO.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"no duration: {text!r}")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return _within(days * DAY_S + hours * HOUR_S + minutes * MINUTE_S + seconds)


def _within(span_s: int) -> int:
    if span_s > DURATION_S_MAX:
        raise ValueError(f"no duration: longer than {duration_exact(DURATION_S_MAX)}")
    return span_s


def number(value: float) -> str:
    """Returns e.g. `10,000`, `5.4`."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def hours(value: float) -> str:
    """Returns e.g. `12.3`, `1,742`."""
    return number(round(value, 1) if value < 100 else round(value))


def plural(count: int, noun: str) -> str:
    """Returns e.g. `1 node`, `2 nodes`, `10,000 queries`."""
    if count == 1:
        return f"1 {noun}"
    ending = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"
    return f"{number(count)} {ending}"


def are(count: int) -> str:
    return "is" if count == 1 else "are"


def split(span_s: float) -> tuple[int, int, int, int]:
    """Returns days, hours, minutes, seconds."""
    whole_s = max(0, int(span_s))
    return whole_s // DAY_S, whole_s % DAY_S // HOUR_S, whole_s % HOUR_S // MINUTE_S, whole_s % MINUTE_S
