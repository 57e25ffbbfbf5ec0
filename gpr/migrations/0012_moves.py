from django.db import migrations, models

TURN_HELP = "Its age among equals: that in the queue, but for an administrator's move."


class Migration(migrations.Migration):
    # All null at first: with a default SQLite would remake the table, and lose its triggers.

    dependencies = [
        ('gpr', '0011_fairness'),
    ]

    operations = [
        migrations.AddField(model_name='gpr', name='turn_at', field=models.DateTimeField(blank=True, help_text=TURN_HELP, null=True)),
        migrations.AddField(model_name='gpr', name='place_share', field=models.SmallIntegerField(blank=True, null=True)),
        migrations.AddField(model_name='gpr', name='place_key', field=models.PositiveBigIntegerField(blank=True, null=True)),
        migrations.RunSQL('UPDATE gpr_gpr SET turn_at = queued_at', migrations.RunSQL.noop),
        migrations.RemoveIndex(model_name='gpr', name='gpr_queue'),
        migrations.AddIndex(
            model_name='gpr',
            index=models.Index(condition=models.Q(('state', 'QUEUED')), fields=['-priority', 'turn_share', 'turn_key', 'turn_at', 'id'], name='gpr_queue'),
        ),
    ]
