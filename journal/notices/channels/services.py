"""Makes every change of a channel. Secrets go in and never out, but for the key of a new webhook's signatures."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.db import IntegrityError, transaction

from accounts.models import User
from accounts.permissions import refuse_bound
from core.errors import Conflict, IllegalTransition, InvalidInput, NameTaken
from core.names import mail_fault, text_fault
from core.outbound import url_fault
from core.vault import encrypt, rotate_rows
from core.words import duration, utc
from journal.changes import difference, values_of
from journal.hints import hint, user_topic
from journal.models import Channel, ChannelKind, Delivery, DeliveryState, Digest, Event
from journal.notices.channels.codes import code_is_right
from journal.notices.kinds import NoticeKind, kinds_in_order
from journal.notices.senders.mail import NO_SERVER
from journal.services import event_record

CHANNELS_MAX: Final = 10  # of a person or a workspace
TARGET_MAX_CHARS: Final = 500
SECRET_MAX_CHARS: Final = 500
TESTS_APART: Final = timedelta(seconds=10)
CODES_APART: Final = timedelta(minutes=10)  # the reader of the address may not want them
NEW_PER_HOUR_MAX: Final = 20  # of one person
SIGNING_PREFIX: Final = "egsw_"
BOTH_KEYS_SIGN: Final = timedelta(hours=24)  # after a key was replaced


@dataclass(frozen=True, slots=True)
class ChannelTerms:
    """`secret`: URL of a Slack webhook, or token of a bot; the others have none of their own."""

    name: str
    kind: ChannelKind
    target: str = ""
    secret: str = ""
    notice_kinds: tuple[NoticeKind, ...] = tuple(NoticeKind)
    digest: Digest = Digest.NONE


@dataclass(frozen=True, slots=True)
class NewChannel:
    """Holds as `plain` the key of a webhook's signatures, shown once; else empty."""

    channel: Channel
    plain: str


@transaction.atomic
def channel_create(*, owner: User | Any, terms: ChannelTerms, actor: User, now: datetime) -> NewChannel:
    """`owner` is a person or a workspace. Raises InvalidInput, NameTaken, Conflict beyond CHANNELS_MAX.

    Raises NotAllowed where a bound token would make a person's channel.
    """
    if isinstance(owner, User):
        refuse_bound(actor)
    of = {"user": owner} if isinstance(owner, User) else {"slice": owner}
    _check(terms)
    if Channel.objects.filter(**of).count() >= CHANNELS_MAX:
        raise Conflict(f"There may be {CHANNELS_MAX} channels. Delete one first.")
    if Event.objects.filter(kind="channel.created", actor=actor, at__gt=now - timedelta(hours=1)).count() >= NEW_PER_HOUR_MAX:
        raise Conflict(f"You have made {NEW_PER_HOUR_MAX} channels within an hour. Wait before you make another.")
    plain = _new_key() if terms.kind == ChannelKind.WEBHOOK else ""
    secret = plain or terms.secret
    channel = Channel(
        **of,
        name=terms.name,
        kind=terms.kind,
        target=_shown_target(terms),
        sealed=encrypt(secret) if secret else "",
        notice_kinds=kinds_in_order(terms.notice_kinds),
        digest=terms.digest,
        created_at=now,
    )
    _save(channel, force_insert=True)
    _record(channel, "created", f"{_told(channel)} was made.", actor, now)
    _ask_for_code(channel, actor, now)
    return NewChannel(channel, plain)


@transaction.atomic
def channel_change(*, channel: Channel, changes: dict[str, Any], actor: User, now: datetime) -> Channel:
    """`changes`: fields of ChannelTerms but `kind`, and `is_on`.

    Raises InvalidInput or NameTaken, and Conflict for a new mail address soon after another.
    """
    found = Channel.objects.select_for_update(of=("self",)).get(pk=channel.pk)
    had_target, before = found.target, _told_terms(found)
    secret, target = str(changes.get("secret", "")), str(changes.get("target", found.target))
    kept = found.sealed and not secret
    terms = ChannelTerms(
        name=changes.get("name", found.name),
        kind=ChannelKind(found.kind),
        target="" if _is_told_by_secret(found) else target,
        secret=secret,
    )
    _check(terms, keeps_secret=bool(kept))
    if secret:
        found.sealed = encrypt(secret)
    if secret or not _is_told_by_secret(found):
        found.target = _shown_target(terms)
    found.name, found.is_on = terms.name, changes.get("is_on", found.is_on)
    found.notice_kinds = kinds_in_order(changes.get("notice_kinds", found.notice_kinds))
    found.digest = changes.get("digest", found.digest)
    is_moved = found.target != had_target
    found.confirmed_at = None if is_moved else found.confirmed_at
    _save(found)
    _record(found, "changed", f"{_told(found)} was changed.", actor, now, difference(before, _told_terms(found)))
    if is_moved:
        _ask_for_code(found, actor, now)
    return found


@transaction.atomic
def channel_replace_key(*, channel: Channel, actor: User, now: datetime) -> NewChannel:
    """Both keys sign for BOTH_KEYS_SIGN. Raises Conflict where nothing is signed, or while the key before still signs."""
    found = Channel.objects.select_for_update(of=("self",)).get(pk=channel.pk)
    if found.kind != ChannelKind.WEBHOOK:
        raise Conflict("Only the messages of a webhook are signed.")
    if found.replaced_until_at is not None and now < found.replaced_until_at:
        raise Conflict(f"The key was replaced lately, and the one before signs until {utc(found.replaced_until_at)}. Wait until then.")
    plain = _new_key()
    found.replaced_sealed, found.sealed, found.replaced_until_at = found.sealed, encrypt(plain), now + BOTH_KEYS_SIGN
    found.save(update_fields=["replaced_sealed", "sealed", "replaced_until_at"])
    _record(found, "key_replaced", f"The key of {_told(found).lower()} was replaced.", actor, now)
    return NewChannel(found, plain)


@transaction.atomic
def channel_delete(*, channel: Channel, actor: User | None, now: datetime) -> None:
    """Its deliveries go with it."""
    _record(channel, "deleted", f"{_told(channel)} was deleted.", actor, now)
    Channel.objects.filter(pk=channel.pk).delete()


@transaction.atomic
def channel_test(*, channel: Channel, actor: User, now: datetime) -> Delivery:
    """Send a message that says that it is a test, or the code of an address. Raises Conflict soon after another."""
    Channel.objects.select_for_update(of=("self",)).get(pk=channel.pk)
    _refuse_soon_after_test(channel, CODES_APART if channel.needs_code else TESTS_APART, now)
    made = Delivery.objects.create(channel=channel, is_test=True, created_at=now, due_at=now)
    _record(channel, "tested", f"A test is sent over {_told(channel).lower()}.", actor, now)
    return made


@transaction.atomic
def channel_confirm(*, channel: Channel, code: str, actor: User, now: datetime) -> Channel:
    """The code shows that the actor reads what arrives there. Raises Conflict when none is needed, InvalidInput for a wrong code."""
    found = Channel.objects.select_for_update(of=("self",)).get(pk=channel.pk)
    if not found.needs_code:
        raise Conflict("This channel needs no code.")
    if not code_is_right(found, code):
        raise InvalidInput({"code": ["This is not the code of the last message to this address."]})
    found.confirmed_at = now
    found.save(update_fields=["confirmed_at"])
    _record(found, "confirmed", f"The address of {_told(found).lower()} was confirmed.", actor, now)
    return found


@transaction.atomic
def delivery_retry(*, delivery: Delivery, actor: User, now: datetime) -> Delivery:
    """Send it again, with the same id, whether it failed or was sent. Raises IllegalTransition for any other, Conflict for a code."""
    if delivery.channel.needs_code:
        raise Conflict("The address is not confirmed. Send a test for another code.")
    again = Delivery.objects.filter(pk=delivery.pk, state__in=[DeliveryState.FAILED, DeliveryState.SENT])
    if not again.update(state=DeliveryState.WAITING, due_at=now, attempt_count=0, error="", sent_at=None):
        raise IllegalTransition("Only what failed or was sent can be sent again.")
    _record(delivery.channel, "delivery_retried", f"A message is sent again over {_told(delivery.channel).lower()}.", actor, now)
    delivery.refresh_from_db()
    return delivery


def secrets_rotate() -> tuple[int, int]:
    """Encrypt all secrets with the newest key. Returns how many it encrypted, and how many no key reads."""
    counts = [rotate_rows(Channel.objects.all(), column) for column in ("sealed", "replaced_sealed")]
    return sum(done for done, _ in counts), sum(lost for _, lost in counts)


def _new_key() -> str:
    return f"{SIGNING_PREFIX}{secrets.token_urlsafe(32)}"


def _ask_for_code(channel: Channel, actor: User, now: datetime) -> None:
    """Confirms a person's own address at once, since an administrator or the identity provider has said that it is theirs."""
    if not channel.needs_code:
        return
    if channel.user_id == actor.pk and actor.email and actor.email.lower() == channel.target.lower():
        channel.confirmed_at = now
        channel.save(update_fields=["confirmed_at"])
        return
    _refuse_soon_after_test(channel, CODES_APART, now)
    Delivery.objects.create(channel=channel, is_test=True, created_at=now, due_at=now)


def _refuse_soon_after_test(channel: Channel, apart: timedelta, now: datetime) -> None:
    if channel.deliveries.filter(is_test=True, created_at__gt=now - apart).exists():
        raise Conflict(f"The last test of this channel began less than {duration(apart.total_seconds())} ago. Wait before the next.")


def _check(terms: ChannelTerms, *, keeps_secret: bool = False) -> None:
    faults = {"target": _target_fault(terms), "secret": "" if keeps_secret and not terms.secret else _secret_fault(terms)}
    if errors := {name: [fault] for name, fault in faults.items() if fault}:
        raise InvalidInput(errors)


def _target_fault(terms: ChannelTerms) -> str:
    if terms.kind == ChannelKind.SLACK_WEBHOOK:
        return "" if not terms.target else "A Slack webhook has its URL as the secret, and no target."
    if not terms.target:
        return "Must be given."
    if len(terms.target) > TARGET_MAX_CHARS or text_fault(terms.target):
        return text_fault(terms.target) or f"Must have {TARGET_MAX_CHARS} characters at most."
    if terms.kind == ChannelKind.WEBHOOK:
        return url_fault(terms.target)
    if terms.kind == ChannelKind.MAIL:
        return mail_fault(terms.target) if settings.EMAIL_HOST else NO_SERVER
    return ""


def _secret_fault(terms: ChannelTerms) -> str:
    if terms.kind in {ChannelKind.MAIL, ChannelKind.WEBHOOK}:
        return "" if not terms.secret else "This kind of channel takes no secret."
    if not terms.secret:
        return "Must be given."
    if len(terms.secret) > SECRET_MAX_CHARS or text_fault(terms.secret):
        return f"Must be one line of {SECRET_MAX_CHARS} characters at most."
    if terms.kind == ChannelKind.SLACK_BOT:
        return "" if terms.secret.startswith("xoxb-") and terms.secret.isascii() else "Must be the token of a bot, which begins with xoxb-."
    if fault := url_fault(terms.secret):
        return fault
    is_slack = urlsplit(terms.secret).hostname in settings.EGS_SLACK_HOSTS
    return "" if is_slack else f"Must be the URL of an incoming webhook, at {' or '.join(settings.EGS_SLACK_HOSTS)}."


def _is_told_by_secret(channel: Channel) -> bool:
    return channel.kind == ChannelKind.SLACK_WEBHOOK


def _shown_target(terms: ChannelTerms) -> str:
    return str(urlsplit(terms.secret).hostname) if terms.kind == ChannelKind.SLACK_WEBHOOK else terms.target


def _save(channel: Channel, *, force_insert: bool = False) -> None:
    try:
        with transaction.atomic():
            channel.save(force_insert=force_insert)
    except IntegrityError:
        raise NameTaken("There is a channel of this name already. Choose another one.") from None


def _told(channel: Channel) -> str:
    return f"Channel {channel.name} ({ChannelKind(channel.kind).label})"


def _told_terms(channel: Channel) -> dict[str, Any]:
    """Returns the terms without the target, which only its owners may read."""
    return values_of(channel, ("name", "notice_kinds", "digest", "is_on"))


def _record(channel: Channel, what: str, text: str, actor: User | None, now: datetime, changed: dict[str, Any] | None = None) -> None:
    data = {"channel": str(channel.pk), **(changed or {})}
    event_record(kind=f"channel.{what}", message=text, at=now, actor=actor, slice_id=channel.slice_id, data=data)
    if channel.user_id:
        hint(user_topic(channel.user_id))
