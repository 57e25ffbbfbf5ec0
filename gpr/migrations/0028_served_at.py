from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("gpr", "0027_absence")]

    operations = [
        migrations.AddField(
            model_name="allocatorrecord",
            name="served_at",
            field=models.DateTimeField(blank=True, help_text="When a web server last said that it is there.", null=True),
        ),
    ]
