"""Spans of time, counts and moments inside a sentence, as people read them: for what services say, and for pages (egs/pages/words.py).

A moment in a stored sentence is written by `utc`, whoever reads it; a page that finds it there shows it in the zone of its reader.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400

UTC_FORMAT = "%Y-%m-%d %H:%M:%S UTC"
UTC_TEXT = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", re.ASCII)


def utc(at: datetime) -> str:
    """`2026-11-19 15:21:00 UTC`."""
    return f"{at.astimezone(UTC):{UTC_FORMAT}}"


def duration(span_s: float) -> str:
    """`38 s`, `2 min 06 s`, `45 min`, `3 h 05 min`, `2 d 4 h`: exact to the second under an hour, then to the minute."""
    return duration_exact(span_s if span_s < HOUR_S else span_s - span_s % MINUTE_S)


def duration_exact(span_s: float) -> str:
    """To the second. What a field of a page reads back as the same number of seconds."""
    days, hours, minutes, seconds = split(span_s)
    parts: list[str] = []
    for count, unit in ((days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")):
        if count:
            parts.append(f"{count:02d} {unit}" if parts and unit in {"min", "s"} else f"{count} {unit}")
    return " ".join(parts) or "0 s"


def number(value: float) -> str:
    """`10,000`; one decimal when it has any: `5.4`."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def plural(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `10,000 queries`."""
    if count == 1:
        return f"1 {noun}"
    ending = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"
    return f"{number(count)} {ending}"


def are(count: int) -> str:
    """The verb behind a count: 1 node is, 2 nodes are."""
    return "is" if count == 1 else "are"


def split(span_s: float) -> tuple[int, int, int, int]:
    """Days, hours, minutes, seconds."""
    whole_s = max(0, int(span_s))
    return whole_s // DAY_S, whole_s % DAY_S // HOUR_S, whole_s % HOUR_S // MINUTE_S, whole_s % MINUTE_S
