# The database refuses values that nobody could work with: see egs/sound_values.py.

import egs.sound_values
from django.conf import settings
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('journal', '0002_append_only'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='event',
            constraint=egs.sound_values.SoundValues(choices={'severity': ('info', 'warning', 'error')}, name='journal_event_sound_values', objects=('data',), times=('at',)),
        ),
    ]
