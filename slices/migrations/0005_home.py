import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    # Columns on a table without triggers: SQLite may remake it.
    dependencies = [("inventory", "0006_maintenance"), ("slices", "0004_may_evict")]

    operations = [
        migrations.AddField(
            model_name="slice",
            name="home",
            field=models.ForeignKey(
                blank=True,
                help_text="The cluster where its GPRs run unless another saves much time; null: it likes all the same.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="inventory.cluster",
            ),
        ),
        migrations.AddField(
            model_name="slice",
            name="burst_gain_s",
            field=models.PositiveBigIntegerField(default=1800, help_text="Outside its home they run only where that saves more time."),
        ),
    ]
