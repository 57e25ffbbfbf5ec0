from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [('gpr', '0013_within')]

    operations = [
        migrations.AddField(
            model_name='allocatorrecord',
            name='planned_event_id',
            field=models.BigIntegerField(blank=True, help_text='The last event that the last plan knew.', null=True),
        ),
        migrations.AddField(
            model_name='allocatorrecord',
            name='rests_until_at',
            field=models.DateTimeField(blank=True, help_text='Until then only an event makes another plan; null: the next tick does.', null=True),
        ),
    ]
