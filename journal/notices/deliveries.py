"""Sends what is due.

A delivery is leased in one transaction, sent without any, and settled in another, if the lease still holds. A process that is killed in
between leaves a lease that runs out; the next attempt sends the same message with the same id.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import structlog
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from core.clock import db_now
from core.outbound import NotSent
from core.vault import SecretLost, decrypt
from journal.hints import hint, user_topic
from journal.models import Delivery, DeliveryState, Event, Notice, NoticeSettings
from journal.models.channels import ERROR_MAX_CHARS
from journal.notices.audience import hearers_of
from journal.notices.channels.codes import code_of
from journal.notices.letters import Letter, Line
from journal.notices.senders import send
from journal.notices.senders.answers import TooMany
from journal.notices.settings.wishes import channel_wants, settings_of
from journal.notices.timing import ATTEMPTS_MAX, pause

log = structlog.get_logger(__name__)

AT_ONCE: Final = 8
BEGINS_WITHIN_S: Final = 20  # of a step, since a task has a time limit
# Longer than any sending takes.
LEASE: Final = timedelta(seconds=120)
KEPT: Final = timedelta(days=90)
PRUNED_AT_ONCE: Final = 1000
NOT_WANTED: Final = "EGS tells nobody of this over this channel any more."
CUT_OFF: Final = "EGS was stopped during each attempt."
FAULT: Final = "It could not be sent, by a fault of EGS."


def deliveries_send(*, now: datetime | None = None) -> int:
    """Returns how many were tried. Runs one query when nothing is due. Simulations and tests pass `now`."""
    count, until_s = 0, time.monotonic() + BEGINS_WITHIN_S
    while time.monotonic() < until_s:
        at = now or db_now()
        leased = _lease(at) if _due(at).exists() else []
        if not leased:
            break
        count += len(leased)
        _send_all(leased, at, now)
    return count


def prune(*, now: datetime) -> None:
    """Delete notices and deliveries after KEPT, some at a time."""
    models: tuple[Any, ...] = (Notice, Delivery)
    for model in models:
        old = model.objects.filter(created_at__lt=now - KEPT).order_by("created_at")
        model.objects.filter(pk__in=list(old.values_list("pk", flat=True)[:PRUNED_AT_ONCE])).delete()


def _due(now: datetime) -> QuerySet[Delivery]:
    free = Q(lease=None) | Q(leased_until_at__lte=now)
    return Delivery.objects.filter(free, state=DeliveryState.WAITING, due_at__lte=now).order_by("due_at", "pk")


def _in_turn(now: datetime) -> list[UUID]:
    """Returns deliveries that are due, one of each person and workspace in turn, so that slow receivers of one hold up nobody else."""
    turn = Window(RowNumber(), partition_by=["channel__user", "channel__slice"], order_by=["due_at", "pk"])
    return list(_due(now).order_by(turn, "due_at", "pk").values_list("pk", flat=True)[: 2 * AT_ONCE])


@transaction.atomic
def _lease(now: datetime) -> list[Delivery]:
    asked = _in_turn(now)
    rows = _due(now).filter(pk__in=asked).select_for_update(skip_locked=connection.features.has_select_for_update_skip_locked)
    pks, lease = sorted(rows.values_list("pk", flat=True), key=asked.index)[:AT_ONCE], uuid4()
    Delivery.objects.filter(pk__in=pks).update(lease=lease, leased_until_at=now + LEASE, attempt_count=F("attempt_count") + 1)
    return list(Delivery.objects.filter(pk__in=pks).select_related("channel__user").prefetch_related("events"))


def _send_all(leased: Sequence[Delivery], at: datetime, now: datetime | None) -> None:
    events = _still_wanted(leased)
    letters = {row.pk: _letter(row, events[row.pk], at) for row in leased}
    ready = [letter for letter in letters.values() if isinstance(letter, Letter)]
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        results = dict(zip((letter.id for letter in ready), pool.map(_try, ready), strict=True))
    for row in leased:
        letter = letters[row.pk]
        _settle(row, results[row.pk] if isinstance(letter, Letter) else letter, now or db_now())


def _try(letter: Letter) -> NotSent | None:
    try:
        send(letter)
    except NotSent as error:
        return error
    except Exception:
        log.exception("delivery_fault", delivery=str(letter.id), kind=letter.kind)
        return NotSent(FAULT)
    return None


class _Dropped(NotSent):
    pass


def _letter(row: Delivery, events: Sequence[Event], at: datetime) -> Letter | NotSent:
    if row.attempt_count > ATTEMPTS_MAX:
        return NotSent(CUT_OFF, is_final=True)
    if not events and not row.is_test:
        return _Dropped(NOT_WANTED)
    try:
        secrets = tuple(decrypt(sealed) for sealed in row.channel.sealed_at(at))
    except SecretLost as error:
        return NotSent(str(error), is_final=True)
    lines = tuple(line for event in events if (line := Line.of(event)) is not None)
    code = code_of(row.channel) if row.channel.needs_code else ""
    return Letter(row.pk, row.channel.kind, row.channel.name, row.channel.target, secrets, lines, row.is_test, at, code)


def _still_wanted(rows: Sequence[Delivery]) -> dict[object, list[Event]]:
    """Drops Events that may not be told any more: people leave workspaces, mute them, and switch kinds off while a message waits."""
    personal = {event for row in rows if row.channel.user_id for event in row.events.all()}
    hearers = {(one.user.pk, one.event.pk) for one in hearers_of(sorted(personal, key=lambda event: event.pk))} if personal else set()
    wishes = settings_of({row.channel.user_id for row in rows if row.channel.user_id})
    wanted: dict[object, list[Event]] = {}
    for row in rows:
        user_id, nobody = row.channel.user_id, NoticeSettings()
        wanted[row.pk] = [
            event
            for event in sorted(row.events.all(), key=lambda event: event.pk)
            if (user_id is None or (user_id, event.pk) in hearers)
            and (line := Line.of(event)) is not None
            and channel_wants(row.channel, event, line.kind, wishes.get(user_id, nobody) if user_id else nobody)
        ]
    return wanted


@transaction.atomic
def _settle(row: Delivery, failed: NotSent | None, now: datetime) -> None:
    """It writes only while the lease is ours: after that another process may have sent the same message."""
    changes: dict[str, Any] = {"lease": None, "leased_until_at": None, "error": failed.text[:ERROR_MAX_CHARS] if failed else ""}
    if failed is None:
        changes |= {"state": DeliveryState.SENT, "sent_at": now}
    elif isinstance(failed, _Dropped):
        changes |= {"state": DeliveryState.DROPPED}
    elif failed.is_final or row.attempt_count >= ATTEMPTS_MAX:
        changes |= {"state": DeliveryState.FAILED}
    else:
        later = timedelta(seconds=failed.after_s) if isinstance(failed, TooMany) else timedelta()
        changes |= {"due_at": now + max(later, pause(row.attempt_count, draw=random.random()))}  # noqa: S311 - no secret
    settled = Delivery.objects.filter(pk=row.pk, lease=row.lease, state=DeliveryState.WAITING).update(**changes)
    if settled and row.channel.user_id:
        hint(user_topic(row.channel.user_id))
