# By hand: as a default SQLite would get the column by remaking the table, and lose its triggers.

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [('gpr', '0012_moves')]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE gpr_gpr ADD COLUMN within varchar(6) NOT NULL DEFAULT '' CHECK (within IN ('', 'rack', 'nvlink'))",
                    'ALTER TABLE gpr_gpr DROP COLUMN within',
                ),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='gpr',
                    name='within',
                    field=models.CharField(
                        blank=True,
                        choices=[('', 'Anywhere'), ('rack', 'One rack'), ('nvlink', 'One NVLink domain')],
                        max_length=6,
                    ),
                ),
            ],
        ),
    ]
