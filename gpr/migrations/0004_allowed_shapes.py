from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("gpr", "0003_promises")]

    operations = [
        migrations.AddField(
            model_name="gpr",
            name="allowed_shapes",
            field=models.JSONField(blank=True, null=True, help_text="Shapes that the slice's policy allowed; none means all."),
        ),
    ]
