"""Triggers record what plans read, so that each process can bring its memory up to date by one query. SQLite: gpr/triggers.py."""

from collections.abc import Iterator

from django.db import migrations, models

from core.vendor_sql import vendor_sql

# By table: the kind of the change, the column that names what changed, and the columns that matter.
WATCHED = {
    "gpr_gpr": ("gpr", "id", "version priority nodes gpus_per_node remaining_s shape min_gpu_memory_gib node_type rdma within allowed_shapes earliest_start_at is_booking run may_evict evictable place_share place_key turn_at slice_id state provisioning_at requeue_on_failure"),
    "gpr_promise": ("gpr", "gpr_id", "made_at promised_start_at slot_pool slot_start_at slot_nodes lost_cause lost_cause_id"),
    "gpr_shadow": ("gpr", "gpr_id", "made_at priority gpu_s gpus_per_node patient patient_starts_at patient_ends_at strict strict_starts_at strict_ends_at"),
    "gpr_gpr_clusters": ("gpr", "gpr_id", ""),
    "inventory_reservation": ("gpr", "gpr_id", "replaces_id node_id ends_at slice_id state"),
    "inventory_node": ("node", "id", "cluster_id name shape node_type gpu_memory_gib rdma gpu_count zone rack nvlink_domain is_ready cordoned_at gone_at"),
    "inventory_gpu": ("node", "node_id", "is_healthy gone_at"),
    "slices_slice": ("slice", "id", "project_id home_id burst_gain_s may_order"),
    "slices_slice_clusters": ("slice", "slice_id", ""),
}


def _triggers() -> Iterator[str]:
    for table, (kind, key, columns) in WATCHED.items():
        yield f"""
            CREATE TRIGGER {table}_recorded AFTER INSERT OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION gpr_record_{key}('{kind}')
        """
        if columns:
            names = columns.split()
            old, new = ", ".join(f"OLD.{name}" for name in names), ", ".join(f"NEW.{name}" for name in names)
            yield f"""
                CREATE TRIGGER {table}_update_recorded AFTER UPDATE OF {", ".join(names)} ON {table} FOR EACH ROW
                WHEN (({old}) IS DISTINCT FROM ({new})) EXECUTE FUNCTION gpr_record_{key}('{kind}')
            """


def _functions() -> Iterator[str]:
    for key in sorted({key for _, key, _ in WATCHED.values()}):
        yield f"""
            CREATE FUNCTION gpr_record_{key}() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                INSERT INTO gpr_planchange (kind, key, transaction_id)
                VALUES (TG_ARGV[0], COALESCE(NEW.{key}, OLD.{key}), pg_current_xact_id()::text::bigint);
                RETURN NULL;
            END $$
        """  # noqa: S608


def _drop_sqlite_triggers(apps, schema_editor):
    if schema_editor.connection.vendor == "sqlite":
        with schema_editor.connection.cursor() as cursor:
            cursor.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%INTO gpr_planchange%'")
            names = [name for (name,) in cursor.fetchall()]
        for name in names:
            schema_editor.execute(f"DROP TRIGGER {name}")


class Migration(migrations.Migration):
    dependencies = [("gpr", "0032_help_texts"), ("inventory", "0019_help_texts"), ("slices", "0013_sound_values")]

    operations = [
        migrations.CreateModel(
            name="PlanChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=5)),
                ("key", models.UUIDField()),
                (
                    "transaction_id",
                    models.BigIntegerField(db_index=True, help_text="Of PostgreSQL. SQLite commits one after the other.", null=True),
                ),
            ],
        ),
        migrations.AddField(
            model_name="allocatorrecord",
            name="changes_pruned_to",
            field=models.BigIntegerField(default=0, help_text="Up to this transaction, or on SQLite row, changes may be deleted."),
        ),
        # SQLite's own are made after all migrations.
        migrations.RunPython(migrations.RunPython.noop, _drop_sqlite_triggers),
        vendor_sql(
            postgresql=[*_functions(), *_triggers()],
            sqlite=[],
            undo_postgresql=[f"DROP FUNCTION gpr_record_{key} CASCADE" for key in ("id", "gpr_id", "node_id", "slice_id")],
            undo_sqlite=[],
        ),
    ]
