"""What tests of notices share."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from accounts.models import User
from core.clock import db_now
from journal.models import Notice, Severity
from journal.notices.kinds import NoticeKind
from journal.services import event_record


def told(user: User, text: str = "train is provisioned.", *, slice_id: UUID | None = None, at: datetime | None = None) -> Notice:
    """One in the user's bell."""
    now = at or db_now()
    with transaction.atomic():
        event = event_record(kind="gpr.spare_entering", message=text, at=now, severity=Severity.WARNING, slice_id=slice_id)
        return Notice.objects.create(user=user, event=event, kind=NoticeKind.NODE, slice_id=slice_id, created_at=now)
