from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("gpr", "0039_judged_by_policy")]

    operations = [
        migrations.AddField(
            model_name="planrecord",
            name="explained",
            field=models.UUIDField(help_text="Drawn anew by each plan that stores explanations.", null=True),
        ),
    ]
