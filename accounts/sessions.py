"""Browser sessions have the rights of the token that opened them, and end with it."""

from __future__ import annotations

from datetime import datetime
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest
from django.middleware.csrf import rotate_token

from accounts.models import ApiToken, Scope
from accounts.services import token_authenticate

TOKEN_KEY = "token"  # noqa: S105  # the name of an entry, not a secret


def session_open(request: HttpRequest, *, plain: str, now: datetime) -> ApiToken | None:
    """Returns None when the token is refused."""
    token = token_authenticate(plain=plain, now=now)
    if token is None or not token.allows(Scope.READ):
        return None
    request.session.flush()  # a new session key, against session fixation
    request.session[TOKEN_KEY] = str(token.pk)
    request.session.set_expiry(token.expires_at)
    rotate_token(request)
    return token


def session_close(request: HttpRequest) -> None:
    request.session.flush()


def session_token(session: SessionBase, *, now: datetime) -> ApiToken | None:
    """Returns None when the token has ended. Its user has at most the token's rights, and must not be saved."""
    token_id: Any = session.get(TOKEN_KEY)
    if token_id is None:
        return None
    token = ApiToken.objects.select_related("user").filter(pk=token_id).first()
    if token is None or not token.is_live(now) or not token.user.is_active:
        return None
    token.user.is_admin = token.user.is_admin and token.allows(Scope.ADMIN)
    return token


def session_load(key: str) -> SessionBase:
    engine: Any = import_module(settings.SESSION_ENGINE)
    session: SessionBase = engine.SessionStore(key)
    return session
