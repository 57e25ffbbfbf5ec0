# By hand: as a default SQLite would get the column by remaking the table, and lose its triggers.

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0008_turn_key'),
        ('slices', '0002_slice_number'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    'ALTER TABLE gpr_gpr ADD COLUMN is_booking bool NOT NULL DEFAULT false',
                    'ALTER TABLE gpr_gpr DROP COLUMN is_booking',
                ),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='gpr',
                    name='is_booking',
                    field=models.BooleanField(default=False, help_text='It starts at `earliest_start_at`, or is refused.'),
                ),
            ],
        ),
        migrations.CreateModel(
            name='BookingSeries',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=63)),
                ('created_at', models.DateTimeField()),
                ('asked', models.JSONField(help_text='The fields of each request, but for its time; clusters by id.')),
                ('first_start_at', models.DateTimeField()),
                ('rule', models.CharField(choices=[('daily', 'Every day'), ('weekdays', 'Monday to Friday'), ('weekly', 'Every week')], max_length=8)),
                ('zone', models.CharField(help_text='As Europe/Berlin: its clock counts, daylight saving included.', max_length=64)),
                ('until_at', models.DateTimeField(blank=True, help_text='Nothing starts after this.', null=True)),
                ('count', models.PositiveIntegerField(blank=True, help_text='How many starts there are.', null=True)),
                ('next_start_at', models.DateTimeField(blank=True, db_index=True, help_text='The first not tried yet; null: none is left.', null=True)),
                ('canceled_at', models.DateTimeField(blank=True, null=True)),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='booking_series', to=settings.AUTH_USER_MODEL)),
                ('slice', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='booking_series', to='slices.slice')),
            ],
            options={
                'ordering': ['-created_at', 'id'],
            },
        ),
        migrations.CreateModel(
            name='BookingOccurrence',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('starts_at', models.DateTimeField()),
                ('refusal', models.CharField(blank=True, max_length=500)),
                ('nearest_before_at', models.DateTimeField(blank=True, null=True)),
                ('nearest_after_at', models.DateTimeField(blank=True, null=True)),
                ('gpr', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='occurrence', to='gpr.gpr')),
                ('series', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='occurrences', to='gpr.bookingseries')),
            ],
            options={
                'ordering': ['starts_at', 'id'],
            },
        ),
        migrations.AddConstraint(
            model_name='bookingseries',
            constraint=models.CheckConstraint(condition=models.Q(('until_at', None), ('count', None), _connector='XOR'), name='series_has_one_end'),
        ),
        migrations.AddConstraint(
            model_name='bookingseries',
            constraint=models.CheckConstraint(condition=models.Q(('canceled_at', None), ('next_start_at', None), _connector='OR'), name='series_canceled_books_no_more'),
        ),
        migrations.AddConstraint(
            model_name='bookingoccurrence',
            constraint=models.UniqueConstraint(fields=('series', 'starts_at'), name='occurrence_once'),
        ),
        migrations.AddConstraint(
            model_name='bookingoccurrence',
            constraint=models.CheckConstraint(condition=models.Q(('gpr', None), ('refusal', ''), _connector='XOR'), name='occurrence_booked_or_refused'),
        ),
    ]
