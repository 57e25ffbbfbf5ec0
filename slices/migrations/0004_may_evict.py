from django.db import migrations, models


class Migration(migrations.Migration):
    # A default makes SQLite remake the table; it has no triggers to lose.
    dependencies = [("slices", "0003_quotas")]

    operations = [
        migrations.AddField(
            model_name="slice",
            name="may_evict",
            field=models.BooleanField(default=False, help_text="Its GPRs may evict others of lower priority without approval."),
        ),
    ]
