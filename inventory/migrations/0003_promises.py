"""I1: a GPU is reserved for one box at any instant. I5: a node's epoch only rises. I16: a cluster's generation only rises."""

from django.db import migrations

from core.vendor_sql import vendor_sql

RISING = [("inventory_node", "epoch"), ("inventory_cluster", "generation")]

POSTGRESQL = [
    # btree_gist lets one index hold both "the same GPU" and "overlapping time". Creating it needs the right to CREATE in the database.
    "CREATE EXTENSION IF NOT EXISTS btree_gist",
    """
    ALTER TABLE inventory_reservedgpu ADD CONSTRAINT gpu_reserved_once_at_a_time
    EXCLUDE USING gist (gpu_id WITH =, tstzrange(starts_at, ends_at, '[)') WITH &&) WHERE (state IN ('PLANNED', 'HELD'))
    """,
    *(
        statement
        for table, column in RISING
        for statement in (
            f"""
            CREATE FUNCTION {table}_{column}_rises() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                RAISE EXCEPTION '{table}.{column} never falls' USING ERRCODE = 'check_violation';
            END $$
            """,
            f"""
            CREATE TRIGGER {table}_{column}_rises BEFORE UPDATE OF {column} ON {table}
            FOR EACH ROW WHEN (NEW.{column} < OLD.{column}) EXECUTE FUNCTION {table}_{column}_rises()
            """,
        )
    ),
]

# Django writes every time as UTC text of one form, so text order is time order.
OVERLAPS = """
    SELECT RAISE(ABORT, 'gpu_reserved_once_at_a_time') WHERE EXISTS (
        SELECT 1 FROM inventory_reservedgpu AS other
        WHERE other.gpu_id = NEW.gpu_id AND other.id IS NOT NEW.id AND other.state IN ('PLANNED', 'HELD')
        AND other.starts_at < NEW.ends_at AND NEW.starts_at < other.ends_at
    );
"""
SQLITE = [
    *(
        f"""
        CREATE TRIGGER gpu_reserved_once_{verb.lower()} BEFORE {verb} ON inventory_reservedgpu
        WHEN NEW.state IN ('PLANNED', 'HELD') BEGIN {OVERLAPS} END
        """
        for verb in ("INSERT", "UPDATE")
    ),
    *(
        f"""
        CREATE TRIGGER {table}_{column}_rises BEFORE UPDATE OF {column} ON {table} WHEN NEW.{column} < OLD.{column}
        BEGIN SELECT RAISE(ABORT, '{table}.{column} never falls'); END
        """
        for table, column in RISING
    ),
]


class Migration(migrations.Migration):
    dependencies = [("inventory", "0002_initial")]
    operations = [
        vendor_sql(
            postgresql=POSTGRESQL,
            sqlite=SQLITE,
            undo_postgresql=[
                "ALTER TABLE inventory_reservedgpu DROP CONSTRAINT gpu_reserved_once_at_a_time",
                *(f"DROP FUNCTION {table}_{column}_rises CASCADE" for table, column in RISING),
            ],
            undo_sqlite=[
                "DROP TRIGGER gpu_reserved_once_insert",
                "DROP TRIGGER gpu_reserved_once_update",
                *(f"DROP TRIGGER {table}_{column}_rises" for table, column in RISING),
            ],
        )
    ]
