"""Logins are sessions of browsers. Django's session holds the login's id and nothing else of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, Final

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.middleware.csrf import rotate_token

from accounts.audit import AccountChange, report
from accounts.models import ApiToken, Identity, Login, Scope, User
from accounts.rates import may_sign_in, sign_in_count, window_left_s
from accounts.tokens.services import token_authenticate
from core.errors import TooManyTries
from core.request_origin import client_address, signed_in_by

LOGIN_KEY: Final = "login"
SEEN_RESOLUTION: Final = timedelta(minutes=1)
BROWSER_MAX_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Proof:
    """It is the proof that a person signs in with: a token, or an identity."""

    token: ApiToken | None = None
    identity: Identity | None = None
    provider_session: str = ""

    @property
    def user(self) -> User:
        return self.token.user if self.token is not None else self.identity.user  # type: ignore[union-attr]  # it has one of both


def session_open_by_token(request: HttpRequest, *, plain: str, now: datetime) -> bool:
    """Returns False when the token is refused. Raises TooManyTries."""
    address = client_address(request)
    if not may_sign_in(address):
        raise TooManyTries("Too many tokens from your address were refused. Try again in a minute.", wait_s=window_left_s())
    token = token_authenticate(plain=plain, address=address, now=now)
    if token is None or not token.allows(Scope.READ) or token.user.is_service:
        sign_in_refused("with a token that was not accepted", address=address, now=now)
        return False
    session_open(request, proof=Proof(token=token), now=now)
    return True


@transaction.atomic
def sign_in_refused(how: str, *, address: str, now: datetime) -> None:
    """Records it once a minute for each address."""
    if sign_in_count(address) <= 1:
        report(AccountChange("login.refused", f"Somebody tried to sign in {how}.", None, now))


def session_open(request: HttpRequest, *, proof: Proof, now: datetime) -> None:
    address, browser = client_address(request), request.headers.get("User-Agent", "")
    login = login_start(proof=proof, address=address, browser=browser, now=now)
    request.session.flush()  # a new session key, against session fixation
    request.session[LOGIN_KEY] = str(login.pk)
    request.session.set_expiry(login.expires_at)
    type(request.session).clear_expired()
    rotate_token(request)


@transaction.atomic
def login_start(*, proof: Proof, address: str, browser: str, now: datetime) -> Login:
    expires_at = now + timedelta(seconds=settings.EGS_SESSION_MAX_S)
    if proof.token is not None:
        expires_at = min(expires_at, proof.token.expires_at)
    login = Login.objects.create(
        user=proof.user,
        token=proof.token,
        identity=proof.identity,
        provider_session=proof.provider_session,
        created_at=now,
        last_seen_at=now,
        expires_at=expires_at,
        address=address,
        browser=browser[:BROWSER_MAX_CHARS],
    )
    signed_in_by(login_id=login.pk, token_key=proof.token.key_id if proof.token is not None else "")
    how = f"with token {proof.token.name}" if proof.token is not None else f"through {proof.identity.provider}"  # type: ignore[union-attr]
    report(AccountChange("login.opened", f"{login.user.name} signed in {how}.", login.user, now))
    return login


def session_close(request: HttpRequest, *, now: datetime) -> Login | None:
    """Returns the login that it ended."""
    login = session_login(request.session, now=now)
    request.session.flush()
    if login is not None:
        logins_end(Login.objects.filter(pk=login.pk), why="signed out", actor=login.user, now=now)
    return login


def session_login(session: SessionBase, *, now: datetime) -> Login | None:
    """Returns None when the login has ended. Its user has at most the login's rights, and must not be saved."""
    login_id: Any = session.get(LOGIN_KEY)
    if login_id is None:
        return None
    login = Login.objects.select_related("user", "token", "identity").filter(pk=login_id).first()
    if login is None or not login.is_live(now, idle_max=timedelta(seconds=settings.EGS_SESSION_IDLE_S)):
        return None
    login.user.narrow_to(login.token)
    return login


def login_seen(login: Login, *, now: datetime) -> None:
    """Call it for what a person does, not for what an open page fetches by itself."""
    if now - login.last_seen_at > SEEN_RESOLUTION:
        Login.objects.filter(pk=login.pk).update(last_seen_at=now)


def live_logins(*, now: datetime) -> QuerySet[Login]:
    idle_since = now - timedelta(seconds=settings.EGS_SESSION_IDLE_S)
    return Login.objects.filter(ended_at=None, expires_at__gt=now, last_seen_at__gt=idle_since, user__is_active=True)


@transaction.atomic
def logins_end(logins: QuerySet[Login], *, why: str, actor: User | None, now: datetime) -> int:
    """Ends those that are open, and their sockets. `why` follows the name of the person: "signed out". Returns how many it ended."""
    ended = list(logins.filter(ended_at=None).select_related("user"))
    Login.objects.filter(pk__in=[login.pk for login in ended]).update(ended_at=now)
    for user in {login.user_id: login.user for login in ended}.values():
        report(AccountChange("login.ended", f"{user.name} {why}.", actor, now, user=user))
    return len(ended)


def session_load(key: str) -> SessionBase:
    engine: Any = import_module(settings.SESSION_ENGINE)
    session: SessionBase = engine.SessionStore(key)
    return session
