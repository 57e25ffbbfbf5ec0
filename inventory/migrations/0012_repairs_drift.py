# By hand: as a default SQLite would get the column by remaking the table, and lose its triggers.

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [('inventory', '0011_checks')]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    'ALTER TABLE inventory_cluster ADD COLUMN repairs_drift boolean NOT NULL DEFAULT true',
                    'ALTER TABLE inventory_cluster DROP COLUMN repairs_drift',
                ),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='cluster',
                    name='repairs_drift',
                    field=models.BooleanField(default=True, help_text='Its agent puts right what somebody else changed of EGS; else it only tells.'),
                ),
            ],
        ),
    ]
