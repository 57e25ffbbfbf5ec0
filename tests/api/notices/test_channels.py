"""/api/v1/channels/ shows a person his own channels and those of workspaces that he owns. It takes secrets and never shows them."""

from __future__ import annotations

from typing import Any

import pytest

from core.clock import db_now
from journal.models import Channel, Delivery, DeliveryState, Event
from journal.notices.channels.services import CHANNELS_MAX
from slices.models import ProjectAdmin
from tests import factories
from tests.api.conftest import Caller, World, assert_problem, faults
from tests.journal.notices import notices
from tests.pages.user_world import client_of

pytestmark = pytest.mark.django_db

HOOK = {"name": "hook", "kind": "webhook", "target": "https://hook.example/egs"}
SLACK = {"name": "slack", "kind": "slack_webhook", "secret": "https://hooks.slack.com/services/T0/B0/hush"}


def test_the_key_of_signatures_is_shown_once_and_no_secret_ever_again(world: World, owner: Caller) -> None:
    made = owner.post("channels/", HOOK, key="one")
    again = owner.post("channels/", HOOK, key="one")
    slack = owner.post("channels/", SLACK).json()

    secret = made.json()["signing_secret"]
    assert (made.status_code, secret.startswith("egsw_"), again.json()["signing_secret"]) == (201, True, None)
    assert again.json()["id"] == made.json()["id"]
    assert (slack["target"], slack["signing_secret"]) == ("hooks.slack.com", None)
    pages = [owner.get(path).content.decode() for path in ("channels/", f"channels/{slack['id']}/", f"channels/{made.json()['id']}/")]
    pages.append(owner.patch(f"channels/{slack['id']}/", {"secret": SLACK["secret"] + "2"}).content.decode())
    stored = [*Channel.objects.values_list("sealed", flat=True), *Event.objects.values_list("message", flat=True)]
    assert not any(word in text for text in [*pages, *map(str, stored)] for word in (secret, "hush"))


def test_a_webhooks_key_is_replaced_and_the_new_one_shown_once(world: World, owner: Caller) -> None:
    made = owner.post("channels/", HOOK).json()
    slack = owner.post("channels/", SLACK).json()

    replaced = owner.post(f"channels/{made['id']}/replace-key/", {}, key="one")
    again = owner.post(f"channels/{made['id']}/replace-key/", {}, key="one")

    assert (replaced.status_code, replaced.json()["signing_secret"].startswith("egsw_")) == (201, True)
    assert replaced.json()["signing_secret"] != made["signing_secret"]
    assert (again.status_code, again.json()["signing_secret"]) == (201, None)
    assert_problem(owner.post(f"channels/{slack['id']}/replace-key/", {}), 409, "conflict")
    assert Event.objects.filter(kind="channel.key_replaced").count() == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**HOOK, "target": "https://127.0.0.1/"}, "target"),
        ({**HOOK, "target": "https://[::ffff:169.254.169.254]/latest/meta-data"}, "target"),
        ({**HOOK, "target": "http://hook.example/\r\nX: y"}, "target"),
        ({**HOOK, "secret": "mine"}, "secret"),
        ({"name": "x", "kind": "webhook"}, "target"),
        ({**SLACK, "secret": "https://evil.example/services/T0"}, "secret"),
        ({**SLACK, "target": "#gpus"}, "target"),
        ({"name": "x", "kind": "slack_bot", "target": "#gpus", "secret": "not-a-token"}, "secret"),
        ({"name": "x", "kind": "mail", "target": "a@example.com\nBcc: b@example.com"}, "target"),
        ({"name": "x", "kind": "mail", "target": "nobody"}, "target"),
        ({"name": "x", "kind": "mail", "target": "ada@ex\u0430mple.org"}, "target"),
        ({**HOOK, "notice_kinds": ["no_such_kind"]}, "notice_kinds"),
        ({**HOOK, "digest": "weekly"}, "digest"),
        ({**HOOK, "kind": "pager"}, "kind"),
        ({**HOOK, "name": "two\nlines"}, "name"),
    ],
)
def test_what_could_reach_inside_or_forge_a_header_is_refused(body: dict[str, Any], field: str, owner: Caller, settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example"

    assert faults(owner.post("channels/", body)) == [field]
    assert not Channel.objects.exists()


def test_mail_needs_a_mail_server(owner: Caller, settings: Any) -> None:
    body = {"name": "mail", "kind": "mail", "target": "owner@example.com"}
    settings.EMAIL_HOST = ""
    assert "sends no mail" in assert_problem(owner.post("channels/", body), 400, "invalid_input")["detail"]

    settings.EMAIL_HOST = "mail.example"
    assert owner.post("channels/", body).status_code == 201


def test_a_channel_shows_no_texts_of_a_workspace_that_its_owner_has_left(world: World, teammate: Caller) -> None:
    channel = notices.channel(world.people.teammate)
    for slice_id, text in ((world.slice.pk, "Of vision."), (None, "Of oneself.")):
        notices.failed(channel).events.add(notices.told(world.people.teammate, text, slice_id=slice_id).event)
    channel.deliveries.update(is_test=False)

    def texts() -> set[str]:
        return {text for row in teammate.get(f"channels/{channel.pk}/deliveries/").json()["results"] for text in row["texts"]}

    assert texts() == {"Of vision.", "Of oneself."}
    world.slice.memberships.filter(user=world.people.teammate).delete()
    assert texts() == {"Of oneself."}
    retried = [teammate.post(f"channels/{channel.pk}/deliveries/{row.pk}/retry/").json()["texts"] for row in channel.deliveries.all()]
    assert "Of vision." not in str(retried)
    page = client_of(world.people.teammate).get(f"/channels/{channel.pk}/").content
    assert (b"Of oneself." in page, b"Of vision." in page) == (True, False)


def test_a_project_administrator_manages_the_channels_of_his_workspaces(world: World) -> None:
    runner = factories.user("runner")
    ProjectAdmin.objects.create(project=world.slice.project, user=runner, created_at=db_now())
    caller = Caller(factories.token(runner))

    made = caller.post("channels/", {**HOOK, "slice": "vision"}).json()["id"]

    assert [row["id"] for row in caller.get("channels/").json()["results"]] == [made]
    assert caller.patch(f"channels/{made}/", {"is_on": False}).status_code == 200


def test_nobody_sees_the_channel_of_another_person_and_only_its_owners_that_of_a_workspace(
    world: World, owner: Caller, teammate: Caller, outsider: Caller, admin: Caller
) -> None:
    own = owner.post("channels/", HOOK).json()["id"]
    shared = owner.post("channels/", {**HOOK, "slice": "vision"}).json()
    assert shared["slice"] == "vision"

    for caller, seen in ((owner, {own, shared["id"]}), (admin, {shared["id"]}), (teammate, set()), (outsider, set())):
        assert {row["id"] for row in caller.get("channels/").json()["results"]} == seen
        for pk in {own, shared["id"]} - seen:
            paths = (f"channels/{pk}/", f"channels/{pk}/deliveries/")
            assert [caller.get(path).status_code for path in paths] == [404, 404]
            assert caller.delete(f"channels/{pk}/").status_code == 404
    assert_problem(teammate.post("channels/", {**HOOK, "name": "x", "slice": "vision"}), 403, "not_allowed")
    assert_problem(outsider.post("channels/", {**HOOK, "name": "x", "slice": "vision"}), 404, "not_found")


def test_a_channel_can_be_changed_tested_and_deleted(world: World, owner: Caller) -> None:
    pk = owner.post("channels/", HOOK).json()["id"]
    sealed = Channel.objects.get().sealed
    changed = owner.patch(
        f"channels/{pk}/", {"name": "new", "notice_kinds": ["ended", "started"], "digest": "daily", "is_on": False}
    ).json()
    assert (changed["name"], changed["notice_kinds"], changed["digest"], changed["is_on"]) == ("new", ["started", "ended"], "daily", False)
    assert faults(owner.patch(f"channels/{pk}/", {"target": "https://10.0.0.1/"})) == ["target"]
    assert Channel.objects.get().sealed == sealed

    test = owner.post(f"channels/{pk}/test/")
    assert (test.status_code, test.json()["state"], test.json()["is_test"]) == (201, "waiting", True)
    assert_problem(owner.post(f"channels/{pk}/test/"), 409, "conflict")
    assert owner.delete(f"channels/{pk}/").status_code == 204
    assert not Delivery.objects.exists()


def test_a_delivery_that_failed_or_was_sent_can_be_sent_again_with_the_same_id(world: World, owner: Caller) -> None:
    channel = notices.channel(world.people.owner)
    failed = notices.failed(channel)
    assert owner.get(f"channels/{channel.pk}/deliveries/").json()["results"][0]["error"] == "The receiver answered 500."

    again = owner.post(f"channels/{channel.pk}/deliveries/{failed.pk}/retry/").json()

    assert (again["id"], again["state"], again["attempt_count"], again["error"]) == (str(failed.pk), "waiting", 0, "")
    assert_problem(owner.post(f"channels/{channel.pk}/deliveries/{failed.pk}/retry/"), 409, "wrong_state")
    Delivery.objects.update(state=DeliveryState.SENT)
    assert owner.post(f"channels/{channel.pk}/deliveries/{failed.pk}/retry/").status_code == 200


def test_there_are_only_so_many_channels_and_each_name_is_taken_once(world: World, owner: Caller) -> None:
    for n in range(CHANNELS_MAX - 1):
        notices.channel(world.people.owner, name=f"hook-{n}")
    assert_problem(owner.post("channels/", {**HOOK, "name": "hook-1"}), 409, "conflict")
    assert owner.post("channels/", HOOK).status_code == 201
    assert_problem(owner.post("channels/", {**HOOK, "name": "one-more"}), 409, "conflict")
