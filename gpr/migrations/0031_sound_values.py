# The database refuses values that nobody could work with: see core/column_checks.py.

import django.db.models.deletion
import core.column_checks
from django.conf import settings
from django.db import migrations, models

NO_LOST_TEMPLATE = """
    UPDATE gpr_gpr SET template_id = NULL WHERE template_id NOT IN (SELECT id FROM gpr_gprtemplate)
"""


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0030_administrators_evictions'),
        ('inventory', '0016_gpu_hardware'),
        ('slices', '0010_namespace_names'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='bookingseries',
            name='series_rule_known',
        ),
        migrations.RemoveConstraint(
            model_name='evictionvictim',
            name='victim_outcome_known',
        ),
        migrations.RemoveConstraint(
            model_name='evictionvictim',
            name='victim_kind_known',
        ),
        migrations.RemoveConstraint(
            model_name='gpr',
            name='gpr_state_known',
        ),
        migrations.AlterField(
            model_name='gpr',
            name='allowed_shapes',
            field=models.JSONField(blank=True, default=list, help_text="Shapes that the slice's policy allowed; none means all."),
        ),
        # Until now no constraint kept a request from naming a template that was deleted at the same moment.
        migrations.RunSQL(NO_LOST_TEMPLATE, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name='gpr',
            name='template',
            field=models.ForeignKey(blank=True, help_text='What it was filed from.', null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='gprs', to='gpr.gprtemplate'),
        ),
        migrations.AddConstraint(
            model_name='allocatorrecord',
            constraint=core.column_checks.SoundValues(name='gpr_allocatorrecord_sound_values', numbers=('last_duration_s',), times=('last_tick_at', 'began_at', 'away_at', 'back_at', 'served_at', 'rests_until_at')),
        ),
        migrations.AddConstraint(
            model_name='bookingoccurrence',
            constraint=core.column_checks.SoundValues(name='gpr_bookingoccurrence_sound_values', times=('starts_at', 'tried_at', 'nearest_before_at', 'nearest_after_at')),
        ),
        migrations.AddConstraint(
            model_name='bookingseries',
            constraint=core.column_checks.SoundValues(choices={'rule': ('daily', 'weekdays', 'weekly')}, name='gpr_bookingseries_sound_values', objects=('asked',), times=('created_at', 'first_start_at', 'until_at', 'next_start_at', 'canceled_at')),
        ),
        migrations.AddConstraint(
            model_name='claim',
            constraint=core.column_checks.SoundValues(name='gpr_claim_sound_values', objects=('asked',)),
        ),
        migrations.AddConstraint(
            model_name='eviction',
            constraint=core.column_checks.SoundValues(name='gpr_eviction_sound_values', times=('made_at', 'start_at', 'instead_at')),
        ),
        migrations.AddConstraint(
            model_name='evictionvictim',
            constraint=core.column_checks.SoundValues(choices={'kind': ('reclaim', 'priority', 'defrag', 'admin'), 'outcome': ('NOTICED', 'EVICTED', 'LEFT', 'SPARED', 'SOONER')}, name='gpr_evictionvictim_sound_values', times=('ends_at', 'outcome_at', 'restart_at', 'foreseen_at', 'reviewed_at')),
        ),
        migrations.AddConstraint(
            model_name='forecast',
            constraint=core.column_checks.SoundValues(name='gpr_forecast_sound_values', times=('made_at', 'started_at')),
        ),
        migrations.AddConstraint(
            model_name='gpr',
            constraint=models.CheckConstraint(condition=models.Q(('gpus_per_node__lte', 1024), ('nodes__lte', 10000)), name='gpr_asks_within_bounds'),
        ),
        # On PostgreSQL it is there since 0019. On SQLite the next change remakes the table with it.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AddConstraint(
                    model_name='gpr',
                    constraint=models.CheckConstraint(condition=models.Q(('duration_s__lte', 3162240000), ('remaining_s__lte', 3162240000)), name='gpr_within_a_century'),
                ),
            ],
        ),
        migrations.AddConstraint(
            model_name='gpr',
            constraint=core.column_checks.SoundValues(choices={'end_reason': ('', 'EXPIRED', 'EARLY_RELEASE', 'EVICTED', 'IDLE', 'NODE_FAILURE', 'CHECK_FAILED', 'ADMIN'), 'state': ('PENDING_APPROVAL', 'QUEUED', 'PROVISIONING', 'ACTIVE', 'EXITING', 'COMPLETED', 'RELEASED', 'EVICTED', 'FAILED', 'CANCELED', 'REJECTED'), 'within': ('', 'rack', 'nvlink')}, lists=('allowed_shapes', 'approval_reasons'), name='gpr_gpr_sound_values', objects=('model', 'explanation'), times=('created_at', 'earliest_start_at', 'state_changed_at', 'queued_at', 'turn_at', 'provisioning_at', 'active_at', 'ends_at', 'exiting_at', 'ended_at', 'planned_start_at')),
        ),
        migrations.AddConstraint(
            model_name='gprtemplate',
            constraint=core.column_checks.SoundValues(name='gpr_gprtemplate_sound_values', objects=('asked',), times=('created_at',)),
        ),
        migrations.AddConstraint(
            model_name='projectusage',
            constraint=core.column_checks.SoundValues(name='gpr_projectusage_sound_values', numbers=('gpu_s',), times=('summed_at',)),
        ),
        migrations.AddConstraint(
            model_name='promise',
            constraint=core.column_checks.SoundValues(lists=('slot_nodes',), name='gpr_promise_sound_values', times=('made_at', 'first_promised_start_at', 'promised_start_at', 'slot_start_at', 'p50_at', 'p90_at')),
        ),
        migrations.AddConstraint(
            model_name='promisemove',
            constraint=core.column_checks.SoundValues(name='gpr_promisemove_sound_values', times=('at', 'old_start_at', 'new_start_at')),
        ),
        migrations.AddConstraint(
            model_name='promiseoutcome',
            constraint=core.column_checks.SoundValues(name='gpr_promiseoutcome_sound_values', times=('made_at', 'promised_start_at', 'started_at', 'settled_at')),
        ),
        migrations.AddConstraint(
            model_name='shadow',
            constraint=core.column_checks.SoundValues(name='gpr_shadow_sound_values', objects=('patient', 'strict'), times=('made_at', 'patient_starts_at', 'patient_ends_at', 'strict_starts_at', 'strict_ends_at')),
        ),
        migrations.AddConstraint(
            model_name='witness',
            constraint=core.column_checks.SoundValues(name='gpr_witness_sound_values', numbers=('promised_sum_s', 'patient_sum_s', 'ran_sum_s', 'booked_sum_s'), times=('summed_at',)),
        ),
    ]
