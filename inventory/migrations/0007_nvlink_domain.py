# By hand: as a default SQLite would get the column by remaking the table, and lose its triggers.

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [('inventory', '0006_maintenance')]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE inventory_node ADD COLUMN nvlink_domain varchar(63) NOT NULL DEFAULT ''",
                    'ALTER TABLE inventory_node DROP COLUMN nvlink_domain',
                ),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='node',
                    name='nvlink_domain',
                    field=models.CharField(blank=True, help_text='Nodes whose GPUs share one NVLink fabric name the same.', max_length=63),
                ),
            ],
        ),
    ]
