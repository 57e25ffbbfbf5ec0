"""Sets the effort of a run: `make test` tries a little of everything, `make soak` all of it."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from typing import Final

from hypothesis import settings

IS_SOAK: Final = os.environ.get("EGS_TEST_SOAK") == "1"
# deploy/run-tests sets it, so that all processes of a run agree at midnight; the same day again repeats a run.
DAY: Final = date.fromisoformat(os.environ.get("EGS_TEST_DAY") or f"{datetime.now(UTC):%Y-%m-%d}")
# A whole run of the quick suite runs a third of the tests that are marked `rotates`; whoever names a test gets it each day.
IS_ROTATING: Final = os.environ.get("EGS_TEST_ROTATES") == "1" and not IS_SOAK
TURNS: Final = 3
QUICK_SHARE: Final = 40
QUICK_LEAST: Final = 5


def examples(count: int, *, quick_count: int | None = None) -> settings:
    """Hypothesis settings for `count` examples in a soak, and otherwise `quick_count`: by default a fortieth of them, but five at least."""
    return settings(max_examples=count if IS_SOAK else quick_count or max(QUICK_LEAST, count // QUICK_SHARE))


def repeats(soak_count: int) -> int:
    """Returns how often a race is run: a fifth as often outside of a soak."""
    return soak_count if IS_SOAK else soak_count // 5


def seeds_of_today(quick_count: int, soak_count: int) -> range:
    """Seeds for a simulation: each day takes the next `quick_count` of them; a soak always takes 1 to `soak_count`."""
    if IS_SOAK:
        return range(1, soak_count + 1)
    first = 1 + DAY.toordinal() * quick_count % 1_000_000
    return range(first, first + quick_count)


def is_turn(place: int) -> bool:
    """Says whether this place of a list has its turn today: every third place has."""
    return place % TURNS == DAY.toordinal() % TURNS
