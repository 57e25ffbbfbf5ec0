"""SQLite triggers that refuse illegal transitions (I6). PostgreSQL: migration 0003."""

from __future__ import annotations

from typing import Final

from core.triggers import Triggers
from gpr.lifecycle import TRANSITIONS
from gpr.models import GprState

MOVES: Final = ", ".join(f"('{old.value}', '{new.value}')" for old in GprState for new in GprState if new in TRANSITIONS.get(old, ()))
FIRST: Final = f"('{GprState.PENDING_APPROVAL.value}', '{GprState.QUEUED.value}')"
TRIGGERS: Final[Triggers] = {
    "gpr_legal_move": (
        "gpr_gpr",
        f"BEFORE UPDATE OF state ON gpr_gpr WHEN OLD.state <> NEW.state AND (OLD.state, NEW.state) NOT IN (VALUES {MOVES}) "
        "BEGIN SELECT RAISE(ABORT, 'gpr_legal_move'); END",
    ),
    "gpr_legal_birth": (
        "gpr_gpr",
        f"BEFORE INSERT ON gpr_gpr WHEN NEW.state NOT IN {FIRST} BEGIN SELECT RAISE(ABORT, 'gpr_legal_birth'); END",
    ),
}
