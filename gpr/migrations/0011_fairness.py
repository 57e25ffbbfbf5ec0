# The column by hand: as a default SQLite would get it by remaking the table, and lose its triggers.

import django.db.models.deletion
from django.db import migrations, models

SHARE_HELP = 'How far its project is above its share: of equals in priority the lowest goes first.'
KEY_HELP = 'Its work in GPU-seconds: of equals in priority and share the least goes first.'


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0010_evictions'),
        ('slices', '0003_quotas'),
    ]

    operations = [
        migrations.CreateModel(
            name='ProjectUsage',
            fields=[
                ('project', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='usage', serialize=False, to='slices.project')),
                ('gpu_s', models.FloatField(default=0)),
                ('summed_at', models.DateTimeField()),
            ],
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    'ALTER TABLE gpr_gpr ADD COLUMN turn_share smallint NOT NULL DEFAULT 0',
                    'ALTER TABLE gpr_gpr DROP COLUMN turn_share',
                ),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='gpr',
                    name='turn_share',
                    field=models.SmallIntegerField(default=0, help_text=SHARE_HELP),
                ),
                migrations.AlterField(
                    model_name='gpr',
                    name='turn_key',
                    field=models.PositiveBigIntegerField(default=0, help_text=KEY_HELP),
                ),
            ],
        ),
        migrations.RemoveIndex(
            model_name='gpr',
            name='gpr_queue',
        ),
        migrations.AddIndex(
            model_name='gpr',
            index=models.Index(condition=models.Q(('state', 'QUEUED')), fields=['-priority', 'turn_share', 'turn_key', 'queued_at', 'id'], name='gpr_queue'),
        ),
    ]
