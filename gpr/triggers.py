"""SQLite's triggers refuse illegal transitions (I6) and record what plans read. PostgreSQL: migrations 0003, 0033, 0038 and 0043."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from core.triggers import Triggers
from gpr.models import TRANSITIONS, GprState

MOVES: Final = ", ".join(f"('{old.value}', '{new.value}')" for old in GprState for new in GprState if new in TRANSITIONS.get(old, ()))
FIRST: Final = f"('{GprState.PENDING_APPROVAL.value}', '{GprState.QUEUED.value}')"
# Tables that plans read: the kind of the change, the column that names what changed, and the columns that matter; none: the rows only come
# and go.
WATCHED: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "gpr_gpr": (
        "gpr",
        "id",
        (
            "version",
            "priority",
            "nodes",
            "gpus_per_node",
            "remaining_s",
            "shape",
            "min_gpu_memory_gib",
            "node_type",
            "rdma",
            "within",
            "allowed_shapes",
            "earliest_start_at",
            "after_id",
            "after_condition",
            "is_booking",
            "run",
            "may_evict",
            "evictable",
            "place_share",
            "place_key",
            "turn_at",
            "slice_id",
            "state",
            "provisioning_at",
            "requeue_on_failure",
        ),
    ),
    "gpr_promise": (
        "gpr",
        "gpr_id",
        ("made_at", "promised_start_at", "slot_pool", "slot_start_at", "slot_nodes", "lost_cause", "lost_cause_id"),
    ),
    "gpr_shadow": (
        "gpr",
        "gpr_id",
        (
            "made_at",
            "priority",
            "gpu_s",
            "gpus_per_node",
            "patient",
            "patient_starts_at",
            "patient_ends_at",
            "strict",
            "strict_starts_at",
            "strict_ends_at",
        ),
    ),
    "gpr_gpr_clusters": ("gpr", "gpr_id", ()),
    "inventory_reservation": ("gpr", "gpr_id", ("replaces_id", "node_id", "ends_at", "slice_id", "state")),
    "inventory_node": (
        "node",
        "id",
        (
            "cluster_id",
            "name",
            "shape",
            "node_type",
            "gpu_memory_gib",
            "rdma",
            "gpu_count",
            "zone",
            "rack",
            "nvlink_domain",
            "is_ready",
            "cordoned_at",
            "gone_at",
        ),
    ),
    "inventory_gpu": ("node", "node_id", ("is_healthy", "gone_at")),
    "slices_slice": ("slice", "id", ("project_id", "home_id", "burst_gain_s", "may_order")),
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
