"""Limits how often a token calls the API, how often a workspace asks for plans, and how often an address may try wrong tokens.

Counts windows of a minute in Django's cache, which all web processes share in production. While Redis is away nobody is refused.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final

import redis
import structlog
from django.conf import settings
from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from accounts.models import ApiToken
from core.errors import TooManyTries

log = structlog.get_logger(__name__)

WINDOW_S: Final = 60


class TokenRate(BaseThrottle):
    def allow_request(self, request: Request, view: Any) -> bool:
        most: int = settings.EGS_API_RATE_PER_MIN
        if most == 0 or not isinstance(request.auth, ApiToken):
            return True
        return _count(f"api:{request.auth.key_id}") <= most

    def wait(self) -> float:
        return window_left_s()


def ask_count(workspace: str, *, name: str) -> None:
    """Counts an estimate, a new or a changed request, whoever makes it: each takes a plan. Raises TooManyTries."""
    most: int = settings.EGS_WORKSPACE_RATE_PER_MIN
    if most and _count(f"asks:{workspace}") > most:
        text = f"Workspace {name} has asked more than {most} times within this minute. Try again in the next one."
        raise TooManyTries(text, wait_s=window_left_s())


def window_left_s() -> float:
    return WINDOW_S - time.time() % WINDOW_S


def sign_in_count(who: str) -> int:
    """Counts a refused one of this address or person; returns how many there are in this window."""
    return _count(f"sign-in:{who}")


def may_sign_in(who: str) -> bool:
    most: int = settings.EGS_REFUSED_SIGN_INS_PER_MIN
    return most == 0 or _counted(f"sign-in:{who}") < most


def _count(what: str) -> int:
    key = _key(what)
    try:
        with suppress(ValueError):  # the first in this window
            return int(cache.incr(key))
        cache.add(key, 0, timeout=2 * WINDOW_S)
        return int(cache.incr(key))
    except (redis.RedisError, ValueError) as error:
        log.warning("rate_not_counted", error=type(error).__name__)
        return 0


def _counted(what: str) -> int:
    try:
        return int(cache.get(_key(what), 0))
    except redis.RedisError as error:
        log.warning("rate_not_counted", error=type(error).__name__)
        return 0


def _key(what: str) -> str:
    return f"rate:{what}:{int(time.time()) // WINDOW_S}"
