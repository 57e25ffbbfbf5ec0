# The database refuses values that nobody could work with: see egs/sound_values.py.

import egs.sound_values
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0002_idempotency_of_acts'),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='apitoken',
            constraint=egs.sound_values.SoundValues(lists=('scopes',), name='accounts_apitoken_sound_values', times=('created_at', 'expires_at', 'revoked_at', 'last_used_at')),
        ),
        migrations.AddConstraint(
            model_name='idempotentcreation',
            constraint=egs.sound_values.SoundValues(name='accounts_idempotentcreation_sound_values', times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='user',
            constraint=egs.sound_values.SoundValues(name='accounts_user_sound_values', times=('last_login', 'created_at')),
        ),
    ]
