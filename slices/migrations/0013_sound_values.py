# The database refuses values that nobody could work with: see core/column_checks.py.

import core.column_checks
from django.conf import settings
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('inventory', '0017_sound_values'),
        ('slices', '0012_queue_limit'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='invitation',
            constraint=core.column_checks.SoundValues(choices={'role': ('owner', 'editor', 'viewer')}, name='slices_invitation_sound_values', times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='kubeconfig',
            constraint=core.column_checks.SoundValues(choices={'state': ('asked', 'made', 'given', 'failed', 'revoked', 'expired')}, name='slices_kubeconfig_sound_values', times=('asked_at', 'due_at', 'expires_at', 'ended_at', 'closed_at')),
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=core.column_checks.SoundValues(choices={'role': ('owner', 'editor', 'viewer')}, name='slices_membership_sound_values'),
        ),
        migrations.AddConstraint(
            model_name='namespace',
            constraint=core.column_checks.SoundValues(choices={'state': ('PENDING', 'READY', 'WAITING', 'CONFLICT', 'UNBOUND')}, name='slices_namespace_sound_values', objects=('waiting',), times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='project',
            constraint=core.column_checks.SoundValues(name='slices_project_sound_values', times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='quota',
            constraint=core.column_checks.SoundValues(name='slices_quota_sound_values', times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='slice',
            constraint=core.column_checks.SoundValues(lists=('shapes', 'namespace_patterns'), name='slices_slice_sound_values', times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='unbinding',
            constraint=core.column_checks.SoundValues(name='slices_unbinding_sound_values', times=('created_at',)),
        ),
    ]
