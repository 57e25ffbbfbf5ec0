"""A terminal asks for a code, a person answers on a page, and the terminal takes its token once.

The token is made when the terminal takes it, so its secret is stored nowhere, and by the rights that the person has then.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import transaction
from django.db.models import F

from accounts.audit import AccountChange, report
from accounts.models import DeviceLogin, DeviceLoginState, Scope, User
from accounts.rates import may_sign_in, sign_in_count, window_left_s
from accounts.tokens.services import NewToken, TokenTerms, token_create, token_revoke
from core.errors import Conflict, EgsError, InvalidInput, NotAllowed, TooManyTries

LIFE: Final = timedelta(minutes=10)
INTERVAL_S: Final = 5
SLOWER_BY_S: Final = 5
INTERVAL_MAX_S: Final = 60
EARLY_TOLERATED: Final = timedelta(seconds=1)  # networks are not even
KEPT: Final = timedelta(days=1)  # after its end a terminal is still told what became of it
LETTERS: Final = "BCDFGHJKLMNPQRSTVWXZ"  # without vowels, so that no code is a word
CODE_LENGTH: Final = 8
WRONG_CODE: Final = "This code is wrong, over or already answered. Type the one that the terminal shows now."


class AuthorizationPending(EgsError):
    code = "authorization_pending"
    title = "Nobody has answered yet"


class SlowDown(EgsError):
    code = "slow_down"
    title = "Asked again too soon"


class AccessDenied(EgsError):
    status = 403
    code = "access_denied"
    title = "The sign-in was refused"


class ExpiredCode(EgsError):
    code = "expired_token"
    title = "The code is over"


class InvalidGrant(EgsError):
    code = "invalid_grant"
    title = "No such sign-in"


@dataclass(frozen=True, slots=True)
class NewDeviceLogin:
    row: DeviceLogin
    device_code: str


def device_login_start(*, name: str, scope: Scope, address: str, now: datetime) -> NewDeviceLogin:
    """Raises NotAllowed where this way is switched off, or TooManyTries."""
    if not settings.EGS_DEVICE_LOGIN:
        raise NotAllowed("This EGS does not sign in terminals by a code. Make a token on the page Account, and use that.")
    if not may_sign_in(f"device:{address}"):
        raise TooManyTries("Too many codes were asked for from your address. Try again in a minute.", wait_s=window_left_s())
    sign_in_count(f"device:{address}")
    DeviceLogin.objects.filter(expires_at__lt=now - KEPT).delete()
    device_code = f"egsd_{secrets.token_urlsafe(32)}"
    row = DeviceLogin.objects.create(
        device_digest=_digest(device_code),
        user_code="".join(secrets.choice(LETTERS) for _ in range(CODE_LENGTH)),
        name=name,
        address=address,
        scopes=[scope],
        created_at=now,
        expires_at=now + LIFE,
        interval_s=INTERVAL_S,
    )
    return NewDeviceLogin(row, device_code)


def device_login_find(*, typed: str, user: User, now: datetime) -> DeviceLogin:
    """Find the login by its code, whatever its case, blanks and hyphens. Raises InvalidInput, or TooManyTries."""
    who = f"code:{user.pk}"
    if not may_sign_in(who):
        raise TooManyTries("You have typed too many wrong codes. Try again in a minute.", wait_s=window_left_s())
    code = "".join(letter for letter in typed.upper() if letter in LETTERS)
    row = DeviceLogin.objects.filter(user_code=code, state=DeviceLoginState.PENDING, expires_at__gt=now).first()
    if row is None:
        sign_in_count(who)
        raise InvalidInput({"code": [WRONG_CODE]})
    return row


@transaction.atomic
def device_login_confirm(*, device_login: DeviceLogin, terms: TokenTerms, actor: User, now: datetime) -> None:
    """Raises Conflict when it is over or somebody has answered."""
    _answer(
        device_login,
        now,
        state=DeviceLoginState.CONFIRMED,
        user=actor,
        name=terms.name,
        scopes=list(terms.scopes),
        token_life_s=int(terms.life.total_seconds()),
        networks=list(terms.networks),
        slices=list(terms.slices),
    )
    text = f"{actor.name} let a terminal at {device_login.address or 'an unknown address'} sign in as him: {terms.name}."
    report(AccountChange("device.confirmed", text, actor, now))


@transaction.atomic
def device_login_refuse(*, device_login: DeviceLogin, actor: User, now: datetime) -> None:
    """Raises Conflict when it is over or somebody has answered."""
    _answer(device_login, now, state=DeviceLoginState.REFUSED, user=actor)
    text = f"{actor.name} refused a terminal at {device_login.address or 'an unknown address'}: {device_login.name}."
    report(AccountChange("device.refused", text, actor, now))


def device_login_take(*, device_code: str, address: str, now: datetime) -> NewToken:
    """Returns the token, once. Raises an error of this module, NotAllowed, or TooManyTries."""
    row = DeviceLogin.objects.select_related("user", "token__user").filter(device_digest=_digest(device_code)).first()
    if row is None:
        if not may_sign_in(address):
            raise TooManyTries("Too many sign-ins from your address were refused. Try again in a minute.", wait_s=window_left_s())
        sign_in_count(address)
        raise InvalidGrant("There is no such sign-in. Start again: egs login")
    if row.state == DeviceLoginState.USED:
        _refuse_replay(row, now)
    if row.state == DeviceLoginState.REFUSED or (row.user is not None and not row.user.is_active):
        raise AccessDenied("The sign-in was refused on the page.")
    if now >= row.expires_at:
        raise ExpiredCode("Nobody confirmed the code in time. Start again: egs login")
    if row.state == DeviceLoginState.PENDING:
        _refuse_pending(row, now)
    return _take(row, now)


@transaction.atomic
def _take(row: DeviceLogin, now: datetime) -> NewToken:
    user = row.user
    assert user is not None  # a constraint  # noqa: S101
    terms = TokenTerms(
        name=row.name,
        scopes=[Scope(scope) for scope in row.scopes],
        life=timedelta(seconds=row.token_life_s),
        networks=row.networks,
        slices=row.slices,
    )
    made = token_create(user=user, terms=terms, actor=user, now=now)
    taken = DeviceLogin.objects.filter(pk=row.pk, state=DeviceLoginState.CONFIRMED)
    if not taken.update(state=DeviceLoginState.USED, token=made.token):
        raise InvalidGrant("This sign-in was used meanwhile. Start again: egs login")
    return made


def _refuse_pending(row: DeviceLogin, now: datetime) -> None:
    is_early = row.polled_at is not None and now - row.polled_at < timedelta(seconds=row.interval_s) - EARLY_TOLERATED
    slower = F("interval_s") + SLOWER_BY_S if is_early and row.interval_s < INTERVAL_MAX_S else F("interval_s")
    DeviceLogin.objects.filter(pk=row.pk).update(polled_at=now, interval_s=slower)
    if is_early:
        raise SlowDown(f"Wait {SLOWER_BY_S} s longer than before between two tries, from now on.")
    raise AuthorizationPending("The code has to be confirmed on the page first.")


def _refuse_replay(row: DeviceLogin, now: datetime) -> None:
    """A second use of the secret may be a thief's, or the first answer was lost: the token is revoked in either case."""
    if row.token is not None:
        token_revoke(token=row.token, actor=row.token.user, now=now)
    raise InvalidGrant("This sign-in was used already, so its token is revoked now. Start again: egs login")


def _answer(device_login: DeviceLogin, now: datetime, **values: object) -> None:
    open_ = DeviceLogin.objects.filter(pk=device_login.pk, state=DeviceLoginState.PENDING, expires_at__gt=now)
    if not open_.update(**values):
        raise Conflict("This code is over, or somebody has answered meanwhile. Start again: egs login")


def _digest(device_code: str) -> str:
    return hashlib.sha256(device_code.encode()).hexdigest()
