"""Signing in with an access token, and out: what opens the door, what does not, and what is told to whom stands outside."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from accounts.models import ApiToken, Scope, User
from accounts.tokens.services import token_revoke
from core.clock import db_now
from tests import factories
from tests.databases import travel

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return factories.user("ada")


def sign_in(client: Client, plain: str, **more: str) -> Any:
    return client.post("/login/", {"token": plain, **more})


def test_a_token_opens_a_session_and_leads_back(client: Client, ada: User) -> None:
    response = sign_in(client, factories.token(ada), next="/workspaces/vision/?state=ended")

    assert (response.status_code, response["Location"]) == (302, "/workspaces/vision/?state=ended")
    assert client.get("/").status_code == 200


def test_a_token_that_was_copied_with_spaces_around_it_is_taken(client: Client, ada: User) -> None:
    assert sign_in(client, f"  {factories.token(ada)}\n").status_code == 302


@pytest.mark.parametrize("plain", ["", "x", "egsu_abc", "x" * 100_000, "\x00", "egsu_000000000000_" + "0" * 36, "é" * 50])
def test_what_is_no_token_is_not_accepted_and_nothing_more_is_said(plain: str, client: Client, ada: User) -> None:
    response = sign_in(client, plain)

    assert response.status_code == 400
    assert b"not accepted" in response.content
    assert not re.search(rb"\bada\b", response.content)  # a token against forgery may hold these letters
    assert client.get("/").status_code == 302


def test_a_revoked_an_expired_and_an_unknown_token_look_alike(client: Client, ada: User) -> None:
    revoked, expired = factories.token(ada), factories.token(ada, life=timedelta(seconds=1))
    token_revoke(token=factories.row_of(revoked), actor=factories.row_of(revoked).user, now=db_now())
    ApiToken.objects.filter(pk=factories.row_of(expired).pk).update(
        created_at=db_now() - timedelta(hours=2), expires_at=db_now() - timedelta(hours=1)
    )
    unknown = factories.token(ada)
    ApiToken.objects.filter(pk=factories.row_of(unknown).pk).delete()

    answers = [sign_in(client, plain) for plain in (revoked, expired, unknown)]

    assert {response.status_code for response in answers} == {400}
    assert len({response.content.count(b"not accepted") for response in answers}) == 1


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", "\\\\evil.example", "evil", "/\\evil.example"]
)
def test_nobody_is_led_to_another_site(target: str, client: Client, ada: User) -> None:
    assert sign_in(client, factories.token(ada), next=target)["Location"] == "/"


def test_a_session_that_was_planted_before_is_worth_nothing_after(client: Client, ada: User) -> None:
    client.get("/login/")
    session = client.session
    session["planted"] = "yes"
    session.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key or ""

    sign_in(client, factories.token(ada))

    assert client.cookies[settings.SESSION_COOKIE_NAME].value != session.session_key
    assert "planted" not in client.session


def test_whoever_is_signed_in_is_not_asked_again(client: Client, ada: User) -> None:
    sign_in(client, factories.token(ada))

    assert client.get("/login/?next=/workspaces/x/")["Location"] == "/workspaces/x/"


def test_a_stranger_is_sent_to_the_door_and_comes_back_where_he_was_going(client: Client) -> None:
    response = client.get("/workspaces/vision/?state=ended")

    assert response["Location"] == "/login/?next=%2Fworkspaces%2Fvision%2F%3Fstate%3Dended"


def test_a_fragment_without_a_login_sends_the_whole_page_to_the_door(client: Client) -> None:
    response = client.get("/", headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/workspaces/vision/"})

    assert (response.status_code, response["HX-Redirect"]) == (401, "/login/?next=%2Fworkspaces%2Fvision%2F")


def test_the_session_ends_with_its_token(client: Client, ada: User) -> None:
    plain = factories.token(ada)
    sign_in(client, plain)

    token_revoke(token=factories.row_of(plain), actor=factories.row_of(plain).user, now=db_now())

    assert client.get("/").status_code == 302


def test_a_token_that_expires_takes_its_session_along(client: Client, ada: User) -> None:
    sign_in(client, factories.token(ada, life=timedelta(minutes=5)))
    with travel(db_now() + timedelta(minutes=6)):
        assert client.get("/").status_code == 302


def test_a_user_who_is_deactivated_is_out(client: Client, ada: User) -> None:
    sign_in(client, factories.token(ada))

    User.objects.filter(pk=ada.pk).update(is_active=False)

    assert client.get("/").status_code == 302


def test_signing_out_ends_the_session(client: Client, ada: User) -> None:
    sign_in(client, factories.token(ada))

    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/").status_code == 302


def test_a_link_cannot_sign_anybody_out(client: Client, ada: User) -> None:
    sign_in(client, factories.token(ada))

    assert client.get("/logout/").status_code == 405
    assert client.get("/").status_code == 200


def test_an_administrator_by_a_token_without_that_scope_is_a_member(client: Client) -> None:
    root = factories.user("root", is_admin=True)
    sign_in(client, factories.token(root, Scope.READ, Scope.WRITE))

    assert client.get("/admin/queue/").status_code == 404


@pytest.mark.parametrize("persona", ["owner", "teammate", "outsider"])
def test_the_administrators_pages_do_not_exist_for_members(persona: str, client: Client) -> None:
    sign_in(client, factories.token(getattr(factories.make_people(), persona)))

    for path in ("", "queue/", "inventory/", "clusters/", "schedule/"):
        assert client.get(f"/admin/{path}").status_code == 404


def test_a_form_from_another_site_is_not_accepted(ada: User) -> None:
    strict = Client(enforce_csrf_checks=True)

    assert sign_in(strict, factories.token(ada)).status_code == 403


def test_every_page_forbids_what_is_not_from_here(client: Client) -> None:
    policy = client.get("/login/")["Content-Security-Policy"]

    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_only_the_documentation_of_the_api_may_write_styles_into_its_page(client: Client) -> None:
    policy = client.get("/api/docs/")["Content-Security-Policy"]

    assert "style-src 'self' 'unsafe-inline'" in policy
    assert "script-src" not in policy
