from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inventory", "0003_promises")]

    operations = [
        migrations.AddIndex(
            model_name="reservation",
            index=models.Index(fields=["cluster"], condition=~models.Q(phase="RELEASED"), name="reservation_told"),
        ),
        migrations.AddIndex(
            model_name="reservation",
            index=models.Index(fields=["starts_at", "node", "epoch"], name="reservation_by_start"),
        ),
    ]
