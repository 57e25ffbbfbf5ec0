import django.db.models.deletion
from django.db import migrations, models

import core.column_checks


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0036_plain_eviction_kinds'),
    ]

    operations = [
        migrations.RemoveConstraint(model_name='witness', name='gpr_witness_sound_values'),
        migrations.RenameModel(old_name='Witness', new_name='PlanRecord'),
        migrations.AddConstraint(
            model_name='planrecord',
            constraint=core.column_checks.ColumnChecks(name='gpr_planrecord_sound_values', numbers=('promised_sum_s', 'patient_sum_s', 'ran_sum_s', 'booked_sum_s'), times=('summed_at',)),
        ),
        migrations.RemoveConstraint(model_name='claim', name='gpr_claim_sound_values'),
        migrations.RemoveConstraint(model_name='claim', name='claim_once'),
        migrations.RemoveConstraint(model_name='claim', name='claim_refused_with_a_reason'),
        migrations.RemoveIndex(model_name='claim', name='claim_told'),
        migrations.RenameModel(old_name='Claim', new_name='ClusterRequestRecord'),
        migrations.AlterField(
            model_name='clusterrequestrecord',
            name='gpr',
            field=models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='cluster_request', to='gpr.gpr'),
        ),
        migrations.AddIndex(
            model_name='clusterrequestrecord',
            index=models.Index(condition=models.Q(('is_told', True)), fields=['cluster'], name='cluster_request_told'),
        ),
        migrations.AddConstraint(
            model_name='clusterrequestrecord',
            constraint=models.UniqueConstraint(fields=('cluster', 'uid'), name='cluster_request_once'),
        ),
        migrations.AddConstraint(
            model_name='clusterrequestrecord',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('message', ''), ('reason', '')), models.Q(('reason', ''), _negated=True), _connector='OR'), name='cluster_request_refused_with_a_reason'),
        ),
        migrations.AddConstraint(
            model_name='clusterrequestrecord',
            constraint=core.column_checks.ColumnChecks(name='gpr_clusterrequestrecord_sound_values', objects=('asked',)),
        ),
    ]
