# The database refuses values that nobody could work with: see core/column_checks.py.

import core.column_checks
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
            constraint=core.column_checks.SoundValues(choices={'severity': ('info', 'warning', 'error')}, name='journal_event_sound_values', objects=('data',), times=('at',)),
        ),
    ]
