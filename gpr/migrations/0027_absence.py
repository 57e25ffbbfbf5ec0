from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("gpr", "0026_exiting_at")]

    operations = [
        migrations.AddField(
            model_name="allocatorrecord",
            name="began_at",
            field=models.DateTimeField(blank=True, help_text="When the last tick began, whole or not.", null=True),
        ),
        migrations.AddField(
            model_name="allocatorrecord",
            name="away_at",
            field=models.DateTimeField(blank=True, help_text="When EGS was last there before it was away: see gpr/allocation/absence.py.", null=True),
        ),
        migrations.AddField(
            model_name="allocatorrecord",
            name="back_at",
            field=models.DateTimeField(blank=True, help_text="When it was back.", null=True),
        ),
    ]
