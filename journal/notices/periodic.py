"""This step runs every second or two, in a worker or in a thread of the one process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from core.clock import db_now
from journal.guard import set_aside_on_error
from journal.notices.deliveries import deliveries_send, prune
from journal.notices.outbox import outbox_expand
from journal.retention import events_prune

Watcher = Callable[..., None]
_watchers: list[Watcher] = []


def watch_by(watcher: Watcher) -> None:
    """`watcher(now=…)` writes Events of what only time brings about. Call it from an app's `ready`."""
    _watchers.append(watcher)


class Throttle:
    """Lets something be done once in a while in each process."""

    def __init__(self, every: timedelta) -> None:
        self._every = every
        self._last_at: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        if self._last_at is not None and self._last_at <= now < self._last_at + self._every:
            return False
        self._last_at = now
        return True


_PRUNING: Final = Throttle(timedelta(hours=1))


def notices_step(*, now: datetime | None = None) -> None:
    """It may run in several processes at once, and be killed at any moment."""
    now = now or db_now()
    for watcher in _watchers:
        with set_aside_on_error("notice_watch", "EGS could not look for notices that are due", now=now):
            watcher(now=now)
    outbox_expand(now=now)
    deliveries_send()
    if _PRUNING.is_due(now):
        prune(now=now)
        events_prune(now=now)
