"""Bearer tokens: recognized without a look-up, proved without being stored, ended at once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import ApiToken, Scope, User
from accounts.tokens.minting import TokenKind, token_mint, token_parse
from accounts.tokens.services import NewToken, token_authenticate, token_issue, token_revoke
from core.errors import InvalidInput, NotAllowed
from tests.builders import NOW, make_user

HOUR = timedelta(hours=1)


def issue(user: User) -> NewToken:
    return token_issue(user=user, name="t", scopes=[Scope.READ], life=HOUR, now=NOW)


@pytest.mark.parametrize("kind", list(TokenKind))
def test_a_token_of_ours_is_recognized_by_its_form_alone(kind: TokenKind) -> None:
    minted = token_mint(kind)

    parsed = token_parse(minted.plain)

    assert parsed is not None
    assert (parsed.kind, parsed.key_id) == (kind, minted.key_id)


@given(st.integers(min_value=0, max_value=53), st.characters(min_codepoint=33, max_codepoint=126))
def test_one_wrong_character_makes_it_no_token_of_ours(place: int, character: str) -> None:
    plain = "egsu_000000000000_000000000000000000000000000000" + "0uOTTT"
    good = token_mint(TokenKind.USER).plain
    assert token_parse(plain) is None
    if good[place : place + 1] not in {"", character}:
        assert token_parse(good[:place] + character + good[place + 1 :]) is None


@given(st.text(max_size=80))
def test_no_text_breaks_the_parser(text: str) -> None:
    assert token_parse(text) is None


@pytest.mark.django_db
def test_neither_the_token_nor_its_secret_is_stored() -> None:
    issued = issue(make_user())
    secret = issued.plain.split("_")[2]

    row = ApiToken.objects.filter(pk=issued.token.pk).values().get()

    assert not any(secret[:30] in str(value) for value in row.values())


@pytest.mark.django_db
def test_a_token_ends_with_its_life_its_revocation_its_user_and_its_pepper() -> None:
    user = make_user()
    issued = issue(user)
    assert token_authenticate(plain=issued.plain, address="", now=NOW) is not None

    assert token_authenticate(plain=issued.plain, address="", now=NOW + HOUR) is None
    with override_settings(EGS_TOKEN_PEPPERS={"2": "another"}):
        assert token_authenticate(plain=issued.plain, address="", now=NOW) is None
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert token_authenticate(plain=issued.plain, address="", now=NOW) is None
    User.objects.filter(pk=user.pk).update(is_active=True)
    token_revoke(token=issued.token, actor=issued.token.user, now=NOW)
    assert token_authenticate(plain=issued.plain, address="", now=NOW) is None


@pytest.mark.django_db
def test_a_new_pepper_signs_and_the_old_one_still_proves() -> None:
    user = make_user()
    with override_settings(EGS_TOKEN_PEPPERS={"1": "old"}):
        old = issue(user)
    with override_settings(EGS_TOKEN_PEPPERS={"1": "old", "10": "new"}):
        new = issue(user)

        assert (old.token.pepper_id, new.token.pepper_id) == ("1", "10")
        assert token_authenticate(plain=old.plain, address="", now=NOW) is not None
        assert token_authenticate(plain=new.plain, address="", now=NOW) is not None


@pytest.mark.django_db
def test_only_an_administrator_gets_the_scope_admin_and_nobody_a_token_for_ever() -> None:
    with pytest.raises(NotAllowed):
        token_issue(user=make_user(), name="t", scopes=[Scope.ADMIN], life=HOUR, now=NOW)
    with pytest.raises(InvalidInput):
        token_issue(user=make_user(), name="t", scopes=[Scope.READ], life=timedelta(days=366), now=NOW)
