"""An invitation by a name holds for whoever had the name when it was written."""

from typing import Any
from uuid import UUID

from django.db import migrations
from django.db.models import Q


def bind(apps: Any, schema_editor: Any) -> None:
    users, invitations = apps.get_model("accounts", "User").objects, apps.get_model("slices", "Invitation").objects
    for row in invitations.filter(user=None):
        try:
            named = Q(pk=UUID(row.name))
        except ValueError:
            named = Q(name=row.name)
        row.user = users.filter(named, created_at__lte=row.created_at).first()
        row.save(update_fields=["user"])


class Migration(migrations.Migration):
    dependencies = [("slices", "0018_invited_user"), ("accounts", "0007_identity_email")]
    operations = [migrations.RunPython(bind, migrations.RunPython.noop)]
