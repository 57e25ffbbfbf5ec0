# The texts by hand: as a default SQLite would get a column by remaking the table.

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


def text(name: str, help_text: str = "") -> migrations.SeparateDatabaseAndState:
    return migrations.SeparateDatabaseAndState(
        database_operations=[
            migrations.RunSQL(
                f"ALTER TABLE inventory_reservation ADD COLUMN {name} varchar(200) NOT NULL DEFAULT ''",
                f"ALTER TABLE inventory_reservation DROP COLUMN {name}",
            ),
        ],
        state_operations=[
            migrations.AddField(
                model_name="reservation",
                name=name,
                field=models.CharField(blank=True, max_length=200, help_text=help_text),
            ),
        ],
    )


class Migration(migrations.Migration):

    dependencies = [
        ("inventory", "0012_repairs_drift"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="node",
            name="broken_at",
            field=models.DateTimeField(blank=True, help_text="Since when the cluster says that it does not work.", null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="sick_gpus_at",
            field=models.DateTimeField(blank=True, help_text="Since when some of its GPUs are sick.", null=True),
        ),
        migrations.AddField(
            model_name="reservation",
            name="replaces",
            field=models.ForeignKey(
                blank=True,
                help_text="In whose place this node enters.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="spares",
                to="inventory.reservation",
            ),
        ),
        migrations.AddField(
            model_name="reservation",
            name="joined_at",
            field=models.DateTimeField(blank=True, help_text="When it took that place. Before, it is no part of the box.", null=True),
        ),
        migrations.AddField(
            model_name="reservation",
            name="failing_at",
            field=models.DateTimeField(blank=True, help_text="Since when it is to be replaced.", null=True),
        ),
        text("failing_why"),
        migrations.AddField(
            model_name="reservation",
            name="replacement_asked_by",
            field=models.ForeignKey(
                blank=True,
                help_text="Null: EGS itself.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="reservation",
            name="spare_sought_at",
            field=models.DateTimeField(blank=True, help_text="When a spare was last looked for in vain.", null=True),
        ),
        text("spare_refusal", "Why there was none."),
        migrations.AddConstraint(
            model_name="reservation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("desired", "PRESENT"), ("joined_at", None), ("state", "HELD")),
                fields=("replaces",),
                name="one_spare_on_its_way",
            ),
        ),
        migrations.AddConstraint(
            model_name="reservation",
            constraint=models.UniqueConstraint(
                condition=models.Q(("joined_at__isnull", False)), fields=("replaces",), name="replaced_once"
            ),
        ),
    ]
