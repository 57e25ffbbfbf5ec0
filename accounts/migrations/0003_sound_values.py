# The database refuses values that nobody could work with: see core/column_checks.py.

import core.column_checks
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_idempotency_of_acts'),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='apitoken',
            constraint=core.column_checks.SoundValues(lists=('scopes',), name='accounts_apitoken_sound_values', times=('created_at', 'expires_at', 'revoked_at', 'last_used_at')),
        ),
        migrations.AddConstraint(
            model_name='idempotentcreation',
            constraint=core.column_checks.SoundValues(name='accounts_idempotentcreation_sound_values', times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=core.column_checks.SoundValues(name='accounts_user_sound_values', times=('last_login', 'created_at')),
        ),
    ]
