from __future__ import annotations

from typing import Final
from uuid import UUID

from django.db.models import QuerySet

from accounts.models import User
from core.rest.references import one_by_id
from journal.models import Notice
from journal.notices.audience import heard_by

COUNTED_MAX: Final = 99


def notices_of(user: User) -> QuerySet[Notice]:
    """The newest first. Those of a workspace that the user has left are gone."""
    return Notice.objects.filter(heard_by(user), user=user).select_related("event")


def notice_for(user: User, notice_id: str | UUID) -> Notice:
    return one_by_id(notices_of(user), notice_id, what="notice")


def unread_count(user: User) -> int:
    """Up to COUNTED_MAX + 1. One query."""
    return len(notices_of(user).filter(read_at=None).order_by().values_list("pk")[: COUNTED_MAX + 1])
