"""Carries out what people do with their notices."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts.models import User
from journal.hints import hint, user_topic
from journal.models import Notice
from journal.notices.selectors import notices_of


@transaction.atomic
def notice_read(*, notice: Notice, now: datetime) -> None:
    """Mark it as read. A repetition changes nothing."""
    if Notice.objects.filter(pk=notice.pk, read_at=None).update(read_at=now):
        notice.read_at = now
        hint(user_topic(notice.user_id))


@transaction.atomic
def notices_read_all(*, user: User, now: datetime) -> int:
    """Mark all that came up to now as read. Returns their number."""
    count = notices_of(user).filter(read_at=None, created_at__lte=now).update(read_at=now)
    if count:
        hint(user_topic(user.pk))
    return count
