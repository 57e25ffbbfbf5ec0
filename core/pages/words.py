"""Writes times, durations and numbers as pages show them. `zone` is the reader's time zone.

Relative times count whole minutes of the clock, so that they agree with exact ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from core.words import (
    DAY_S,
    DURATION_S_MAX,
    HOUR_S,
    MINUTE_S,
    UTC_FORMAT,
    UTC_TEXT,
    duration,
    duration_exact,
    duration_parse,
    hours,
    number,
    plural,
    split,
)
from protocol.nodes.steps import step_name

__all__ = [
    "DAY_S",
    "DURATION_S_MAX",
    "HOUR_S",
    "MINUTE_S",
    "duration",
    "duration_exact",
    "duration_parse",
    "hours",
    "number",
    "plural",
    "step_name",
]

STATE_WORDS = {
    "PENDING_APPROVAL": "Needs approval",
    "QUEUED": "Queued",
    "PROVISIONING": "Provisioning",
    "ACTIVE": "Active",
    "EXITING": "Exiting",
    "COMPLETED": "Completed",
    "RELEASED": "Released",
    "EVICTED": "Evicted",
    "FAILED": "Failed",
    "CANCELED": "Canceled",
    "REJECTED": "Rejected",
    "BOOKED": "Booked",
}
NODE_WORDS = {"free": "Free", "held": "Held", "draining": "Draining", "set-aside": "Set aside", "silent": "Silent"}
STEP_WORDS = {
    "waiting": "Waiting",
    "running": "Running",
    "passed": "Passed",
    "warned": "Warned",
    "failed": "Failed",
    "skipped": "Skipped",
}
END_REASON_WORDS = {
    "EXPIRED": "ran its window",
    "EARLY_RELEASE": "early release",
    "EVICTED": "evicted",
    "IDLE": "idle",
    "NODE_FAILURE": "node failed",
    "CHECK_FAILED": "check failed",
    "ADMIN": "by an admin",
}


def moment(at: datetime, *, now: datetime, zone: tzinfo) -> str:
    """Returns `14:20` today, `Fri 03:40` within a week, else `3 Dec 14:20` or `3 Dec 2027 14:20`."""
    local, today = at.astimezone(zone), now.astimezone(zone).date()
    days = (local.date() - today).days
    if days == 0:
        return f"{local:%H:%M}"
    if -7 < days < 7:
        return f"{local:%a %H:%M}"
    year = "" if local.year == today.year else f" {local.year}"
    return f"{local.day} {local:%b}{year} {local:%H:%M}"


def moment_title(at: datetime, *, zone: tzinfo) -> str:
    """Returns e.g. `Thu 19 Nov 16:21 CET, 15:21 UTC`."""
    local, utc = at.astimezone(zone), at.astimezone(UTC)
    text = f"{local:%a} {local.day} {local:%b} {local:%H:%M} {zone_name(at, zone=zone)}"
    if zone_name(at, zone=zone) == "UTC":
        return text
    day = "" if local.date() == utc.date() else f"{utc:%a} {utc.day} {utc:%b} "
    return f"{text}, {day}{utc:%H:%M} UTC"


def moments_in(sentence: str) -> Iterator[str | datetime]:
    """Split a service's sentence into text and times (see core/words.py)."""
    begin = 0
    for found in UTC_TEXT.finditer(sentence):
        try:
            at = datetime.strptime(found[0], UTC_FORMAT).replace(tzinfo=UTC)
        except ValueError:
            continue  # a text that only looks like a time
        yield sentence[begin : found.start()]
        yield at
        begin = found.end()
    yield sentence[begin:]


def zone_name(at: datetime, *, zone: tzinfo) -> str:
    """Returns e.g. `CET`, `UTC`, `UTC+03`."""
    name = at.astimezone(zone).tzname() or "UTC"
    return f"UTC{name}" if name[:1] in "+-" else name


def relative(at: datetime, *, now: datetime) -> str:
    """Returns e.g. `in 1 h 12 min`, `4 min ago`, `now`."""
    span = _clock_span(at, now)
    if span is None:
        return "now"
    return f"in {span}" if at > now else f"{span} ago"


def left(at: datetime, *, now: datetime) -> str:
    """Returns e.g. `3 h 13 min left`."""
    if at <= now:
        return "over"
    return f"{_clock_span(at, now) or 'under 1 min'} left"


def starts(at: datetime, *, now: datetime) -> str:
    return "Starts now" if at - now < timedelta(minutes=1) else f"Starts {relative(at, now=now)}"


def late(span_s: float) -> str:
    """Returns e.g. `+45 min`, and nothing under a minute."""
    return f"+{_coarse(int(span_s))}" if span_s >= MINUTE_S else ""


def duration_narrow(span_s: float) -> str:
    """Returns e.g. `45m`, `3h05`, `2d4h`."""
    days, hours, minutes, _ = split(span_s)
    if days:
        return f"{days}d{hours}h" if hours else f"{days}d"
    return f"{hours}h{minutes:02d}" if hours else f"{minutes}m"


def ask(nodes: int, gpus_per_node: int | None, shape: str = "") -> str:
    """Returns e.g. `4 × 8 H100-80GB`, or `4 nodes H100-80GB` without a number of GPUs."""
    size = f"{nodes} × {gpus_per_node}" if gpus_per_node else plural(nodes, "node")
    return f"{size} {shape}".rstrip()


def initials(name: str) -> str:
    """Returns `NB` of Nadia Brandt, `VI` of vision."""
    words = re.findall(r"\w+", name)
    letters = words[0][0] + words[-1][0] if len(words) > 1 else "".join(words)[:2]
    return letters.upper() or "?"


def _clock_span(at: datetime, now: datetime) -> str | None:
    if abs(at - now) < timedelta(minutes=1):
        return None
    minutes = abs(int(at.timestamp() // MINUTE_S) - int(now.timestamp() // MINUTE_S))
    return _coarse(minutes * MINUTE_S)


def _coarse(span_s: int) -> str:
    return duration_exact(span_s - span_s % (HOUR_S if span_s >= DAY_S else MINUTE_S))
