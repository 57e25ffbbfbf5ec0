"""Append-only Events on SQLite; for PostgreSQL see migration 0002."""

from __future__ import annotations

from typing import Final

from core.triggers import Triggers

TRIGGERS: Final[Triggers] = {
    f"journal_event_no_{verb.lower()}": (
        "journal_event",
        f"BEFORE {verb} ON journal_event BEGIN SELECT RAISE(ABORT, 'journal_event is append-only'); END",
    )
    for verb in ("UPDATE", "DELETE")
}
