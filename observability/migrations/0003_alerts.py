
import core.column_checks
import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0040_explained_plans'),
        ('inventory', '0022_silence_told'),
        ('observability', '0002_workloads'),
        ('slices', '0022_rules_in_words_of_pages'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='CounterState',
            fields=[
                ('gpu', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='counter_state', serialize=False, to='inventory.gpu')),
                ('at', models.DateTimeField()),
                ('xid', models.IntegerField(null=True)),
                ('ecc_corrected', models.IntegerField(null=True)),
                ('ecc_uncorrected', models.IntegerField(null=True)),
                ('rows_remapped', models.IntegerField(null=True)),
                ('rows_failed', models.IntegerField(null=True)),
                ('pcie_replays', models.IntegerField(null=True)),
                ('nvlink_errors', models.IntegerField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name='AlertRule',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80)),
                ('code', models.CharField(blank=True, help_text='Names a rule that EGS brings; empty: somebody made it.', max_length=40)),
                ('signal', models.CharField(max_length=40)),
                ('kind', models.CharField(choices=[('threshold', 'The value is beyond the level'), ('rate', 'So many are counted within the window'), ('trend', 'The value moves by so much within the window, steadily'), ('forecast', 'Going on like this, the value is beyond the level one window from now'), ('absence', 'Nothing was heard for so many seconds')], max_length=9)),
                ('direction', models.CharField(choices=[('above', 'At the level or above'), ('below', 'At the level or below')], default='above', max_length=5)),
                ('level', models.FloatField()),
                ('clear_level', models.FloatField(help_text='The alert ends when the value is back beyond this.')),
                ('severe_level', models.FloatField(blank=True, help_text='From here on it is an error.', null=True)),
                ('window_s', models.PositiveIntegerField(default=60, help_text='Of rates, trends and forecasts.')),
                ('hold_s', models.PositiveIntegerField(default=0, help_text='How long it must last before it fires.')),
                ('clear_s', models.PositiveIntegerField(default=0, help_text='How long it must be over before it is resolved.')),
                ('severity', models.CharField(choices=[('info', 'Info'), ('warning', 'Warning'), ('error', 'Error')], max_length=7)),
                ('shape', models.CharField(blank=True, help_text='Empty: all shapes.', max_length=63)),
                ('tells', models.CharField(choices=[('admins', 'Administrators'), ('box', 'Those whose box or workspace it is'), ('both', 'Administrators, and those whose box or workspace it is'), ('nobody', 'Nobody: administrators see it in the list')], default='admins', max_length=6)),
                ('is_on', models.BooleanField(default=True)),
                ('runbook', models.TextField(blank=True, help_text='What to do.', max_length=1000)),
                ('created_at', models.DateTimeField()),
                ('judged_at', models.DateTimeField(blank=True, help_text='Last time that a trend or forecast was computed.', null=True)),
                ('cluster', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='inventory.cluster')),
                ('owner', models.ForeignKey(help_text='Null: EGS.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('slice', models.ForeignKey(blank=True, help_text="Watches this workspace's boxes alone.", null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slices.slice')),
            ],
            options={
                'ordering': ['name', 'id'],
            },
        ),
        migrations.CreateModel(
            name='Alert',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('state', models.CharField(choices=[('PENDING', 'Pending'), ('FIRING', 'Firing'), ('ACKNOWLEDGED', 'Acknowledged'), ('RESOLVED', 'Resolved')], default='PENDING', max_length=12)),
                ('severity', models.CharField(choices=[('info', 'Info'), ('warning', 'Warning'), ('error', 'Error')], max_length=7)),
                ('began_at', models.DateTimeField()),
                ('joined_at', models.DateTimeField(help_text='When the last subject joined.')),
                ('fired_at', models.DateTimeField(blank=True, null=True)),
                ('acknowledged_at', models.DateTimeField(blank=True, null=True)),
                ('note', models.CharField(blank=True, help_text='What its owner says.', max_length=200)),
                ('resolved_at', models.DateTimeField(blank=True, null=True)),
                ('resolved_why', models.CharField(blank=True, max_length=100)),
                ('places', models.CharField(help_text='Names of some subjects.', max_length=200)),
                ('firing_count', models.PositiveIntegerField(default=0, help_text='Subjects that fire now.')),
                ('most_count', models.PositiveIntegerField(default=0, help_text='Most subjects that fired at once.')),
                ('worst', models.FloatField(blank=True, null=True)),
                ('told_at', models.DateTimeField(blank=True, help_text='When people were told last.', null=True)),
                ('told_count', models.PositiveIntegerField(default=0, help_text='Subjects that this named.')),
                ('cluster', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='inventory.cluster')),
                ('gpr', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='gpr.gpr')),
                ('owner', models.ForeignKey(help_text='Who takes care of it.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('slice', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slices.slice')),
                ('rule', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='alerts', to='observability.alertrule')),
            ],
            options={
                'ordering': ['-began_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='AlertSilence',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('reason', models.CharField(max_length=200)),
                ('created_at', models.DateTimeField()),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField()),
                ('alert', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='silences', to='observability.alert')),
                ('cluster', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='inventory.cluster')),
                ('node', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='inventory.node')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('rule', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='observability.alertrule')),
                ('slice', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='slices.slice')),
            ],
            options={
                'ordering': ['-created_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='AlertSubject',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('subject_id', models.UUIDField()),
                ('node_id', models.UUIDField(null=True)),
                ('key', models.CharField(help_text='The subject, and for whom it is watched.', max_length=80)),
                ('name', models.CharField(max_length=330)),
                ('state', models.CharField(choices=[('PENDING', 'Pending'), ('FIRING', 'Firing'), ('OVER', 'Over')], default='PENDING', max_length=7)),
                ('since_at', models.DateTimeField()),
                ('fired_at', models.DateTimeField(blank=True, null=True)),
                ('severe_since_at', models.DateTimeField(blank=True, null=True)),
                ('is_severe', models.BooleanField(default=False)),
                ('clear_since_at', models.DateTimeField(blank=True, null=True)),
                ('unmeasured_since_at', models.DateTimeField(blank=True, null=True)),
                ('over_at', models.DateTimeField(blank=True, null=True)),
                ('first', models.FloatField(help_text='The value with which it began.')),
                ('worst', models.FloatField()),
                ('alert', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='subjects', to='observability.alert')),
                ('rule', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='observability.alertrule')),
            ],
            options={
                'ordering': ['name', 'id'],
            },
        ),
        migrations.CreateModel(
            name='CounterIncrease',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('gpr_id', models.UUIDField(help_text='The box that held the GPU all the time since the reading before.', null=True)),
                ('signal', models.CharField(max_length=40)),
                ('count', models.PositiveIntegerField()),
                ('at', models.DateTimeField(db_index=True)),
                ('gpu', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='inventory.gpu')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='SignalSample',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('signal', models.CharField(max_length=40)),
                ('subject_id', models.UUIDField()),
                ('at', models.DateTimeField()),
                ('value', models.FloatField()),
            ],
            options={
                'ordering': ['id'],
                'indexes': [models.Index(fields=['signal', 'at'], name='signal_sample_course')],
                'constraints': [core.column_checks.ColumnChecks(name='observability_signalsample_sound_values', numbers=('value',), times=('at',))],
            },
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.UniqueConstraint(condition=models.Q(('code', ''), _negated=True), fields=('code',), name='alert_rule_code_once'),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.CheckConstraint(condition=models.Q(('level__range', (-1000000000.0, 1000000000.0))), name='alert_rule_level_in_range'),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('clear_level__lte', models.F('level')), ('direction', 'above')), models.Q(('clear_level__gte', models.F('level')), ('direction', 'below')), _connector='OR'), name='alert_rule_clears_on_the_good_side'),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.CheckConstraint(condition=models.Q(('severe_level', None), models.Q(('direction', 'above'), ('severe_level__gt', models.F('level'))), models.Q(('direction', 'below'), ('severe_level__lt', models.F('level'))), _connector='OR'), name='alert_rule_severe_is_worse'),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.CheckConstraint(condition=models.Q(('clear_s__lte', 604800), ('hold_s__lte', 604800), ('window_s__range', (60, 172800))), name='alert_rule_times_in_range'),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.CheckConstraint(condition=models.Q(('slice', None), ('tells', 'box'), _connector='OR'), name='alert_rule_of_workspace_tells_its_people'),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=core.column_checks.ColumnChecks(choices={'direction': ('above', 'below'), 'kind': ('threshold', 'rate', 'trend', 'forecast', 'absence'), 'severity': ('info', 'warning', 'error'), 'tells': ('admins', 'box', 'both', 'nobody')}, name='observability_alertrule_sound_values', numbers=('level', 'clear_level', 'severe_level'), times=('created_at', 'judged_at')),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(condition=models.Q(('state', 'RESOLVED'), _negated=True), fields=['rule'], name='alert_open'),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(fields=['-began_at', 'id'], name='alert_newest'),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(fields=['slice', '-began_at'], name='alert_of_slice'),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(fields=['told_at'], name='alert_told'),
        ),
        migrations.AddIndex(
            model_name='alert',
            index=models.Index(condition=models.Q(('told_count__gt', 0)), fields=['state'], name='alert_to_be_ended'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('resolved_at__isnull', False), ('state', 'RESOLVED')), models.Q(models.Q(('state', 'RESOLVED'), _negated=True), ('resolved_at', None)), _connector='OR'), name='alert_resolved_at_says_resolved'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('fired_at', None), ('state', 'PENDING')), models.Q(models.Q(('state', 'PENDING'), _negated=True), ('fired_at__isnull', False)), _connector='OR'), name='alert_fired_at_says_fired'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'ACKNOWLEDGED'), _negated=True), models.Q(('acknowledged_at__isnull', False), ('owner__isnull', False)), _connector='OR'), name='alert_acknowledged_by_one'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=models.CheckConstraint(condition=models.Q(('gpr', None), ('slice__isnull', False), _connector='OR'), name='alert_of_box_has_workspace'),
        ),
        migrations.AddConstraint(
            model_name='alert',
            constraint=core.column_checks.ColumnChecks(choices={'severity': ('info', 'warning', 'error'), 'state': ('PENDING', 'FIRING', 'ACKNOWLEDGED', 'RESOLVED')}, name='observability_alert_sound_values', numbers=('worst',), times=('began_at', 'joined_at', 'fired_at', 'acknowledged_at', 'resolved_at', 'told_at')),
        ),
        migrations.AddIndex(
            model_name='alertsilence',
            index=models.Index(fields=['ends_at'], name='alert_silence_end'),
        ),
        migrations.AddConstraint(
            model_name='alertsilence',
            constraint=models.CheckConstraint(condition=models.Q(('starts_at__lte', models.F('ends_at'))), name='alert_silence_starts_before_it_ends'),
        ),
        migrations.AddConstraint(
            model_name='alertsilence',
            constraint=core.column_checks.ColumnChecks(name='observability_alertsilence_sound_values', times=('created_at', 'starts_at', 'ends_at')),
        ),
        migrations.AddIndex(
            model_name='alertsubject',
            index=models.Index(fields=['subject_id', 'since_at'], name='alert_subject_course'),
        ),
        migrations.AddConstraint(
            model_name='alertsubject',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'OVER'), _negated=True), fields=('rule', 'key'), name='alert_subject_open_once'),
        ),
        migrations.AddConstraint(
            model_name='alertsubject',
            constraint=core.column_checks.ColumnChecks(choices={'state': ('PENDING', 'FIRING', 'OVER')}, name='observability_alertsubject_sound_values', numbers=('first', 'worst'), times=('since_at', 'fired_at', 'severe_since_at', 'clear_since_at', 'unmeasured_since_at', 'over_at')),
        ),
        migrations.AddConstraint(
            model_name='counterincrease',
            constraint=core.column_checks.ColumnChecks(name='observability_counterincrease_sound_values', times=('at',)),
        ),
    ]
