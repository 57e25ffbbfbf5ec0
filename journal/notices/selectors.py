from __future__ import annotations

from typing import Final
from uuid import UUID

from django.db.models import Prefetch, Q, QuerySet

from accounts.models import User
from core.rest.references import one_by_id
from journal.models import Channel, Delivery, Event, Notice
from journal.notices.audience import events_heard_by, heard_by, tenancy

COUNTED_MAX: Final = 99


def notices_of(user: User) -> QuerySet[Notice]:
    """Returns the newest first. Those of a workspace that the user has left are gone."""
    return Notice.objects.filter(heard_by(user), user=user).select_related("event")


def notice_for(user: User, notice_id: str | UUID) -> Notice:
    return one_by_id(notices_of(user), notice_id, what="notice")


def unread_count(user: User) -> int:
    """Counts up to COUNTED_MAX + 1. Runs one query."""
    return len(notices_of(user).filter(read_at=None).order_by().values_list("pk")[: COUNTED_MAX + 1])


def channels_of(user: User) -> QuerySet[Channel]:
    """Returns the user's own channels, but not with a bound token, and those of workspaces that the user manages."""
    managed = Q(slice__in=tenancy().slices_managed_by(user))
    return Channel.objects.filter(managed if user.bound_to else managed | Q(user=user)).select_related("slice")


def channel_for(user: User, channel_id: str | UUID) -> Channel:
    return one_by_id(channels_of(user), channel_id, what="channel")


def deliveries_of(channel: Channel, reader: User) -> QuerySet[Delivery]:
    """Loads deliveries with the Events of which the reader may still hear."""
    heard = Prefetch("events", queryset=Event.objects.filter(events_heard_by(reader)))
    return channel.deliveries.select_related("channel").prefetch_related(heard)


def delivery_for(channel: Channel, delivery_id: str | UUID, reader: User) -> Delivery:
    return one_by_id(deliveries_of(channel, reader), delivery_id, what="delivery")
