from collections import defaultdict

from django.db import migrations, models
from django.db.models.functions import Lower


def refuse_twins(apps, schema_editor):
    """Which of two clusters keeps the name is for people to say."""
    names = defaultdict(list)
    for name in apps.get_model("inventory", "Cluster").objects.order_by("name").values_list("name", flat=True):
        names[name.lower()].append(name)
    twins = [" and ".join(alike) for alike in names.values() if len(alike) > 1]
    if twins:
        raise ValueError(f"Clusters whose names differ only in case: {'; '.join(twins)}. Rename one of each in the database first.")


class Migration(migrations.Migration):
    dependencies = [("inventory", "0004_told")]

    operations = [
        migrations.RunPython(refuse_twins, migrations.RunPython.noop, elidable=True),
        migrations.AddConstraint(
            model_name="cluster",
            constraint=models.UniqueConstraint(Lower("name"), name="cluster_name_once_in_any_case"),
        ),
    ]
