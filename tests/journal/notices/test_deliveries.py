"""An Event reaches real servers: once, for those who want it, at their time."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, time, timedelta
from ipaddress import ip_network
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection, transaction

from accounts.models import User
from core.clock import db_now
from core.errors import Conflict, InvalidInput
from journal.models import Channel, ChannelKind, Delivery, DeliveryState, Digest, Notice, NoticeSettings, Outbox, Severity
from journal.notices import deliveries, outbox
from journal.notices.channels.services import (
    BOTH_KEYS_SIGN,
    ChannelTerms,
    channel_change,
    channel_confirm,
    channel_create,
    channel_replace_key,
    channel_test,
    delivery_retry,
    secrets_rotate,
)
from journal.notices.deliveries import AT_ONCE, LEASE, deliveries_send, prune
from journal.notices.outbox import outbox_expand
from journal.notices.timing import ATTEMPTS_MAX
from journal.services import event_record
from slices.models import Membership, Slice
from tests.builders import HOUR, make_gpr, make_slice, make_user
from tests.databases import lock_waiter_count, wait_until
from tests.journal.notices.receivers import HttpReceiver, SmtpReceiver, http_receiver, smtp_receiver

S = DeliveryState


@pytest.fixture(autouse=True)
def _loopback_is_allowed(settings: Any) -> None:
    settings.EGS_OUTBOUND_ALLOW = [ip_network("127.0.0.0/8")]
    settings.EGS_PUBLIC_URL = "https://egs.example"


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with http_receiver() as told:
        yield told


@pytest.fixture
def smtp(settings: Any) -> Iterator[SmtpReceiver]:
    with smtp_receiver() as told:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_USE_TLS = "127.0.0.1", told.port, False
        settings.DEFAULT_FROM_EMAIL = "EGS <egs@egs.example>"
        yield told


@pytest.fixture
def owner(db: None) -> User:
    return make_user("owner")


@pytest.fixture
def workspace(owner: User) -> Slice:
    made = make_slice(owner=owner)
    Outbox.objects.all().delete()  # of the owner's own membership
    return made


def channel_of(
    owner: User | Slice, kind: ChannelKind = ChannelKind.WEBHOOK, *, target: str, actor: User | None = None, **terms: Any
) -> Channel:
    by = actor or (owner if isinstance(owner, User) else make_user())
    given = ChannelTerms(name=terms.pop("name", "news"), kind=kind, target=target, **terms)
    return channel_create(owner=owner, terms=given, actor=by, now=db_now()).channel


def happens(workspace: Slice, owner: User, now: datetime, text: str = "train is provisioned.", **changes: Any) -> None:
    """Something of which the owner of a request is told."""
    gpr = make_gpr(workspace, owner=owner)
    with transaction.atomic():
        event_record(kind="gpr.mark", message=text, at=now, gpr_id=gpr.pk, slice_id=workspace.pk, **changes)
    outbox_expand(now=now)


def states(of: Channel | None = None) -> list[str]:
    rows = Delivery.objects.filter(channel=of) if of else Delivery.objects.all()
    return list(rows.order_by("created_at", "pk").values_list("state", flat=True))


@pytest.mark.django_db
def test_a_webhook_gets_signed_json_that_its_owner_can_verify(owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime) -> None:
    made = channel_create(
        owner=owner, terms=ChannelTerms(name="hook", kind=ChannelKind.WEBHOOK, target=f"{receiver.url}/egs"), actor=owner, now=now
    )
    happens(workspace, owner, now)

    deliveries_send(now=now)

    (post,) = receiver.posts
    fields = dict(part.split("=") for part in post.headers["X-Egs-Signature"].split(","))
    expected = hmac.new(made.plain.encode(), f"{fields['t']}.".encode() + post.body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(fields["v1"], expected)
    assert abs(int(fields["t"]) - now.timestamp()) < 1
    told = json.loads(post.body)
    delivery = Delivery.objects.get()
    assert told["id"] == post.headers["X-Egs-Delivery"] == str(delivery.pk)
    assert [(each["kind"], each["text"]) for each in told["notices"]] == [("mark", "train is provisioned.")]
    assert told["notices"][0]["url"].startswith("https://egs.example/gprs/")
    assert (delivery.state, delivery.sent_at) == (S.SENT, now)
    assert made.plain not in Channel.objects.get().sealed


@pytest.mark.django_db
def test_mail_reaches_a_real_server_with_an_id_of_the_delivery(owner: User, workspace: Slice, smtp: SmtpReceiver, now: datetime) -> None:
    User.objects.filter(pk=owner.pk).update(email="Owner@example.com")
    owner.refresh_from_db()
    channel_of(owner, ChannelKind.MAIL, target="owner@example.com")
    happens(workspace, owner, now, "25 % of the time of ü has passed.")

    deliveries_send(now=now)

    (mail,) = smtp.mails
    assert mail["Subject"] == "[EGS] 25 % of the time of ü has passed."
    assert mail["Message-ID"] == f"<{Delivery.objects.get().pk}@egs.example>"
    assert (mail["To"], mail.get_content_type()) == ("owner@example.com", "text/plain")
    assert "https://egs.example/gprs/" in mail.get_content()  # type: ignore[attr-defined]
    assert states() == [S.SENT]


@pytest.mark.django_db
def test_an_address_that_is_not_known_to_be_ones_own_gets_a_code_and_nothing_else_until_it_is_confirmed(
    owner: User, workspace: Slice, smtp: SmtpReceiver
) -> None:
    channel = channel_of(owner, ChannelKind.MAIL, name="Buy this", target="victim@example.com")
    happens(workspace, owner, db_now())
    deliveries_send()
    (mail,) = smtp.mails
    text = mail.get_content()  # type: ignore[attr-defined]
    (code,) = re.findall(r"\b[A-Z2-7]{10}\b", text)
    assert "Buy this" not in text

    with pytest.raises(InvalidInput):
        channel_confirm(channel=channel, code="ABCDEFGHIJ", actor=owner, now=db_now())
    with pytest.raises(Conflict):
        channel_test(channel=channel, actor=owner, now=db_now())
    with pytest.raises(Conflict):
        delivery_retry(delivery=Delivery.objects.get(is_test=True), actor=owner, now=db_now())
    channel_confirm(channel=channel, code=code.lower(), actor=owner, now=db_now())
    happens(workspace, owner, db_now(), "confirmed")
    deliveries_send()

    assert [mail["Subject"] for mail in smtp.mails] == ["[EGS] Confirm your address", "[EGS] confirmed"]
    change: dict[str, Any] = {"channel": Channel.objects.get(), "changes": {"target": "other@example.com"}, "actor": owner}
    with pytest.raises(Conflict):
        channel_change(**change, now=db_now())
    read_before = channel_change(**change, now=db_now() + timedelta(minutes=11))
    assert read_before.needs_code
    Channel.objects.update(target="mine@example.com", confirmed_at=db_now())  # another request has changed and confirmed it meanwhile
    assert channel_change(**{**change, "channel": read_before}, now=db_now() + timedelta(minutes=22)).needs_code


@pytest.mark.django_db
def test_slack_gets_text_in_which_nobody_can_hide_a_link_or_call_the_whole_channel(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    settings.EGS_SLACK_HOSTS, settings.EGS_SLACK_API = ["127.0.0.1"], f"{receiver.url}/api/"
    receiver.answer = (200, {"Content-Type": "application/json"}, b'{"ok": true}')
    hook = channel_of(owner, ChannelKind.SLACK_WEBHOOK, name="hook", target="", secret=f"{receiver.url}/services/T0/B0/secret")
    channel_of(owner, ChannelKind.SLACK_BOT, name="bot", target="#gpus", secret="xoxb-secret")
    happens(workspace, owner, now, "<!channel> a & b")

    deliveries_send(now=now)

    by_path = {post.path: post for post in receiver.posts}
    assert json.loads(by_path["/services/T0/B0/secret"].body)["text"].startswith("&lt;!channel&gt; a &amp; b")
    bot = by_path["/api/chat.postMessage"]
    assert bot.headers["Authorization"] == "Bearer xoxb-secret"
    assert json.loads(bot.body)["channel"] == "#gpus"
    assert (hook.target, "secret" in hook.sealed, "secret" in caplog.text) == ("127.0.0.1", False, False)
    assert states() == [S.SENT, S.SENT]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("answer", "state", "error"),
    [
        (b'{"ok": false, "error": "channel_not_found"}', S.FAILED, "Slack refused the message: channel_not_found."),
        (b'{"ok": false, "error": "Bearer xoxb-secret"}', S.WAITING, "Slack refused the message."),
        (b"<html>xoxb-secret</html>", S.WAITING, "Slack refused the message."),
        (b'["xoxb-secret"]', S.WAITING, "Slack gave no answer that EGS understands."),
    ],
    ids=["refused for good", "refused with the token", "no answer", "no object"],
)
def test_slack_that_refuses_for_good_is_not_asked_again_and_its_owner_reads_why_without_the_token(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime, settings: Any, answer: bytes, state: str, error: str
) -> None:
    settings.EGS_SLACK_API = receiver.url
    receiver.answer = (200, {"Content-Type": "application/json"}, answer)
    channel_of(owner, ChannelKind.SLACK_BOT, target="#gone", secret="xoxb-secret")
    happens(workspace, owner, now)

    deliveries_send(now=now)

    assert states() == [state]
    assert Delivery.objects.get().error == error


@pytest.mark.django_db
def test_what_fails_is_tried_eight_times_ever_later_and_then_no_more(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime
) -> None:
    receiver.answer = (500, {}, b"<secret of the receiver>")
    channel_of(owner, target=receiver.url)
    happens(workspace, owner, now)

    at, waits_s = now, []
    while (row := Delivery.objects.get()).state == S.WAITING:
        waits_s.append((row.due_at - at).total_seconds())
        at = row.due_at
        deliveries_send(now=at)
        deliveries_send(now=at)  # nothing is due

    assert (len(receiver.posts), len(set(receiver.ids))) == (ATTEMPTS_MAX, 1)
    assert all(short < long for short, long in pairwise(waits_s))
    assert 8 <= waits_s[1] <= 12
    assert 0.8 * 6 * 3600 <= waits_s[-1] <= 1.2 * 6 * 3600
    assert (row.state, row.error) == (S.FAILED, "The receiver answered 500.")


@pytest.mark.django_db
def test_whoever_has_many_messages_holds_up_nobody_else(owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime) -> None:
    busy, calm = (channel_of(each, target=f"{receiver.url}/{name}") for each, name in ((workspace, "busy"), (owner, "calm")))
    for channel, count, due_at in ((busy, 3 * AT_ONCE, now - HOUR), (calm, 1, now)):
        for _ in range(count):
            Delivery.objects.create(channel=channel, is_test=True, created_at=now, due_at=due_at)

    deliveries_send(now=now)

    assert "/calm" in [post.path for post in receiver.posts[:AT_ONCE]]
    assert len(receiver.posts) == 3 * AT_ONCE + 1


@pytest.mark.django_db
def test_a_receiver_that_asks_for_a_pause_gets_it(owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime) -> None:
    receiver.answer = (429, {"Retry-After": "1800"}, b"")
    channel_of(owner, target=receiver.url)
    happens(workspace, owner, now)

    deliveries_send(now=now)

    assert Delivery.objects.get().due_at == now + timedelta(seconds=1800)


@pytest.mark.django_db
def test_a_redirect_into_the_network_is_refused_at_once(owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime) -> None:
    receiver.answer = (307, {"Location": f"{receiver.url}/inside"}, b"")
    channel_of(owner, target=receiver.url)
    happens(workspace, owner, now)

    deliveries_send(now=now)

    assert [post.path for post in receiver.posts] == ["/"]
    assert Delivery.objects.get().error == "The receiver answered 307. EGS follows no redirects."


@pytest.mark.django_db
def test_a_message_to_an_address_that_is_no_longer_allowed_fails_without_a_connection(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime, settings: Any
) -> None:
    channel_of(owner, target=receiver.url)
    happens(workspace, owner, now)
    settings.EGS_OUTBOUND_ALLOW = []

    deliveries_send(now=now)

    assert states() == [S.FAILED]
    assert receiver.posts == []


@pytest.mark.django_db
def test_who_left_the_workspace_or_was_disabled_or_switched_it_off_gets_nothing_that_still_waits(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime
) -> None:
    people = [make_user(name) for name in ("leaves", "disabled", "off", "mutes", "stays")]
    for user in people:
        Membership.objects.create(slice=workspace, user=user, role="editor")
        channel_of(user, target=receiver.url)
        happens(workspace, user, now, f"for {user.name}")
    leaves, disabled, off, mutes, _ = people

    Membership.objects.filter(user=leaves).delete()
    User.objects.filter(pk=disabled.pk).update(is_active=False)
    Channel.objects.filter(user=off).update(is_on=False)
    NoticeSettings.objects.create(user=mutes, muted_slices=[str(workspace.pk)])
    deliveries_send(now=now)

    assert [json.loads(post.body)["notices"][0]["text"] for post in receiver.posts] == ["for stays"]
    assert sorted(states()) == sorted([S.DROPPED] * 4 + [S.SENT])


@pytest.mark.django_db
def test_a_workspace_hears_of_its_own_requests_whoever_owns_them_and_of_no_others_and_of_no_alerts(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime
) -> None:
    channel_of(workspace, target=receiver.url)
    happens(workspace, make_user("colleague"), now, "ours")
    happens(make_slice(), owner, now, "theirs")
    with transaction.atomic():
        event_record(kind="gpr.exit_overdue", message="alert", at=now, slice_id=workspace.pk)
    outbox_expand(now=now)

    deliveries_send(now=now)

    assert [json.loads(post.body)["notices"][0]["text"] for post in receiver.posts] == ["ours"]


@pytest.mark.django_db
def test_quiet_hours_hold_back_all_but_errors_until_they_end(owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime) -> None:
    NoticeSettings.objects.create(user=owner, zone="Europe/Berlin", quiet_from=time(22), quiet_until=time(7))
    channel_of(owner, target=receiver.url)
    night = now.replace(month=1, day=15, hour=23)  # past midnight in Berlin
    happens(workspace, owner, night, "later")
    happens(workspace, owner, night, "now", severity=Severity.ERROR)

    deliveries_send(now=night)
    assert [json.loads(post.body)["notices"][0]["text"] for post in receiver.posts] == ["now"]
    morning = night.replace(day=16, hour=6)  # 7:00 in Berlin
    deliveries_send(now=morning - timedelta(seconds=1))
    assert len(receiver.posts) == 1
    deliveries_send(now=morning)
    assert len(receiver.posts) == 2


@pytest.mark.django_db
def test_a_digest_is_one_message_an_hour_and_what_comes_while_it_is_sent_is_in_the_next(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime
) -> None:
    channel_of(owner, target=receiver.url, digest=Digest.HOURLY)
    for minute, text in enumerate(("a", "b", "c")):
        happens(workspace, owner, now + timedelta(minutes=minute), text)
    deliveries_send(now=now + timedelta(minutes=59))
    assert receiver.posts == []

    receiver.answer = (500, {}, b"")
    deliveries_send(now=now + HOUR)
    happens(workspace, owner, now + timedelta(minutes=59), "late")  # by a clock that is behind
    receiver.answer = (200, {}, b"")
    deliveries_send(now=now + HOUR + timedelta(minutes=1))
    deliveries_send(now=now + 2 * HOUR)

    texts = [[each["text"] for each in json.loads(post.body)["notices"]] for post in receiver.posts]
    assert texts == [["a", "b", "c"], ["a", "b", "c"], ["late"]]
    assert receiver.ids[0] == receiver.ids[1] != receiver.ids[2]


@pytest.mark.sqlite_only
@pytest.mark.django_db(transaction=True)
def test_a_sender_that_is_killed_between_sending_and_storing_leads_to_the_same_message_again(
    owner: User, workspace: Slice, receiver: HttpReceiver, settings: Any
) -> None:
    now = db_now()
    channel_of(owner, target=receiver.url)
    happens(workspace, owner, now)
    env = {**os.environ, "EGS_SECRET_KEY": settings.SECRET_KEY, "EGS_OUTBOUND_ALLOW": "127.0.0.0/8"}
    env["EGS_DATABASE_URL"] = f"sqlite:///{connection.settings_dict['NAME']}"
    code = "import django; django.setup(); from journal.notices.deliveries import deliveries_send; deliveries_send()"
    sender = subprocess.Popen([sys.executable, "-c", code], cwd=settings.BASE_DIR, env={**env, "DJANGO_SETTINGS_MODULE": "egs.settings"})
    receiver.before_answer = sender.kill
    assert sender.wait(timeout=60) == -9

    receiver.before_answer = lambda: None
    row = Delivery.objects.get()
    assert (row.state, row.lease is None) == (S.WAITING, False)
    assert deliveries_send(now=now) == 0  # its lease still holds
    assert deliveries_send(now=db_now() + LEASE) == 1
    assert deliveries_send(now=db_now() + 2 * LEASE) == 0

    assert len(receiver.ids) == 2
    assert set(receiver.ids) == {str(row.pk)}
    assert states() == [S.SENT]


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_two_senders_and_two_expanders_at_once_send_each_message_once(owner: User, workspace: Slice, receiver: HttpReceiver) -> None:
    now = db_now()
    channel_of(owner, target=receiver.url)
    for n in range(20):
        gpr = make_gpr(workspace, owner=owner)
        with transaction.atomic():
            event_record(kind="gpr.mark", message=f"number {n}", at=now, gpr_id=gpr.pk, slice_id=workspace.pk)
    gate = threading.Barrier(2)

    def work() -> None:
        try:
            gate.wait()
            outbox_expand(now=db_now())
            gate.wait()
            while deliveries_send():
                pass
        finally:
            connection.close()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    # On a busy machine the receiver may answer too late. That message is tried again later, with the same id.
    late_count = Delivery.objects.filter(state=S.WAITING).exclude(error="").count()
    assert Delivery.objects.filter(state=S.SENT).count() == 20 - late_count
    deliveries_send(now=db_now() + timedelta(hours=1))
    assert len(set(receiver.ids)) == 20
    assert len(receiver.ids) <= 20 + late_count
    assert Notice.objects.count() == 20


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_two_expanders_that_fill_the_same_digests_in_opposite_order_do_not_wait_for_each_other(
    owner: User, workspace: Slice, receiver: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, real, begun = db_now(), outbox._digest, set[int]()
    people = [owner, make_user("teammate")]
    Membership.objects.create(slice=workspace, user=people[1], role="editor")
    for person in people:
        channel_of(person, target=receiver.url, digest=Digest.HOURLY)
    for person in [*people, *reversed(people)]:
        gpr = make_gpr(workspace, owner=person)
        with transaction.atomic():
            event_record(kind="gpr.mark", message="train is provisioned.", at=now, gpr_id=gpr.pk, slice_id=workspace.pk)
    pks = list(Outbox.objects.order_by("pk").values_list("pk", flat=True))

    def digest(*arguments: Any) -> Delivery:
        made = real(*arguments)
        begun.add(threading.get_ident())
        wait_until(lambda: len(begun) == 2 or lock_waiter_count() > 0)
        return made

    monkeypatch.setattr(outbox, "_digest", digest)
    with ThreadPoolExecutor() as pool:
        for each in [pool.submit(_expand_and_close, some, now) for some in (pks[:2], pks[2:])]:
            each.result()

    assert sorted(row.events.count() for row in Delivery.objects.all()) == [2, 2]


def _expand_and_close(pks: list[int], now: datetime) -> None:
    try:
        outbox._expand(pks, now)
    finally:
        connection.close()


@pytest.mark.django_db
def test_a_message_whose_sender_dies_each_time_is_given_up(owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime) -> None:
    channel_of(owner, target=receiver.url)
    happens(workspace, owner, now)
    for n in range(ATTEMPTS_MAX):
        assert len(deliveries._lease(now + n * LEASE)) == 1

    deliveries_send(now=now + ATTEMPTS_MAX * LEASE)

    assert (states(), receiver.posts) == ([S.FAILED], [])


@pytest.mark.django_db
def test_old_notices_and_deliveries_are_deleted_and_younger_ones_stay(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime
) -> None:
    channel_of(owner, target=receiver.url)
    happens(workspace, owner, now - timedelta(days=91), "old")
    happens(workspace, owner, now - timedelta(days=89), "young")

    prune(now=now)

    assert [row.event.message for row in Notice.objects.select_related("event")] == ["young"]
    assert [event.message for row in Delivery.objects.all() for event in row.events.all()] == ["young"]


@pytest.mark.django_db
def test_after_a_webhooks_key_was_replaced_both_keys_sign_for_a_day_and_then_the_new_one_alone(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime
) -> None:
    terms = ChannelTerms(name="hook", kind=ChannelKind.WEBHOOK, target=receiver.url)
    made = channel_create(owner=owner, terms=terms, actor=owner, now=now)
    again = channel_replace_key(channel=made.channel, actor=owner, now=now)
    with pytest.raises(Conflict):
        channel_replace_key(channel=made.channel, actor=owner, now=now)
    assert secrets_rotate() == (2, 0)
    happens(workspace, owner, now)
    deliveries_send(now=now)
    happens(workspace, owner, now)
    deliveries_send(now=now + BOTH_KEYS_SIGN)

    both, alone = (post.headers["X-Egs-Signature"].split(",") for post in receiver.posts)
    by_keys = [
        [f"t={at_s}", *(f"v1={hmac.new(key.encode(), f'{at_s}.'.encode() + post.body, hashlib.sha256).hexdigest()}" for key in keys)]
        for post, at, keys in zip(receiver.posts, (now, now + BOTH_KEYS_SIGN), ((again.plain, made.plain), (again.plain,)), strict=True)
        if (at_s := int(at.timestamp()))
    ]
    assert [both, alone] == by_keys


@pytest.mark.django_db
def test_a_key_can_be_replaced_and_then_removed_and_a_secret_without_its_key_is_told_of(
    owner: User, workspace: Slice, receiver: HttpReceiver, now: datetime, settings: Any
) -> None:
    settings.EGS_SECRET_KEYS = {"1": "first"}
    channel_of(owner, target=receiver.url)
    settings.EGS_SECRET_KEYS = {"1": "first", "2": "second"}
    happens(workspace, owner, now)
    deliveries_send(now=now)
    assert secrets_rotate() == (1, 0)
    for keys in ({"2": "second"}, {"3": "third"}):
        settings.EGS_SECRET_KEYS = keys
        happens(workspace, owner, now)
        deliveries_send(now=now)

    assert secrets_rotate() == (0, 1)
    assert sorted(states()) == [S.FAILED, S.SENT, S.SENT]
    assert Delivery.objects.get(state=S.FAILED).error == "EGS_SECRET_KEYS has no key for it any more."
