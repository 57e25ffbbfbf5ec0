"""Computes start times of a series of bookings, by the local time of its time zone. It is pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from gpr.models import RepeatRule

OCCURRENCES_MAX = 200
SPAN_MAX = timedelta(days=366)
SATURDAY = 5


@dataclass(frozen=True, slots=True)
class Recurrence:
    """It ends with `until_at` (inclusive) or after `count` starts."""

    first_at: datetime
    rule: RepeatRule
    zone: ZoneInfo
    until_at: datetime | None = None
    count: int | None = None

    def starts(self) -> list[datetime]:
        """Returns at most OCCURRENCES_MAX + 1 times, so that the caller can detect too many."""
        last_at = self.until_at or self.first_at + 2 * SPAN_MAX
        return list(
            islice(takewhile(lambda at: at <= last_at, self._endless()), min(self.count or OCCURRENCES_MAX + 1, OCCURRENCES_MAX + 1))
        )

    def _endless(self) -> Iterator[datetime]:
        # The local time of day stays the same. A time that daylight saving skips is an hour later; of a repeated one the first counts.
        wall = self.first_at.astimezone(self.zone).replace(tzinfo=None, fold=0)
        step = timedelta(days=7 if self.rule == RepeatRule.WEEKLY else 1)
        while True:
            if self.rule != RepeatRule.WEEKDAYS or wall.weekday() < SATURDAY:
                yield wall.replace(tzinfo=self.zone).astimezone(UTC)
            wall += step


def shortest_gap(starts: Sequence[datetime]) -> timedelta | None:
    # An hour less than the period when clocks go forward. None for a single start.
    return min((later - earlier for earlier, later in pairwise(starts)), default=None)
