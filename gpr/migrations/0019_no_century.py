"""No GPR lasts longer than a hundred years: beyond that its end is in no calendar, and nothing could be planned behind it.

On SQLite by triggers: it would remake the table for a constraint, and lose the others.
"""

from django.db import migrations

from core.vendor_sql import vendor_sql

LONGEST_S = 100 * 366 * 86_400
OVER = f"NEW.duration_s > {LONGEST_S} OR NEW.remaining_s > {LONGEST_S}"
VERBS = {"born": "INSERT", "changed": "UPDATE OF duration_s, remaining_s"}


class Migration(migrations.Migration):
    dependencies = [("gpr", "0018_checked_choices")]
    operations = [
        vendor_sql(
            postgresql=[
                f"ALTER TABLE gpr_gpr ADD CONSTRAINT gpr_within_a_century CHECK (duration_s <= {LONGEST_S} AND remaining_s <= {LONGEST_S})"
            ],
            sqlite=[
                f"""
                CREATE TRIGGER gpr_within_a_century_{name} BEFORE {verb} ON gpr_gpr WHEN {OVER}
                BEGIN SELECT RAISE(ABORT, 'gpr_within_a_century'); END
                """
                for name, verb in VERBS.items()
            ],
            undo_postgresql=["ALTER TABLE gpr_gpr DROP CONSTRAINT gpr_within_a_century"],
            undo_sqlite=[f"DROP TRIGGER gpr_within_a_century_{name}" for name in VERBS],
        )
    ]
