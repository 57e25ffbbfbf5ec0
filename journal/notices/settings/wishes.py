"""Reads which notices people want."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from journal.models import Channel, Event, NoticeSettings, Severity
from journal.notices.kinds import NoticeKind


def settings_of(user_ids: Collection[UUID]) -> dict[UUID, NoticeSettings]:
    """Returns the wishes of each user. Runs one query."""
    stored = NoticeSettings.objects.in_bulk(list(user_ids))
    return {user_id: stored.get(user_id) or NoticeSettings(user_id=user_id) for user_id in user_ids}


def is_error(event: Event) -> bool:
    return event.severity == Severity.ERROR


def is_muted(event: Event, wishes: NoticeSettings) -> bool:
    return str(event.slice_id) in wishes.muted_slices and not is_error(event)


def bell_wants(event: Event, kind: NoticeKind, wishes: NoticeSettings) -> bool:
    return kind not in wishes.unwanted_kinds and not is_muted(event, wishes)


def channel_wants(channel: Channel, event: Event, kind: NoticeKind, wishes: NoticeSettings) -> bool:
    return channel.is_on and not channel.needs_code and kind in channel.notice_kinds and not is_muted(event, wishes)
