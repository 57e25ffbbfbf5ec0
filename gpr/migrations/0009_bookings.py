# By hand: as a default SQLite would get the column by remaking the table, and lose its triggers.

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0008_turn_key'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    'ALTER TABLE gpr_gpr ADD COLUMN is_booking bool NOT NULL DEFAULT false',
                    'ALTER TABLE gpr_gpr DROP COLUMN is_booking',
                ),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='gpr',
                    name='is_booking',
                    field=models.BooleanField(default=False, help_text='It starts at `earliest_start_at`, or is refused.'),
                ),
            ],
        ),
    ]
