"""The step that runs every second or two, in a worker or in a thread of the one process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ClassVar, Final

from core.clock import db_now
from journal.guard import set_aside_on_error
from journal.notices.deliveries import deliveries_send, prune
from journal.notices.outbox import outbox_expand

PRUNE_EVERY: Final = timedelta(hours=1)  # in each process
Watcher = Callable[..., None]
_watchers: list[Watcher] = []


def watch_by(watcher: Watcher) -> None:
    """`watcher(now=…)` writes Events of what only time brings about. Call it from an app's `ready`."""
    _watchers.append(watcher)


class Pruning:
    _last_at: ClassVar[datetime | None] = None

    @classmethod
    def is_due(cls, now: datetime) -> bool:
        if cls._last_at is not None and cls._last_at <= now < cls._last_at + PRUNE_EVERY:
            return False
        cls._last_at = now
        return True


def notices_step(*, now: datetime | None = None) -> None:
    """It may run in several processes at once, and be killed at any moment."""
    now = now or db_now()
    for watcher in _watchers:
        with set_aside_on_error("notice_watch", "What is due could not be looked for", now=now):
            watcher(now=now)
    outbox_expand(now=now)
    deliveries_send()
    if Pruning.is_due(now):
        prune(now=now)
