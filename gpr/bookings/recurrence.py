"""When a series of bookings starts: by the clock on the wall of its time zone. Pure."""

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
    """Ends with `until_at` (a start at that very moment is the last) or after `count` starts, whichever is given."""

    first_at: datetime
    rule: RepeatRule
    zone: ZoneInfo
    until_at: datetime | None = None
    count: int | None = None

    def starts(self) -> list[datetime]:
        """All of them, but one more than is allowed at most: so that too many are seen as such."""
        last_at = self.until_at or self.first_at + 2 * SPAN_MAX
        return list(
            islice(takewhile(lambda at: at <= last_at, self._endless()), min(self.count or OCCURRENCES_MAX + 1, OCCURRENCES_MAX + 1))
        )

    def _endless(self) -> Iterator[datetime]:
        """The same time of day whatever daylight saving does. What is skipped in spring is an hour later; of two in autumn the first."""
        wall = self.first_at.astimezone(self.zone).replace(tzinfo=None, fold=0)
        step = timedelta(days=7 if self.rule == RepeatRule.WEEKLY else 1)
        while True:
            if self.rule != RepeatRule.WEEKDAYS or wall.weekday() < SATURDAY:
                yield wall.replace(tzinfo=self.zone).astimezone(UTC)
            wall += step


def shortest_gap(starts: Sequence[datetime]) -> timedelta | None:
    """Between two that follow each other: an hour less than its period where a clock goes forward. None for a single one."""
    return min((later - earlier for earlier, later in pairwise(starts)), default=None)
