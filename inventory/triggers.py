"""Keeps invariants I1, I5 and I16 on SQLite; for PostgreSQL see migration 0003."""

from __future__ import annotations

from typing import Final

from core.triggers import Triggers

# Django stores times as UTC text in one format, so that text order is time order.
OVERLAPS: Final = """
    SELECT RAISE(ABORT, 'gpu_reserved_once_at_a_time') WHERE EXISTS (
        SELECT 1 FROM inventory_reservedgpu AS other
        WHERE other.gpu_id = NEW.gpu_id AND other.id IS NOT NEW.id AND other.state IN ('PLANNED', 'HELD')
        AND other.starts_at < NEW.ends_at AND NEW.starts_at < other.ends_at
    );
"""


def _once(verb: str) -> tuple[str, str]:
    when = "WHEN NEW.state IN ('PLANNED', 'HELD')"
    return "inventory_reservedgpu", f"BEFORE {verb} ON inventory_reservedgpu {when} BEGIN {OVERLAPS} END"


def _rises(table: str, column: str) -> tuple[str, str]:
    falls = f"NEW.{column} < OLD.{column} BEGIN SELECT RAISE(ABORT, '{table}.{column} never falls'); END"
    return table, f"BEFORE UPDATE OF {column} ON {table} WHEN {falls}"


TRIGGERS: Final[Triggers] = {
    "gpu_reserved_once_insert": _once("INSERT"),
    "gpu_reserved_once_update": _once("UPDATE"),
    "inventory_node_epoch_rises": _rises("inventory_node", "epoch"),
    "inventory_cluster_generation_rises": _rises("inventory_cluster", "generation"),
}
