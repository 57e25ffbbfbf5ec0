# By hand: as a default SQLite would get this column by remaking the table, and lose its triggers.

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0007_forecasts'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    'ALTER TABLE gpr_gpr ADD COLUMN turn_key bigint NOT NULL DEFAULT 0 CHECK (turn_key >= 0)',
                    'ALTER TABLE gpr_gpr DROP COLUMN turn_key',
                ),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='gpr',
                    name='turn_key',
                    field=models.PositiveBigIntegerField(default=0, help_text='Its work in GPU-seconds: of equals in priority the least goes first.'),
                ),
            ],
        ),
        migrations.RemoveIndex(
            model_name='gpr',
            name='gpr_queue',
        ),
        migrations.AddIndex(
            model_name='gpr',
            index=models.Index(condition=models.Q(('state', 'QUEUED')), fields=['-priority', 'turn_key', 'queued_at', 'id'], name='gpr_queue'),
        ),
    ]
