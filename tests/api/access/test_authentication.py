from __future__ import annotations

from datetime import timedelta

import pytest

from accounts.models import Scope, User
from accounts.tokens.minting import TokenKind, token_mint
from accounts.tokens.services import token_revoke
from core.clock import db_now
from gpr.models import Gpr
from tests import factories
from tests.api.conftest import Caller, World, assert_problem
from tests.factories import People


def test_without_a_token_nothing_is_told_and_the_way_to_sign_in_is(anonymous: Caller) -> None:
    response = anonymous.get("gprs/")

    assert_problem(response, 401, "not_authenticated")
    assert response["WWW-Authenticate"] == "Bearer"


def test_a_host_that_a_caller_claims_is_refused_and_stands_in_no_link(world: World, owner: Caller) -> None:
    for name in ("slice-b", "slice-c"):
        factories.make_slice(world.cluster, name=name, owner=world.people.owner)
    for path in ("/login/", "/api/v1/slices/", "/api/schema/"):
        assert owner.client.get(path, headers={"Host": "evil.example"}).status_code == 400

    page = owner.client.get("/api/v1/slices/?page_size=1", headers={"X-Forwarded-Host": "evil.example"}).json()
    assert page["next"].startswith("http://testserver/")


def expired(people: People) -> str:
    secret = factories.token(people.owner)
    row = factories.row_of(secret)
    row.created_at, row.expires_at = db_now() - timedelta(hours=2), db_now() - timedelta(seconds=1)
    row.save()
    return secret


def revoked(people: People) -> str:
    secret = factories.token(people.owner)
    token_revoke(token=factories.row_of(secret), actor=factories.row_of(secret).user, now=db_now())
    return secret


def of_a_suspended_user(people: People) -> str:
    secret = factories.token(people.owner)
    User.objects.filter(pk=people.owner.pk).update(is_active=False)
    return secret


def of_an_agent(people: People) -> str:
    return token_mint(TokenKind.AGENT).plain


def unknown(people: People) -> str:
    return token_mint(TokenKind.USER).plain


def with_another_secret(people: People) -> str:
    known, other = factories.token(people.owner), token_mint(TokenKind.USER).plain
    return "_".join([*known.split("_")[:2], other.split("_")[2]])


BAD = [expired, revoked, of_a_suspended_user, of_an_agent, unknown, with_another_secret]


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_every_bad_token_is_refused_with_the_same_words(make: object, people: People) -> None:
    secret = make(people)  # type: ignore[operator]

    body = assert_problem(Caller(secret).get("me/"), 401, "authentication_failed")

    assert body == assert_problem(Caller("nonsense").get("me/"), 401, "authentication_failed")


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer a b", "bearer x", "Bearer \u00e9", "Bearer egsu_", "Bearer " + "x" * 5000])
def test_a_malformed_header_is_refused(header: str, anonymous: Caller) -> None:
    anonymous.client.credentials(HTTP_AUTHORIZATION=header)

    assert_problem(anonymous.get("me/"), 401, "authentication_failed")


@pytest.mark.parametrize("header", ["", "Basic b3duZXI6eA==", "Token abc"])
def test_another_scheme_counts_as_no_token(header: str, anonymous: Caller) -> None:
    anonymous.client.credentials(HTTP_AUTHORIZATION=header)

    assert_problem(anonymous.get("me/"), 401, "not_authenticated")


def test_a_token_of_scope_read_reads_and_estimates_but_changes_nothing(reader: Caller, world: World, ask: dict[str, object]) -> None:
    assert reader.get("gprs/").status_code == 200
    assert reader.post("gprs/estimate/", ask).status_code == 200
    assert_problem(reader.post("gprs/", ask), 403, "not_allowed")
    assert not Gpr.objects.exists()


def test_an_administrator_without_the_scope_admin_is_a_member_like_others(half_admin: Caller, world: World) -> None:
    assert half_admin.get("slices/").json()["results"] == []
    assert_problem(half_admin.get("slices/vision/"), 404, "not_found")
    assert_problem(half_admin.post("projects/", {"name": "p"}), 403, "not_allowed")
    assert half_admin.get("me/").json()["is_admin"] is False


def test_the_scope_admin_alone_reads_and_writes_too(people: People, world: World) -> None:
    caller = Caller(factories.token(people.admin, Scope.ADMIN))

    assert caller.get("slices/vision/").status_code == 200
    assert caller.post("projects/", {"name": "p"}).status_code == 201


def test_a_revoked_token_ends_at_once(people: People) -> None:
    caller = Caller(factories.token(people.owner))
    token_id = caller.get("me/").json()["token"]["id"]

    assert caller.delete(f"tokens/{token_id}/").status_code == 204

    assert_problem(caller.get("me/"), 401, "authentication_failed")
