from django.db import migrations, models

KINDS = [
    ('reclaim', 'Its GPUs were borrowed, and are wanted by whom they are guaranteed to'),
    ('priority', 'It may be evicted, and a request of higher priority may evict'),
    ('defrag', 'It stands on parts of nodes, and an administrator moves it to free whole ones'),
]


class Migration(migrations.Migration):

    dependencies = [
        ('gpr', '0014_rest'),
    ]

    operations = [
        migrations.AlterField(model_name='evictionvictim', name='kind', field=models.CharField(choices=KINDS, max_length=8)),
    ]
