"""A terminal gets a token by a code that a person confirms on a page: once, in time, and only what that person granted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client

from accounts.models import ApiToken, DeviceLogin, Scope
from accounts.people.services import identity_set_groups, user_disable
from core.clock import db_now
from journal.models import Event
from slices.models import Membership, Role
from slices.roles.groups import group_add
from tests import factories
from tests.accounts.test_people import sign_in as sign_in_by_provider
from tests.api.conftest import Answer, Caller, World, assert_problem, faults
from tests.databases import travel
from tests.pages.user_world import client_of, text

GRANTED = {"name": "laptop", "scope": "write", "days": "30"}


@pytest.fixture(autouse=True)
def clock(db: None) -> Iterator[time_machine.Traveller]:
    with travel(db_now(), tick=False) as traveller:
        yield traveller


@pytest.fixture
def asked(anonymous: Caller) -> dict[str, Any]:
    answer = anonymous.post("device-logins/", {"name": "egs on laptop"})
    assert answer.status_code == 201
    found: dict[str, Any] = answer.json()
    return found


def take(asked: dict[str, Any]) -> Answer:
    return Caller().post("device-logins/take/", {"device_code": asked["device_code"]})


def typed(browser: Client, code: str) -> str:
    """Return the address to which the page of the code sends the browser; empty: it stays."""
    return str(browser.post("/connect/", {"code": code}).headers.get("Location", ""))


def confirm(browser: Client, asked: dict[str, Any], **changes: str) -> None:
    assert browser.post(typed(browser, asked["user_code"]), {**GRANTED, **changes}).status_code == 302


def test_a_terminal_gets_a_token_once_a_person_has_confirmed_its_code(world: World, asked: dict[str, Any]) -> None:
    browser = client_of(world.people.owner)
    assert re.fullmatch(r"[B-Z]{4}-[B-Z]{4}", asked["user_code"])
    assert_problem(take(asked), 400, "authorization_pending")

    confirm(browser, asked)
    made = take(asked)

    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    me = Caller(made.json()["token"]).get("me/").json()
    assert (me["name"], me["token"]["name"], me["token"]["scopes"]) == ("owner", "laptop", ["write"])
    assert "laptop" in text(browser.get("/account/"))
    kinds = set(Event.objects.filter(actor=world.people.owner).values_list("kind", flat=True))
    assert {"device.confirmed", "token.issued"} <= kinds
    assert asked["device_code"] not in str(list(DeviceLogin.objects.values()))


def test_a_code_is_taken_in_any_writing_and_by_the_link(world: World, asked: dict[str, Any]) -> None:
    browser = client_of(world.people.owner)
    plain = asked["user_code"].replace("-", " ").lower()

    assert typed(browser, f" {plain} ") == typed(browser, asked["user_code"]) != ""
    assert browser.get(asked["link_url"].partition("testserver")[2]).headers["Location"] == typed(browser, plain)
    assert Client().get("/connect/?code=BCDF-GHJK").headers["Location"] == "/login/?next=%2Fconnect%2F%3Fcode%3DBCDF-GHJK"


def test_a_code_that_was_answered_or_is_over_is_told_with_what_to_do_and_nobody_learns_who_else_answered(
    world: World, asked: dict[str, Any], clock: time_machine.Traveller
) -> None:
    browser, other = client_of(world.people.owner), client_of(world.people.outsider)
    page = typed(browser, asked["user_code"])
    confirm(browser, asked)
    assert "which fetches its token within seconds" in text(browser.get(page), 409)
    take(asked)
    assert "Its token is listed on the page Account" in text(browser.get(page), 409)
    assert "You connected" in text(browser.post(page, GRANTED), 409)
    foreign = text(other.get(page), 409)
    assert "Somebody has answered it already. Start again in the terminal: egs login" in foreign
    assert "laptop" not in foreign

    refused, late = (Caller().post("device-logins/", {"name": "egs on laptop"}).json() for _ in range(2))
    page, late_page = typed(browser, refused["user_code"]), typed(browser, late["user_code"])
    browser.post(page, {"act": "refuse"})
    assert "You refused it" in text(browser.get(page), 409)
    clock.shift(601)
    assert "Nobody answered within 10 min" in text(browser.get(late_page), 409)


def test_the_page_shows_what_asks_and_from_where_before_anything_is_granted(world: World) -> None:
    there = Caller()
    there.client.defaults["REMOTE_ADDR"] = "198.51.100.7"
    asked = there.post("device-logins/", {"name": "egs on gpu-login", "scope": "read"}).json()
    browser = client_of(world.people.owner)

    shown = text(browser.get(typed(browser, asked["user_code"])))

    for told in ("egs on gpu-login", asked["user_code"], "from 198.51.100.7; this browser is at 127.0.0.1", "would act as owner"):
        assert told in shown
    assert "Read and change" not in shown  # more than it asked for is not to be had
    assert take(asked).json()["code"] == "authorization_pending"


def test_a_wrong_code_opens_nothing_and_guessing_is_stopped(world: World, asked: dict[str, Any], settings: Any) -> None:
    settings.EGS_REFUSED_SIGN_INS_PER_MIN = 3
    browser, other = client_of(world.people.outsider), client_of(world.people.owner)

    answers = [browser.post("/connect/", {"code": "BCDF-BCDF"}).status_code for _ in range(5)]

    assert answers == [422, 422, 422, 429, 429]
    assert browser.get(f"/connect/?code={asked['user_code']}").status_code == 429
    assert typed(other, asked["user_code"])


def test_who_asks_for_too_many_codes_has_to_wait(anonymous: Caller, settings: Any) -> None:
    settings.EGS_REFUSED_SIGN_INS_PER_MIN = 2
    anonymous.client.defaults["REMOTE_ADDR"] = "198.51.100.8"

    assert [anonymous.post("device-logins/", {"name": "x"}).status_code for _ in range(3)] == [201, 201, 429]


@pytest.mark.both_databases
def test_a_token_is_given_once_and_a_second_try_ends_it(world: World, asked: dict[str, Any]) -> None:
    confirm(client_of(world.people.owner), asked)
    secret = take(asked).json()["token"]

    assert_problem(take(asked), 400, "invalid_grant")

    assert Caller(secret).get("me/").status_code == 401
    assert_problem(take({"device_code": "guessed"}), 400, "invalid_grant")


def test_a_code_is_over_after_ten_minutes_confirmed_or_not(world: World, asked: dict[str, Any], clock: time_machine.Traveller) -> None:
    browser, late = client_of(world.people.owner), Caller().post("device-logins/", {"name": "late"}).json()
    page = typed(browser, late["user_code"])
    confirm(browser, asked)

    clock.shift(timedelta(minutes=10))

    for each in (asked, late):
        assert_problem(take(each), 400, "expired_token")
        assert typed(browser, each["user_code"]) == ""
    assert browser.post(page, GRANTED).status_code == 409
    clock.shift(timedelta(days=2))
    Caller().post("device-logins/", {"name": "new"})
    assert DeviceLogin.objects.count() == 1


def test_a_refused_terminal_gets_nothing(world: World, asked: dict[str, Any]) -> None:
    browser = client_of(world.people.owner)
    page = typed(browser, asked["user_code"])

    assert browser.post(page, {"act": "refuse"}).status_code == 302

    assert_problem(take(asked), 403, "access_denied")
    assert browser.post(page, GRANTED).status_code == 409
    assert Event.objects.filter(kind="device.refused", actor=world.people.owner).exists()


def test_a_terminal_that_asks_too_often_is_slowed_down(asked: dict[str, Any], clock: time_machine.Traveller) -> None:
    codes = []
    for pause_s in (0, 5, 1, 5, 15):  # the third is too early, and so is the fourth: by then 10 s are wanted
        clock.shift(timedelta(seconds=pause_s))
        codes.append(take(asked).json()["code"])

    pending = "authorization_pending"
    assert codes == [pending, pending, "slow_down", "slow_down", pending]


def test_a_code_that_another_person_answered_is_nobody_else_s(world: World, asked: dict[str, Any]) -> None:
    first, other = client_of(world.people.owner), client_of(world.people.outsider)
    page = typed(other, asked["user_code"])
    confirm(first, asked)

    assert typed(other, asked["user_code"]) == ""
    assert (other.get(page).status_code, other.post(page, GRANTED).status_code) == (409, 409)
    assert Caller(take(asked).json()["token"]).get("me/").json()["name"] == "owner"
    token = ApiToken.objects.get(name="laptop")
    assert_problem(Caller(factories.token(world.people.outsider)).get(f"tokens/{token.pk}/"), 404, "not_found")


def test_a_person_who_is_disabled_meanwhile_gives_no_token_and_later_ends_it(world: World, asked: dict[str, Any]) -> None:
    second = Caller().post("device-logins/", {"name": "second"}).json()
    for each in (asked, second):
        confirm(client_of(world.people.owner), each, name=each["user_code"])
    secret = take(asked).json()["token"]

    user_disable(user=world.people.owner, actor=world.people.admin, now=db_now())

    assert_problem(take(second), 403, "access_denied")
    assert Caller(secret).get("me/").status_code == 401


def test_who_loses_the_group_loses_what_the_terminal_s_token_saw(world: World, asked: dict[str, Any]) -> None:
    identity = sign_in_by_provider("emma", "team")
    group_add(slice_=world.slice, provider="corp", group="team", role=Role.EDITOR, actor=world.people.admin, now=db_now())
    confirm(client_of(identity.user), asked)
    terminal = Caller(take(asked).json()["token"])
    assert terminal.get("slices/vision/").status_code == 200

    identity_set_groups(identity=identity, groups=[], actor=None, now=db_now())

    assert terminal.get("slices/vision/").status_code == 404
    assert not Membership.objects.filter(user=identity.user).exists()


def test_nobody_grants_more_than_he_has(world: World) -> None:
    asked = Caller().post("device-logins/", {"name": "admin", "scope": "admin"}).json()
    browser = client_of(world.people.owner)
    page = typed(browser, asked["user_code"])

    assert browser.post(page, {**GRANTED, "scope": "admin"}).status_code == 422
    assert typed(client_of(world.people.owner, Scope.READ), asked["user_code"]) == ""

    narrow = client_of(world.people.owner)
    ApiToken.objects.filter(name="test").update(slices=[str(world.slice.pk)], networks=["127.0.0.0/8"])
    confirm(narrow, asked)
    made = take(asked).json()
    assert (made["slices"], made["networks"], made["scopes"]) == ([str(world.slice.pk)], ["127.0.0.0/8"], ["write"])


def test_input_of_a_terminal_is_checked(anonymous: Caller) -> None:
    assert faults(anonymous.post("device-logins/", {})) == ["name"]
    for name in ("", "a\nb", "a\u202eb", "x" * 64):
        assert faults(anonymous.post("device-logins/", {"name": name})) == ["name"]
    assert faults(anonymous.post("device-logins/", {"name": "x", "scope": "root"})) == ["scope"]


def test_the_ways_to_sign_in_are_told_to_everybody_and_codes_can_be_switched_off(anonymous: Caller, settings: Any) -> None:
    assert anonymous.get("sign-in/").json() == {"ways": ["device", "token"]}

    settings.EGS_DEVICE_LOGIN = False

    assert anonymous.get("sign-in/").json() == {"ways": ["token"]}
    assert_problem(anonymous.post("device-logins/", {"name": "x"}), 403, "not_allowed")
