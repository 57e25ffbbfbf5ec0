"""Triggers record also changes of quotas, projects, their usage, maintenance windows and supplies. SQLite: gpr/triggers.py."""

from collections.abc import Iterator

from django.db import migrations, models

from core.vendor_sql import vendor_sql

# By table: the column that names what changed, and the columns that matter.
WATCHED = {
    "slices_quota": ("id", "project_id slice_id shape guaranteed_gpus most_gpus"),
    "slices_project": ("id", ""),
    "gpr_projectusage": ("project_id", "gpu_s summed_at"),
    "inventory_maintenancewindow": ("id", "cluster_id node_id starts_at ends_at canceled_at"),
    "inventory_supply": ("id", ""),
}
FUNCTION = """
    CREATE FUNCTION gpr_record_project_id() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO gpr_planchange (kind, key, transaction_id)
        VALUES (TG_ARGV[0], COALESCE(NEW.project_id, OLD.project_id), pg_current_xact_id()::text::bigint);
        RETURN NULL;
    END $$
"""


def _triggers() -> Iterator[str]:
    for table, (key, columns) in WATCHED.items():
        record = f"FOR EACH ROW EXECUTE FUNCTION gpr_record_{key}('settings')"
        yield f"CREATE TRIGGER {table}_recorded AFTER INSERT OR DELETE ON {table} {record}"
        if columns:
            names = columns.split()
            old, new = ", ".join(f"OLD.{name}" for name in names), ", ".join(f"NEW.{name}" for name in names)
            when = f"WHEN (({old}) IS DISTINCT FROM ({new}))"
            record = f"FOR EACH ROW {when} EXECUTE FUNCTION gpr_record_{key}('settings')"
            yield f"CREATE TRIGGER {table}_update_recorded AFTER UPDATE OF {', '.join(names)} ON {table} {record}"


def _undo() -> Iterator[str]:
    for table, (_, columns) in WATCHED.items():
        yield f"DROP TRIGGER {table}_recorded ON {table}"
        if columns:
            yield f"DROP TRIGGER {table}_update_recorded ON {table}"
    yield "DROP FUNCTION gpr_record_project_id"


class Migration(migrations.Migration):
    dependencies = [("gpr", "0037_plain_model_names"), ("inventory", "0021_supply_node_count_help"), ("slices", "0014_plain_help_texts")]

    operations = [
        migrations.AlterField("planchange", "kind", models.CharField(max_length=8)),
        vendor_sql(postgresql=[FUNCTION, *_triggers()], sqlite=[], undo_postgresql=list(_undo()), undo_sqlite=[]),
    ]
