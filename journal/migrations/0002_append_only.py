"""I12: an Event is never changed and never deleted, whoever asks."""

from django.db import migrations

from core.vendor_sql import vendor_sql

POSTGRESQL = [
    """
    CREATE FUNCTION journal_event_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'journal_event is append-only' USING ERRCODE = 'integrity_constraint_violation';
    END $$
    """,
    """
    CREATE TRIGGER journal_event_append_only BEFORE UPDATE OR DELETE ON journal_event
    FOR EACH ROW EXECUTE FUNCTION journal_event_append_only()
    """,
]
SQLITE = [
    f"""
    CREATE TRIGGER journal_event_no_{verb.lower()} BEFORE {verb} ON journal_event
    BEGIN SELECT RAISE(ABORT, 'journal_event is append-only'); END
    """
    for verb in ("UPDATE", "DELETE")
]


class Migration(migrations.Migration):
    dependencies = [("journal", "0001_initial")]
    operations = [
        vendor_sql(
            postgresql=POSTGRESQL,
            sqlite=SQLITE,
            undo_postgresql=["DROP FUNCTION journal_event_append_only CASCADE"],
            undo_sqlite=["DROP TRIGGER journal_event_no_update", "DROP TRIGGER journal_event_no_delete"],
        )
    ]
