"""SQLite's triggers refuse illegal transitions (I6) and record what plans read. PostgreSQL: migrations 0003, 0033, 0038 and 0043."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from core.triggers import Triggers
from gpr.allocation.rows import GprRow, PromiseRow, ShadowRow
from gpr.models import TRANSITIONS, GprState
from inventory.rows import InventoryNode

MOVES: Final = ", ".join(f"('{old.value}', '{new.value}')" for old in GprState for new in GprState if new in TRANSITIONS.get(old, ()))
FIRST: Final = f"('{GprState.PENDING_APPROVAL.value}', '{GprState.QUEUED.value}')"
_OWN: Final = tuple(name for name in GprRow._fields if "__" not in name and name != "pk")
_OF_SLICE: Final = tuple(name.removeprefix("slice__") for name in GprRow._fields if name.startswith("slice__"))
_OF_NODE: Final = tuple(name for name in InventoryNode._fields if name not in {"pk", "is_cordoned", "has_sick_gpu"})
# Tables that plans read: the kind of the change, the column that names what changed, and the columns that matter; none: the rows only come
# and go.
WATCHED: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "gpr_gpr": ("gpr", "id", (*_OWN, "state", "provisioning_at", "requeue_on_failure")),
    "gpr_promise": ("gpr", "gpr_id", PromiseRow._fields[1:]),
    "gpr_shadow": ("gpr", "gpr_id", ShadowRow._fields[1:]),
    "gpr_gpr_clusters": ("gpr", "gpr_id", ()),
    "inventory_reservation": ("gpr", "gpr_id", ("replaces_id", "node_id", "ends_at", "slice_id", "state")),
    "inventory_node": ("node", "id", (*_OF_NODE, "cordoned_at", "gone_at")),
    "inventory_gpu": ("node", "node_id", ("is_healthy", "gone_at")),
    "slices_slice": ("slice", "id", _OF_SLICE),
    "slices_slice_clusters": ("slice", "slice_id", ()),
    "slices_quota": ("settings", "id", ("project_id", "slice_id", "shape", "guaranteed_gpus", "most_gpus")),
    "slices_project": ("settings", "id", ()),
    "gpr_projectusage": ("settings", "project_id", ("gpu_s", "summed_at")),
    "inventory_maintenancewindow": ("settings", "id", ("cluster_id", "node_id", "starts_at", "ends_at", "canceled_at")),
    "inventory_supply": ("settings", "id", ()),
}


def _recording() -> Iterator[tuple[str, tuple[str, str]]]:
    for table, (kind, key, columns) in WATCHED.items():
        for verb, row in (("INSERT", "NEW"), ("DELETE", "OLD"), *((("UPDATE", "NEW"),) if columns else ())):
            differs = " OR ".join(f"OLD.{column} IS NOT NEW.{column}" for column in columns)
            when = f"UPDATE OF {', '.join(columns)} ON {table} WHEN {differs}" if verb == "UPDATE" else f"{verb} ON {table}"
            record = f"INSERT INTO gpr_planchange (kind, key) VALUES ('{kind}', {row}.{key})"  # noqa: S608
            yield f"{table}_{verb.lower()}_recorded", ("gpr_planchange", f"AFTER {when} BEGIN {record}; END")


TRIGGERS: Final[Triggers] = {
    **dict(_recording()),
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
