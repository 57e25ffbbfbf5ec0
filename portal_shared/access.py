"""Decides access to pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.middleware import HtmxDetails

from accounts.models import ApiToken, Scope, User
from accounts.policy import is_platform_admin
from accounts.sessions import session_token
from core.clock import db_now
from core.errors import NotAllowed, NotFound
from core.pages import words

READ_ONLY = "Your access token may only read. Sign in with one that may write."
ZONE_COOKIE = "egs_zone"
P = ParamSpec("P")


class PageRequest(HttpRequest):
    user: User
    token: ApiToken
    htmx: HtmxDetails
    now: datetime
    zone: ZoneInfo
    may_write: bool


View = Callable[Concatenate[PageRequest, P], HttpResponse]
AnyView = Callable[Concatenate[HttpRequest, P], HttpResponse]


def signed_in(view: View[P]) -> AnyView[P]:
    """Sends strangers to the login page. A POST needs a token with the scope write."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        now = db_now()
        token = session_token(request.session, now=now)
        if token is None:
            return not_cached(to_login(request))
        page = _as_page(request, token, now)
        if request.method != "GET":
            refuse_read_only(page)
        return not_cached(view(page, *args, **kwargs))

    return guarded


def admin_only(view: View[P]) -> AnyView[P]:
    """Answers 404 to everybody else."""

    @wraps(view)
    def guarded(request: PageRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not is_platform_admin(request.user):
            raise NotFound("page")
        return view(request, *args, **kwargs)

    return signed_in(guarded)


def needs_write(view: View[P]) -> View[P]:
    """Guards forms: a read-only token cannot even open them."""

    @wraps(view)
    def guarded(request: PageRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        refuse_read_only(request)
        return view(request, *args, **kwargs)

    return guarded


def refuse_read_only(request: PageRequest) -> None:
    if not request.may_write:
        raise NotAllowed(READ_ONLY)


def why_not_write(request: PageRequest) -> str:
    """The page shows it in place of buttons."""
    return "" if request.may_write else READ_ONLY


def not_cached(response: HttpResponse) -> HttpResponse:
    """Keeps pages out of caches."""
    response.headers["Cache-Control"] = "private, no-store"
    return response


def to_login(request: HttpRequest) -> HttpResponse:
    """Redirects the whole page under htmx, not only a fragment."""
    htmx: Any = request.htmx  # type: ignore[attr-defined]
    if htmx:
        back = htmx.current_url_abs_path or "/"
        return HttpResponse(status=401, headers={"HX-Redirect": login_url(back)})
    return HttpResponseRedirect(login_url(request.get_full_path() if request.method == "GET" else "/"))


def login_url(back: str) -> str:
    return f"{reverse('login')}?{urlencode({'next': back})}" if back != "/" else reverse("login")


def safe_next(request: HttpRequest, given: str) -> str:
    """Never returns a URL of another site."""
    is_ours = url_has_allowed_host_and_scheme(given, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return given if is_ours and given.startswith("/") else "/"


def zone_of(request: HttpRequest) -> ZoneInfo:
    """Reads a cookie that the browser's script sets; UTC until then."""
    try:
        return ZoneInfo(request.COOKIES.get(ZONE_COOKIE, "UTC")[:64])
    except (ValueError, OSError, KeyError):
        return ZoneInfo("UTC")


def moment_formatter(request: PageRequest) -> Callable[[datetime], str]:
    return partial(words.moment, now=request.now, zone=request.zone)


def _as_page(request: HttpRequest, token: ApiToken, now: datetime) -> PageRequest:
    page: Any = request
    page.user, page.token, page.now, page.zone = token.user, token, now, zone_of(request)
    page.may_write = token.allows(Scope.WRITE)
    timezone.activate(page.zone)
    passed: PageRequest = page
    return passed
