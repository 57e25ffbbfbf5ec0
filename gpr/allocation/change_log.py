"""Finds the changed rows that plans read, by one query of a log that triggers write.

PostgreSQL hands out row ids before it commits, so the log is read by transaction: from the oldest one that was open at the last look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max

from gpr.models import AllocatorRecord, PlanChange

# A process that missed more changes than these reads everything anew.
KEPT_COUNT: Final = 20_000
NO_TRANSACTION_YET: Final = 2**62

POSTGRESQL: Final = """
    SELECT log.until, log.pruned, change.id, change.transaction_id, change.kind, change.key FROM (
        SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS until,
        COALESCE((SELECT MAX(changes_pruned_to) FROM gpr_allocatorrecord), 0) AS pruned
    ) AS log LEFT JOIN gpr_planchange AS change ON change.transaction_id >= %s
"""
SQLITE: Final = """
    SELECT log.until, log.pruned, change.id, change.id, change.kind, change.key FROM (
        SELECT COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'gpr_planchange'), 0) + 1 AS until,
        COALESCE((SELECT MAX(changes_pruned_to) FROM gpr_allocatorrecord), 0) AS pruned
    ) AS log LEFT JOIN gpr_planchange AS change ON change.id >= %s
"""


@dataclass(frozen=True, slots=True)
class Changes:
    """Holds the ids of what changed. If `everything` is set, the changes are unknown and the reader reads all rows."""

    gprs: frozenset[UUID] = frozenset()
    nodes: frozenset[UUID] = frozenset()
    slices: frozenset[UUID] = frozenset()
    settings: bool = False  # quotas, projects and their usage, maintenance windows, or whether there are supplies
    everything: bool = False

    def __or__(self, other: Changes) -> Changes:
        settings, everything = self.settings or other.settings, self.everything or other.everything
        return Changes(self.gprs | other.gprs, self.nodes | other.nodes, self.slices | other.slices, settings, everything)


@dataclass(frozen=True, slots=True)
class _Mark:
    """`since`: the first transaction, on SQLite row, that may hold news; `known`: rows from there on that are known."""

    since: int
    known: frozenset[int]


@dataclass
class ChangeLog:
    """It reads the log. Its reads within a transaction count only when that commits; until then it reads them again each time."""

    _mark: _Mark | None = None
    _latest_mark: _Mark | None = None
    _unconfirmed: Changes = field(default_factory=lambda: Changes(everything=True))
    _lock: RLock = field(default_factory=RLock)

    def catch_up(self, read: Callable[[Changes], None]) -> None:
        """Call `read` with what changed since the last time."""
        with self._lock:
            changes, mark = self._news()
            changes |= self._unconfirmed
            self._unconfirmed, self._latest_mark = Changes(everything=True), None  # in case that `read` fails
            read(changes)
            self._unconfirmed, self._latest_mark = changes, mark
        transaction.on_commit(partial(self._confirm, mark))

    def _confirm(self, mark: _Mark) -> None:
        with self._lock:
            if self._latest_mark is mark:
                self._mark, self._unconfirmed = mark, Changes()

    def _news(self) -> tuple[Changes, _Mark]:
        since = NO_TRANSACTION_YET if self._mark is None else self._mark.since
        rows = _rows_since(since)
        until, pruned, *_ = rows[0]
        found = [row for row in rows if row[2] is not None]
        mark = _Mark(until, frozenset(row[2] for row in found if row[3] >= until))
        if self._mark is None or pruned >= since or until < since:  # another server counts transactions anew
            return Changes(everything=True), mark
        new = [(kind, _uuid(key)) for _, _, id_, _, kind, key in found if id_ not in self._mark.known]
        gprs, nodes, slices = (frozenset(key for kind, key in new if kind == wanted) for wanted in ("gpr", "node", "slice"))
        return Changes(gprs, nodes, slices, settings=any(kind == "settings" for kind, _ in new)), mark


def changes_prune() -> None:
    """Delete all but the newest changes."""
    newest = PlanChange.objects.aggregate(newest=Max("pk"))["newest"] or 0
    old = PlanChange.objects.filter(pk__lte=newest - KEPT_COUNT)
    pruned = old.aggregate(row=Max("pk"), transaction=Max("transaction_id"))
    if pruned["row"] is None:
        return
    with transaction.atomic():
        AllocatorRecord.objects.update(changes_pruned_to=pruned["transaction"] or pruned["row"])
        if pruned["transaction"] is not None:  # a later transaction may have stored an earlier row since
            old = old.filter(transaction_id__lte=pruned["transaction"])
        old.delete()


def _rows_since(since: int) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(POSTGRESQL if connection.vendor == "postgresql" else SQLITE, [since])
        return list(cursor.fetchall())


def _uuid(key: UUID | str) -> UUID:
    return key if isinstance(key, UUID) else UUID(key)
