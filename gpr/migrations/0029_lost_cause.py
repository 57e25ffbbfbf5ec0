from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("gpr", "0028_served_at")]

    operations = [
        migrations.AddField(model_name="promise", name="lost_cause", field=models.CharField(blank=True, max_length=32)),
        migrations.AddField(model_name="promise", name="lost_cause_id", field=models.CharField(blank=True, max_length=63)),
    ]
