from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def count(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Those that are there already get their place by age."""
    slices = apps.get_model("slices", "Slice")
    for number, slice_ in enumerate(slices.objects.order_by("created_at", "pk")):
        slices.objects.filter(pk=slice_.pk).update(number=number)


class Migration(migrations.Migration):
    dependencies = [("slices", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="slice",
            name="number",
            field=models.PositiveIntegerField(default=0, help_text="In order of creation: its color and mark on pages."),
        ),
        migrations.RunPython(count, migrations.RunPython.noop, elidable=True),
    ]
