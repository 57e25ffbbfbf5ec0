"""The outbox: Events that people are still to be told of. `journal.services` fills it; here they become notices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from django.db import connection, transaction

from journal.guard import set_aside_on_error
from journal.hints import hint, user_topic
from journal.models import Event, Notice, Outbox
from journal.notices.audience import hearers_of

AT_ONCE: Final = 200


def outbox_expand(*, now: datetime) -> int:
    """Make notices of the oldest Events in the outbox. Returns the number of Events; one query when there are none.

    An Event that fails is reported and dropped, so that it does not hold up the others.
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
    if attempt.error is not None:
        Outbox.objects.filter(pk=pk).delete()


@transaction.atomic
def _expand(pks: Sequence[int], now: datetime) -> None:
    # Another process may expand the same Events: each takes those that nobody has locked.
    rows = Outbox.objects.select_for_update(skip_locked=connection.features.has_select_for_update_skip_locked)
    taken = list(rows.filter(pk__in=pks).order_by("pk").values_list("pk", flat=True))
    events = list(Event.objects.filter(pk__in=taken).order_by("pk"))
    hearers = hearers_of(events)
    Notice.objects.bulk_create(
        Notice(
            user=one.user, event=one.event, kind=one.kind, slice_id=one.slice_id, is_for_admins=one.is_for_admins, created_at=one.event.at
        )
        for one in hearers
    )
    for user_id in sorted({one.user.pk for one in hearers}):
        hint(user_topic(user_id))
    Outbox.objects.filter(pk__in=taken).delete()
