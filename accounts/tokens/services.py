from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction

from accounts.audit import AccountChange, report
from accounts.models import ApiToken, Scope, User
from accounts.policy import is_overseer
from accounts.tokens.minting import TokenKind, token_matches, token_mint, token_parse
from core.errors import Conflict, InvalidInput, NotAllowed
from core.written_sql import TextParam, WrittenQuery

LAST_USED_RESOLUTION = timedelta(minutes=1)
_BY_KEY: Final = WrittenQuery(ApiToken.objects.select_related("user").filter(key_id=TextParam("key")).order_by())


@dataclass(frozen=True, slots=True)
class NewToken:
    token: ApiToken
    plain: str


BEYOND = "Your token may do less than this one. Use a token with the same scopes, networks and workspaces, or sign in without a token."


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTerms:
    """Bounds the token by `networks` and `slices` (ids); empty: no bound."""

    name: str
    scopes: Sequence[Scope]
    life: timedelta
    networks: Sequence[str] = ()
    slices: Sequence[str] = ()


def token_issue(*, user: User, name: str, scopes: Sequence[Scope], life: timedelta, now: datetime) -> NewToken:
    return token_create(user=user, terms=TokenTerms(name=name, scopes=scopes, life=life), actor=user, now=now)


@transaction.atomic
def token_create(*, user: User, terms: TokenTerms, actor: User, now: datetime) -> NewToken:
    """Raises InvalidInput, or NotAllowed for a token that may do more than the user, or the actor, may now."""
    _check_terms(user, terms, actor)
    minted = token_mint(TokenKind.USER)
    token = ApiToken.objects.create(
        user=user,
        name=terms.name,
        key_id=minted.key_id,
        digest=minted.digest,
        pepper_id=minted.pepper_id,
        scopes=sorted(set(terms.scopes)),
        networks=list(terms.networks),
        slices=list(terms.slices),
        created_at=now,
        expires_at=now + terms.life,
    )
    text = f"A token of {user.name} was issued: {token.name} ({minted.key_id}), for {', '.join(token.scopes)}."
    report(AccountChange("token.issued", text, actor, now))
    return NewToken(token, minted.plain)


@transaction.atomic
def token_rotate(*, token: ApiToken, overlap: timedelta, actor: User, now: datetime) -> NewToken:
    """Makes a new token with the same terms and a whole life. The old one ends after `overlap`.

    Raises Conflict if it has ended, NotAllowed if it may do more than the token of the actor.
    """
    if not token.is_live(now):
        raise Conflict("This token has ended. Make a new one.")
    terms = TokenTerms(
        name=token.name,
        scopes=[Scope(scope) for scope in token.scopes],
        life=min(token.expires_at - token.created_at, settings.EGS_TOKEN_LIFE_MAX),
        networks=token.networks,
        slices=token.slices,
    )
    made = token_create(user=token.user, terms=terms, actor=actor, now=now)
    ApiToken.objects.filter(pk=token.pk).update(expires_at=min(token.expires_at, now + overlap))
    return made


def _check_terms(user: User, terms: TokenTerms, actor: User) -> None:
    if not terms.scopes or not set(terms.scopes) <= set(Scope):
        raise InvalidInput({"scopes": [f"Choose one or more of {', '.join(Scope.values)}."]})
    if Scope.ADMIN in terms.scopes and not is_overseer(user):
        raise NotAllowed("Only the token of an administrator or an auditor may have the scope admin.")
    if Scope.ADMIN in terms.scopes and terms.slices:
        raise InvalidInput({"slices": ["A token with the scope admin is not bound to workspaces."]})
    used = actor.credential
    if used is not None and not used.covers(scopes=terms.scopes, slices=terms.slices, networks=terms.networks):
        raise NotAllowed(BEYOND)
    if not timedelta(0) < terms.life <= settings.EGS_TOKEN_LIFE_MAX:
        raise InvalidInput({"expires_in_s": [f"Between 1 and {int(settings.EGS_TOKEN_LIFE_MAX.total_seconds())} seconds."]})


@transaction.atomic
def token_revoke(*, token: ApiToken, actor: User, now: datetime) -> None:
    """Raises NotAllowed if it may do more than the token of the actor."""
    used = actor.credential
    if used is not None and not used.covers(scopes=token.scopes, slices=token.slices, networks=token.networks):
        raise NotAllowed(BEYOND)
    if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now):
        report(AccountChange("token.revoked", f"A token of {token.user.name} was revoked: {token.name} ({token.key_id}).", actor, now))


def token_authenticate(*, plain: str, address: str, now: datetime) -> ApiToken | None:
    """Returns the live token of an active user, used from a network that it allows, else None."""
    parsed = token_parse(plain)
    if parsed is None or parsed.kind != TokenKind.USER:
        return None
    token = next(iter(_BY_KEY(key=parsed.key_id)), None)
    if token is None or not token_matches(parsed.secret, digest=token.digest, pepper_id=token.pepper_id):
        return None
    if not token.is_live(now) or not token.user.is_active or not token.takes(address):
        return None
    token.checked_at = now
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_RESOLUTION:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now, last_address=address)
    return token
