# The database refuses values that nobody could work with: see core/column_checks.py.

import core.column_checks
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0031_sound_values'),
        ('inventory', '0016_gpu_hardware'),
        ('slices', '0010_namespace_names'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='supply',
            name='supply_kind_known',
        ),
        migrations.RemoveConstraint(
            model_name='supplyorder',
            name='supply_order_state_known',
        ),
        migrations.AddConstraint(
            model_name='agentcredential',
            constraint=core.column_checks.SoundValues(name='inventory_agentcredential_sound_values', times=('created_at', 'expires_at', 'first_used_at', 'superseded_at', 'revoked_at')),
        ),
        migrations.AddConstraint(
            model_name='agentsession',
            constraint=core.column_checks.SoundValues(lists=('capabilities',), name='inventory_agentsession_sound_values', numbers=('clock_offset_s',), times=('joined_at', 'last_sync_at', 'locked_at')),
        ),
        migrations.AddConstraint(
            model_name='checkpolicy',
            constraint=core.column_checks.SoundValues(lists=('skipped_steps',), name='inventory_checkpolicy_sound_values', objects=('limits', 'images'), times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='checkresult',
            constraint=core.column_checks.SoundValues(choices={'verdict': ('PASS', 'WARN', 'FAIL', 'SKIP')}, name='inventory_checkresult_sound_values', numbers=('value', 'threshold')),
        ),
        migrations.AddConstraint(
            model_name='cluster',
            constraint=core.column_checks.SoundValues(name='inventory_cluster_sound_values', times=('created_at', 'rewound_at', 'node_failed_at')),
        ),
        migrations.AddConstraint(
            model_name='gpu',
            constraint=core.column_checks.SoundValues(name='inventory_gpu_sound_values', times=('gone_at',)),
        ),
        migrations.AddConstraint(
            model_name='jointoken',
            constraint=core.column_checks.SoundValues(name='inventory_jointoken_sound_values', times=('created_at', 'expires_at')),
        ),
        migrations.AddConstraint(
            model_name='maintenancewindow',
            constraint=core.column_checks.SoundValues(name='inventory_maintenancewindow_sound_values', times=('starts_at', 'ends_at', 'created_at', 'canceled_at')),
        ),
        migrations.AddConstraint(
            model_name='node',
            constraint=models.CheckConstraint(condition=models.Q(('gpu_count__lte', 10000)), name='node_gpu_count_in_range'),
        ),
        migrations.AddConstraint(
            model_name='node',
            constraint=core.column_checks.SoundValues(name='inventory_node_sound_values', times=('broken_at', 'sick_gpus_at', 'cordoned_at', 'seen_at', 'gone_at')),
        ),
        migrations.AddConstraint(
            model_name='reservation',
            constraint=core.column_checks.SoundValues(choices={'desired': ('PRESENT', 'ABSENT'), 'phase': ('PENDING', 'ENTERING', 'ENTERED', 'ACTIVE', 'FAILED', 'EXITING', 'RELEASED'), 'state': ('PLANNED', 'HELD', 'RELEASED')}, lists=('namespaces', 'entry_steps', 'exit_steps'), name='inventory_reservation_sound_values', times=('starts_at', 'ends_at', 'enter_by_at', 'not_after_at', 'active_at', 'exit_began_at', 'released_at', 'joined_at', 'failing_at', 'spare_sought_at')),
        ),
        migrations.AddConstraint(
            model_name='reservedgpu',
            constraint=core.column_checks.SoundValues(choices={'state': ('PLANNED', 'HELD', 'RELEASED')}, name='inventory_reservedgpu_sound_values', times=('starts_at', 'ends_at')),
        ),
        migrations.AddConstraint(
            model_name='stepresult',
            constraint=core.column_checks.SoundValues(choices={'outcome': ('OK', 'FAILED', 'UNSUPPORTED')}, name='inventory_stepresult_sound_values', objects=('evidence',), times=('started_at', 'ended_at')),
        ),
        migrations.AddConstraint(
            model_name='supply',
            constraint=core.column_checks.SoundValues(choices={'kind': ('NODE_POOL', 'ATTACH')}, name='inventory_supply_sound_values', times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='supplyorder',
            constraint=core.column_checks.SoundValues(choices={'state': ('ORDERED', 'ARRIVED', 'CANCELED', 'FAILED')}, name='inventory_supplyorder_sound_values', times=('ordered_at', 'expected_at', 'ended_at')),
        ),
    ]
