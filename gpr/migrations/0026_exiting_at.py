from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import migrations, models

ROWS_AT_ONCE = 2_000
# What lies outside no clock has written: it is left as it is.
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
SOUND = {
    "active_at__range": (EARLIEST, LATEST),
    "ends_at__range": (EARLIEST, LATEST),
    "remaining_s__lt": timedelta(days=36_500).total_seconds(),
}


def fill(apps: Any, schema_editor: Any) -> None:
    """Until now it was worked out: what was left of a box that is over was counted when its nodes began to leave."""
    gpr = apps.get_model("gpr", "Gpr")
    gpr.objects.filter(state="EXITING").update(exiting_at=models.F("state_changed_at"))
    over, last = gpr.objects.filter(ended_at__isnull=False, **SOUND).order_by("pk"), None
    while rows := list((over.filter(pk__gt=last) if last else over).only("active_at", "ends_at", "remaining_s")[:ROWS_AT_ONCE]):
        last = rows[-1].pk
        for row in rows:
            row.exiting_at = max(row.active_at, row.ends_at - timedelta(seconds=row.remaining_s))
        gpr.objects.bulk_update(rows, ["exiting_at"], batch_size=200)


class Migration(migrations.Migration):
    dependencies = [("gpr", "0025_restarts")]

    operations = [
        migrations.AddField(
            model_name="gpr",
            name="exiting_at",
            field=models.DateTimeField(blank=True, help_text="When its nodes began to be taken back.", null=True),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop, elidable=True),
    ]
