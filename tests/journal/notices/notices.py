"""Helpers of the tests of notices."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.db import transaction

from accounts.models import User
from core.clock import db_now
from core.vault import encrypt
from journal.models import Channel, ChannelKind, Delivery, DeliveryState, Notice, Severity
from journal.notices.kinds import NoticeKind
from journal.services import event_record
from slices.models import Slice


def told(user: User, text: str = "train is provisioned.", *, slice_id: UUID | None = None, at: datetime | None = None) -> Notice:
    """Puts a notice into the user's bell."""
    now = at or db_now()
    with transaction.atomic():
        event = event_record(kind="gpr.spare_entering", message=text, at=now, severity=Severity.WARNING, slice_id=slice_id)
        return Notice.objects.create(user=user, event=event, kind=NoticeKind.NODE, slice_id=slice_id, created_at=now)


def channel(of: User | Slice, *, name: str = "hook", target: str = "https://hook.example/egs") -> Channel:
    """Makes a row: a webhook that wants everything."""
    owner = {"user": of} if isinstance(of, User) else {"slice": of}
    given = {"name": name, "kind": ChannelKind.WEBHOOK, "target": target, "sealed": encrypt("canary"), "created_at": db_now()}
    return Channel.objects.create(**owner, **given, notice_kinds=list(NoticeKind))


def failed(of: Channel) -> Delivery:
    now = db_now()
    return Delivery.objects.create(
        channel=of,
        is_test=True,
        state=DeliveryState.FAILED,
        created_at=now,
        due_at=now,
        attempt_count=8,
        error="The receiver answered 500.",
    )
