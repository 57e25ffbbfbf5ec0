"""Pages show a person's channels and those of a workspace, and what became of their messages."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from accounts.models import Scope
from core.clock import db_now
from journal.models import Channel, Delivery, DeliveryState, Event, NoticeSettings
from journal.notices.kinds import NoticeKind
from slices.models import Invitation, Role
from tests import factories
from tests.journal.notices import notices
from tests.pages.user_world import World, text

pytestmark = pytest.mark.django_db

HOOK = {"name": "hook", "target": "https://hook.example/egs", "digest": "none", "notice_kinds": ["started", "ended"]}


def test_a_session_of_a_bound_token_changes_nothing_that_is_personal(world: World) -> None:
    people, browser = world.people, Client()
    notices.channel(people.owner, name="my-own-hook")
    asked = {"slice": world.foreign, "name": people.owner.name, "user": people.owner, "role": Role.VIEWER, "invited_by": people.outsider}
    invited = Invitation.objects.create(**asked, created_at=db_now())
    browser.post("/login/", {"token": factories.token(people.owner, Scope.READ, Scope.WRITE, slices=[str(world.slice.pk)])})

    assert b"my-own-hook" not in browser.get("/account/notices/").content
    assert browser.post(f"/invitations/{invited.pk}/accept/").status_code == 404
    assert browser.post("/account/notices/", {"kinds": ["node"], "zone": "UTC", "quiet_from": "", "quiet_until": ""}).status_code == 403
    assert browser.post("/account/sessions/others/end/", {"confirmed": "1"}).status_code == 403
    form = {"name": "robots", "project": "motion", "purpose": "Gripper."}
    assert browser.post("/workspace-requests/new/", form).status_code == 403


def test_a_webhook_is_added_and_its_key_is_shown_once_and_so_is_the_key_that_replaces_it(world: World, owner: Client) -> None:
    made = text(owner.post("/channels/new/webhook/", HOOK))

    (key,) = re.findall(r"egsw_[\w-]{43}", made)
    channel = Channel.objects.get()
    assert (channel.user, channel.notice_kinds) == (world.people.owner, ["started", "ended"])
    assert key not in text(owner.get(f"/channels/{channel.pk}/"))
    assert "2 kinds" in text(owner.get("/account/notices/"))
    (new_key,) = re.findall(r"egsw_[\w-]{43}", text(owner.post(f"/channels/{channel.pk}/replace-key/", {"confirmed": "1"})))
    assert new_key != key
    assert "egsw_" not in text(owner.get(f"/channels/{channel.pk}/"))
    assert "The key was replaced lately" in text(owner.post(f"/channels/{channel.pk}/replace-key/", {"confirmed": "1"}), 409)


def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_stays(owner: Client) -> None:
    page = text(owner.post("/channels/new/webhook/", {**HOOK, "target": "https://169.254.169.254/latest"}), 422)

    assert "an address inside this network" in page
    assert 'aria-describedby="id_target_hint id_target_error"' in page
    assert 'value="https://169.254.169.254/latest"' in page
    assert text(owner.get("/channels/new/pager/"), 404)
    page = text(owner.post("/channels/new/slack_bot/", {**HOOK, "target": "#gpus", "secret": "xoxb-typed-secret", "name": ""}), 422)
    assert "typed-secret" not in page


def test_a_stored_secret_is_never_in_a_page_and_stays_when_the_field_is_left_empty(owner: Client, settings: pytest.FixtureRequest) -> None:
    secret = "https://hooks.slack.com/services/T0/B0/hush"
    owner.post("/channels/new/slack_webhook/", {"name": "slack", "secret": secret, "digest": "none", "notice_kinds": ["ended"]})
    channel = Channel.objects.get()

    pages = [text(owner.get(path)) for path in (f"/channels/{channel.pk}/", f"/channels/{channel.pk}/change/", "/account/notices/")]
    owner.post(f"/channels/{channel.pk}/change/", {"name": "new", "secret": "", "digest": "daily", "notice_kinds": [], "is_on": "on"})

    assert not any("hush" in page for page in pages)
    changed = Channel.objects.get()
    assert (changed.name, changed.digest, changed.sealed, changed.is_on) == ("new", "daily", channel.sealed, True)


def test_owners_manage_the_channels_of_their_workspace_and_members_do_not_see_them(world: World, owner: Client) -> None:
    owner.post("/channels/new/webhook/?workspace=vision", HOOK)
    channel = Channel.objects.get()
    assert channel.slice == world.slice
    assert "hook" in text(owner.get("/workspaces/vision/channels/"))
    assert "/workspaces/vision/channels/" in text(owner.get("/workspaces/vision/access/"))
    assert "/workspaces/vision/channels/" not in text(world.client("teammate").get("/workspaces/vision/access/"))

    teammate, outsider = world.client("teammate"), world.client("outsider")
    assert [client.get("/workspaces/vision/channels/").status_code for client in (teammate, outsider)] == [403, 404]
    for client in (teammate, outsider):
        assert client.get(f"/channels/{channel.pk}/").status_code == 404
        assert client.post(f"/channels/{channel.pk}/delete/").status_code == 404
        assert client.post("/channels/new/webhook/?workspace=vision", HOOK).status_code in {403, 404}
    assert Channel.objects.count() == 1


def test_a_message_that_failed_says_why_and_can_be_sent_again(world: World, owner: Client) -> None:
    channel = notices.channel(world.people.owner)
    failed = notices.failed(channel)
    assert "The receiver answered 500." in text(owner.get("/account/notices/"))
    page = text(owner.get(f"/channels/{channel.pk}/"))
    assert "Failed" in page
    assert "The receiver answered 500." in page

    owner.post(f"/channels/{channel.pk}/deliveries/{failed.pk}/retry/")

    assert Delivery.objects.get().state == DeliveryState.WAITING
    reader = world.client("owner", Scope.READ)
    assert "Send again" not in text(reader.get(f"/channels/{channel.pk}/"))
    assert reader.post(f"/channels/{channel.pk}/test/").status_code == 403


def test_a_channel_is_tested_and_deleted_after_a_question(world: World, owner: Client) -> None:
    channel = notices.channel(world.people.owner)
    owner.post(f"/channels/{channel.pk}/test/")
    assert "A test of this channel" in text(owner.get(f"/channels/{channel.pk}/"))
    assert "Delete the channel hook?" in text(owner.get(f"/channels/{channel.pk}/delete/"))
    assert Channel.objects.exists()

    owner.post(f"/channels/{channel.pk}/delete/")

    assert not Channel.objects.exists()
    assert "No channel yet" in text(owner.get("/account/notices/"))


def test_the_bell_and_quiet_hours_are_set_on_one_page(world: World, owner: Client) -> None:
    page = text(owner.get("/account/notices/"))
    assert "Approval wanted" not in page
    form = {"kinds": ["started", "ended"], "muted_slices": [str(world.slice.pk)], "zone": "Europe/Berlin"}
    refused = text(owner.post("/account/notices/", {**form, "quiet_from": "22:00"}), 422)
    assert "Quiet hours need a begin and an end." in refused

    owner.post("/account/notices/", {**form, "quiet_from": "22:00", "quiet_until": "07:00"})

    stored = NoticeSettings.objects.get()
    assert {NoticeKind.MARK, NoticeKind.NODE} < set(stored.unwanted_kinds)
    assert not {NoticeKind.STARTED, NoticeKind.APPROVAL_WANTED} & set(stored.unwanted_kinds)
    assert (stored.muted_slices, stored.zone, stored.quiet_from is None) == ([str(world.slice.pk)], "Europe/Berlin", False)
    assert 'value="22:00"' in text(owner.get("/account/notices/"))
    assert Event.objects.filter(kind="user.notices_changed", actor=world.people.owner).count() == 1
