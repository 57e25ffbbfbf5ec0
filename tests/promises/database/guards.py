"""Reads triggers and named constraints of a migrated database from its own catalog."""

from __future__ import annotations

from typing import Any

from django.db import connection

from gpr.triggers import WATCHED

# table -> the guards that its promises rest on.
TRIGGERS = {
    "sqlite": {
        ("gpr_gpr", "gpr_legal_birth"),
        ("gpr_gpr", "gpr_legal_move"),
        ("inventory_cluster", "inventory_cluster_generation_rises"),
        ("inventory_node", "inventory_node_epoch_rises"),
        ("inventory_reservedgpu", "gpu_reserved_once_insert"),
        ("inventory_reservedgpu", "gpu_reserved_once_update"),
        ("journal_event", "journal_event_no_delete"),
        ("journal_event", "journal_event_no_update"),
        *((table, f"{table}_{verb}_recorded") for table in WATCHED for verb in ("insert", "delete")),
        *((table, f"{table}_update_recorded") for table, (_, _, columns) in WATCHED.items() if columns),
    },
    "postgresql": {
        ("gpr_gpr", "gpr_legal_birth"),
        ("gpr_gpr", "gpr_legal_move"),
        ("inventory_cluster", "inventory_cluster_generation_rises"),
        ("inventory_node", "inventory_node_epoch_rises"),
        ("journal_event", "journal_event_append_only"),
        *((table, f"{table}_recorded") for table in WATCHED),
        *((table, f"{table}_update_recorded") for table, (_, _, columns) in WATCHED.items() if columns),
    },
}
EXCLUSIONS = {
    "gpu_reserved_once_at_a_time": "EXCLUDE USING gist (gpu_id WITH =, tstzrange(starts_at, ends_at, '[)'::text) WITH &&) "
    "WHERE (((state)::text = ANY ((ARRAY['PLANNED'::character varying, 'HELD'::character varying])::text[])))"
}
CONSTRAINTS = {
    "accounts_apitoken": {"token_expires_after_creation"},
    "accounts_idempotentcreation": {"idempotency_key_once_per_user_and_route"},
    "gpr_gpr": {
        "gpr_active_has_a_window",
        "gpr_asks_for_something",
        "gpr_priority_in_range",
        "gpr_gpr_sound_values",
        "gpr_within_a_century",
        "slice_holds_one_gpr",
    },
    "inventory_agentcredential": {"credential_generation_once"},
    "inventory_cluster": {"cluster_uid_once"},
    "inventory_gpu": {"gpu_once_per_node"},
    "inventory_node": {"node_name_once_per_cluster", "node_uid_once_per_cluster"},
    "inventory_reservation": {
        "reservation_epoch_once_per_node",
        "reservation_released_at_says_released",
        "reservation_starts_before_it_ends",
    },
    "inventory_reservedgpu": {"gpu_held_once", "reserved_gpu_starts_before_it_ends"},
    "inventory_stepresult": {"step_attempt_once"},
    "slices_membership": {"member_once_per_slice"},
    "slices_namespace": {"namespace_bound_once"},
    "slices_slice": {"slice_approval_below_maximum", "slice_priority_in_range"},
}
# Unique among some rows only; as the database has the condition.
PARTIAL = {
    "slice_holds_one_gpr": ("PROVISIONING", "ACTIVE", "EXITING"),
    "gpu_held_once": ("HELD",),
    "cluster_uid_once": ("uid",),
    "node_name_once_per_cluster": ("gone_at",),
}


def triggers() -> set[tuple[str, str]]:
    if connection.vendor == "sqlite":
        return set(_rows("SELECT tbl_name, name FROM sqlite_master WHERE type = 'trigger'"))
    return set(
        _rows(
            "SELECT relname, tgname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
            "WHERE NOT tgisinternal AND tgenabled = 'O' AND relnamespace = current_schema::regnamespace"
        )
    )


def exclusions() -> dict[str, str]:
    return dict(_rows("SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'x'"))


def constraints(table: str) -> set[str]:
    """Names of its unique and check constraints."""
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table)
    return {name for name, what in found.items() if what["unique"] or what["check"]}


def index_sql(name: str) -> str:
    source = "sql FROM sqlite_master WHERE name" if connection.vendor == "sqlite" else "indexdef FROM pg_indexes WHERE indexname"
    ((sql,),) = _rows(f"SELECT {source} = '{name}'")
    return str(sql)


def _rows(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())
