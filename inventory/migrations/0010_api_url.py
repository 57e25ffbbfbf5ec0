# By hand: as a default SQLite would get the column by remaking the table, and lose its triggers.

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [('inventory', '0009_refused_orders')]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE inventory_cluster ADD COLUMN api_url varchar(253) NOT NULL DEFAULT ''",
                    'ALTER TABLE inventory_cluster DROP COLUMN api_url',
                ),
            ],
            state_operations=[
                migrations.AddField(
                    model_name='cluster',
                    name='api_url',
                    field=models.CharField(blank=True, help_text='Where users reach its API server; empty: where its agent does.', max_length=253),
                ),
            ],
        ),
    ]
