
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('journal', '0010_workspace_ends'),
    ]

    operations = [
        migrations.AlterField(
            model_name='notice',
            name='kind',
            field=models.CharField(choices=[('approval_wanted', 'Approval wanted'), ('decision', 'Approved or refused'), ('started', 'Started'), ('mark', '25, 50 and 75 % of the time passed'), ('ends_soon', 'Ends soon'), ('ended', 'Ended'), ('promise_moved', 'Promised start moved'), ('eviction', 'Evicted, and when it is back'), ('node', 'Node failed or replaced'), ('changed', 'Changed by somebody else'), ('booking', 'Booking that does not fit'), ('budget', 'GPU-hours nearly or wholly used'), ('workspace', 'Invitations, members, namespaces and its end'), ('alert', 'Alerts and faults')], max_length=20),
        ),
    ]
