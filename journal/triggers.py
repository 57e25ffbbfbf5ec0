"""Keeps Events append-only on SQLite; for PostgreSQL see migrations 0002 and 0009. Old ones may be deleted, see journal/retention.py."""

from __future__ import annotations

from typing import Final

from core.triggers import Triggers

REFUSE: Final = "BEGIN SELECT RAISE(ABORT, 'journal_event is append-only'); END"
IS_YOUNG: Final = "OLD.at >= COALESCE((SELECT deleted_before_at FROM journal_eventretention), '')"
TRIGGERS: Final[Triggers] = {
    "journal_event_no_update": ("journal_event", f"BEFORE UPDATE ON journal_event {REFUSE}"),
    "journal_event_no_delete": ("journal_eventretention", f"BEFORE DELETE ON journal_event WHEN {IS_YOUNG} {REFUSE}"),
}
