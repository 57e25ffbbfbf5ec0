"""Writes times and sizes as people read them. Times are those of the reader's clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime

NOW_S = 3.0
UTC_TEXT = re.compile(r"(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d) UTC")
SPANS = re.compile(r"\d+ (?:d|h|min|s)\b(?: \d+ (?:h|min|s)\b)*")
MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400


def span(span_s: float) -> str:
    """Writes `38 s`, `45 min`, `3 h 05 min`, `2 d 4 h`."""
    whole_s = max(round(span_s), 0)
    days, hours, minutes = whole_s // DAY_S, whole_s % DAY_S // HOUR_S, whole_s % HOUR_S // MINUTE_S
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes:02d} min" if minutes else f"{hours} h"
    if whole_s >= 2 * MINUTE_S or (minutes and not whole_s % MINUTE_S):
        return f"{minutes} min"
    return f"{whole_s} s"


def clock(at: datetime) -> str:
    """`14:20`, or with its day where that is another one."""
    here = at.astimezone()
    is_today = here.date() == datetime.now().astimezone().date()
    return f"{here:%H:%M}" if is_today else f"{here:%a %d %b %H:%M}"


def when(at: datetime | None) -> str:
    """Writes `in 1 h 12 min (14:20)`."""
    return "-" if at is None else f"{soon(at)} ({clock(at)})"


def by(at: datetime | None) -> str:
    """Writes `14:20 (in 1 h 12 min)`, after "promised by"."""
    return "-" if at is None else f"{clock(at)} ({soon(at)})"


def soon(at: datetime | None) -> str:
    """Writes `in 1 h 12 min`, for a table."""
    if at is None:
        return "-"
    wait_s = (at - datetime.now(UTC)).total_seconds()
    if abs(wait_s) < NOW_S:
        return "now"
    return f"in {span(wait_s)}" if wait_s > 0 else f"{span(-wait_s)} ago"


def size(nodes: int, gpus_per_node: int | None, shape: str, memory_gib: int | None = None) -> str:
    """Writes `2 x 8 H100-80GB`."""
    what = shape or (f">= {memory_gib} GiB" if memory_gib else "any")
    return f"{nodes} x {gpus_per_node or 'all'} {what}"


def here(sentence: str) -> str:
    """Returns the server's sentence, with times of the reader's clock."""
    return UTC_TEXT.sub(lambda found: clock(datetime.fromisoformat(found[1]).replace(tzinfo=UTC)), sentence)


def without_spans(text: str) -> str:
    """Removes the spans of time from a line, so that a line that only counts down equals the one before."""
    return SPANS.sub("…", text)


def counted(count: int, noun: str) -> str:
    """Writes `1 step`, `2 steps`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def yes(is_true: bool) -> str:
    return "yes" if is_true else "no"
