"""The outbox holds Events that people are still to be told of. `journal.services` fills it; here they become notices and deliveries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final
from uuid import UUID, uuid5

from django.db import OperationalError, connection, transaction

from journal.guard import set_aside_on_error
from journal.hints import hint, user_topic
from journal.models import Channel, Delivery, DeliveryState, Digest, Event, Notice, NoticeSettings, Outbox
from journal.notices.audience import Hearer, hearers_of
from journal.notices.kinds import is_for_admins_alone, rule_of
from journal.notices.settings.wishes import bell_wants, channel_wants, is_error, settings_of
from journal.notices.timing import digest_at, due_at

AT_ONCE: Final = 200


def outbox_expand(*, now: datetime) -> int:
    """Make notices and deliveries of the oldest Events in the outbox. Returns the number of Events; one query when there are none.

    EGS reports and drops an Event that fails by a fault, so that it does not hold up the others.
    """
    pks = list(Outbox.objects.order_by("pk").values_list("pk", flat=True)[:AT_ONCE])
    if not pks:
        return 0
    with set_aside_on_error("notices", "Notices could not be made", now=now) as attempt:
        _expand(pks, now)
    if attempt.error is not None:
        for pk in pks:
            _expand_alone(pk, now)
    return len(pks)


def _expand_alone(pk: int, now: datetime) -> None:
    with set_aside_on_error("notice", "A notice could not be made", now=now) as attempt:
        _expand([pk], now)
    # The next pass tries an Event again that failed only because the database was busy.
    if attempt.error is not None and not isinstance(attempt.error, OperationalError):
        Outbox.objects.filter(pk=pk).delete()


@transaction.atomic
def _expand(pks: Sequence[int], now: datetime) -> None:
    # Another process may expand the same Events: each takes those that nobody has locked.
    rows = Outbox.objects.select_for_update(skip_locked=connection.features.has_select_for_update_skip_locked)
    taken = list(rows.filter(pk__in=pks).order_by("pk").values_list("pk", flat=True))
    events = list(Event.objects.filter(pk__in=taken).order_by("pk"))
    hearers = hearers_of(events)
    wishes = settings_of({one.user.pk for one in hearers}) if hearers else {}
    told = [one for one in hearers if bell_wants(one.event, one.kind, wishes[one.user.pk])]
    Notice.objects.bulk_create(
        Notice(
            user=one.user, event=one.event, kind=one.kind, slice_id=one.slice_id, is_for_admins=one.is_for_admins, created_at=one.event.at
        )
        for one in told
    )
    for user_id in sorted({one.user.pk for one in told}):
        hint(user_topic(user_id))
    _deliver([*_to_people(hearers, wishes), *_to_workspaces(events)], now)
    Outbox.objects.filter(pk__in=taken).delete()


@dataclass(frozen=True, slots=True)
class _Sending:
    channel: Channel
    event: Event
    wishes: NoticeSettings

    @property
    def is_digest(self) -> bool:
        return self.channel.digest != Digest.NONE and not is_error(self.event)

    def due_at(self, now: datetime) -> datetime:
        return due_at(now=now, digest=self.channel.digest, of=self.wishes, is_error=is_error(self.event))


def _to_people(hearers: Sequence[Hearer], wishes: Mapping[UUID, NoticeSettings]) -> Iterator[_Sending]:
    channels = _by_owner(Channel.objects.filter(user__in=wishes, is_on=True), "user_id") if hearers else {}
    for one in hearers:
        for channel in channels.get(one.user.pk, ()):
            if channel_wants(channel, one.event, one.kind, wishes[one.user.pk]):
                yield _Sending(channel, one.event, wishes[one.user.pk])


def _to_workspaces(events: Sequence[Event]) -> Iterator[_Sending]:
    """Workspaces hear nothing of faults of EGS itself, which are for administrators alone."""
    rules = [(event, rule) for event in events if event.slice_id and (rule := rule_of(event)) and not is_for_admins_alone(rule)]
    slice_ids = {event.slice_id for event, _ in rules}
    channels = _by_owner(Channel.objects.filter(slice__in=slice_ids, is_on=True), "slice_id") if rules else {}
    nobody = NoticeSettings()
    for event, rule in rules:
        for channel in channels.get(event.slice_id, ()):
            if channel_wants(channel, event, rule.kind, nobody):
                yield _Sending(channel, event, nobody)


def _by_owner(channels: Iterable[Channel], owner: str) -> dict[UUID | None, list[Channel]]:
    found: dict[UUID | None, list[Channel]] = defaultdict(list)
    for channel in channels:
        found[getattr(channel, owner)].append(channel)
    return found


def _deliver(sendings: Sequence[_Sending], now: datetime) -> None:
    """Ids follow from channel and Event, so that nothing can be delivered twice."""
    # Every expander locks digests in one order, or two of them would wait for each other.
    wanted = sorted({(one.channel.pk, one.due_at(now)): one.channel for one in sendings if one.is_digest}.items(), key=itemgetter(0))
    digests = {key: _digest(channel, key[1], now) for key, channel in wanted}
    links: list[Any] = []
    made: list[Delivery] = []
    for one in sendings:
        if one.is_digest:
            delivery = digests[one.channel.pk, one.due_at(now)]
        else:
            id_ = uuid5(one.channel.pk, str(one.event.pk))
            delivery = Delivery(id=id_, channel=one.channel, created_at=now, due_at=one.due_at(now))
            made.append(delivery)
        links.append(Delivery.events.through(delivery_id=delivery.pk, event_id=one.event.pk))
    Delivery.objects.bulk_create(made)
    Delivery.events.through.objects.bulk_create(links)


def _digest(channel: Channel, at: datetime, now: datetime) -> Delivery:
    """Returns the digest of this time, locked until the Event is in it; a later one if it is being sent already."""
    id_ = uuid5(channel.pk, f"digest {at.isoformat()}")
    new = Delivery(id=id_, channel=channel, is_digest=True, created_at=now, due_at=at)
    Delivery.objects.bulk_create([new], ignore_conflicts=True)
    found = Delivery.objects.select_for_update().get(pk=id_)
    if found.state == DeliveryState.WAITING and found.attempt_count == 0:
        return found
    return _digest(channel, digest_at(at, channel.digest, UTC), now)
