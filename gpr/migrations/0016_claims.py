import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0015_defragmentation'),
        ('inventory', '0011_checks'),
    ]

    operations = [
        migrations.CreateModel(
            name='Claim',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uid', models.CharField(max_length=63)),
                ('namespace', models.CharField(max_length=63)),
                ('name', models.CharField(max_length=253)),
                ('requester', models.CharField(blank=True, help_text='Who made the object, by the word of the cluster; empty: not known.', max_length=253)),
                ('is_auto', models.BooleanField(default=False, help_text='The agent made the object, for pods that wait.')),
                ('generation', models.PositiveBigIntegerField()),
                ('asked', models.JSONField()),
                ('reason', models.CharField(blank=True, help_text='Why the last generation was refused, as a code; empty: it was taken.', max_length=63)),
                ('message', models.TextField(blank=True, help_text='The same as a sentence.')),
                ('is_told', models.BooleanField(default=True, help_text='Its agent is told how it stands; not for long after its end.')),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to='inventory.cluster')),
                ('gpr', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='claim', to='gpr.gpr')),
            ],
            options={
                'indexes': [models.Index(condition=models.Q(('is_told', True)), fields=['cluster'], name='claim_told')],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'uid'), name='claim_once'), models.CheckConstraint(condition=models.Q(models.Q(('message', ''), ('reason', '')), models.Q(('reason', ''), _negated=True), _connector='OR'), name='claim_refused_with_a_reason')],
            },
        ),
    ]
