"""Decides access to pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django_htmx.middleware import HtmxDetails

from accounts.models import Login, Scope, User
from accounts.policy import is_overseer, is_platform_admin
from accounts.sessions import login_seen, session_login
from core.clock import db_now
from core.errors import NotAllowed, NotFound
from core.pages import words
from core.request_origin import client_address, signed_in_by

AUDITOR = "An auditor of the platform sees everything and changes nothing."
READ_ONLY = "Your access token may only read. Sign in with one that may write."
ZONE_COOKIE = "egs_zone"
P = ParamSpec("P")
Answer = TypeVar("Answer", bound=HttpResponseBase)


class PageRequest(HttpRequest):
    user: User
    login: Login
    htmx: HtmxDetails
    now: datetime
    zone: ZoneInfo
    may_write: bool


View = Callable[Concatenate[PageRequest, P], HttpResponseBase]
AnyView = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


def signed_in(view: View[P]) -> AnyView[P]:
    """Sends strangers to the login page. A POST needs a token with the scope write."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        now = db_now()
        login = session_login(request.session, now=now)
        if login is None or (login.token is not None and not login.token.takes(client_address(request))):
            return not_cached(to_login(request))
        page = _as_page(request, login, now)
        signed_in_by(login_id=login.pk, token_key=login.token.key_id if login.token is not None else "")
        if not page.htmx or request.method != "GET":
            login_seen(login, now=now)
        if request.method != "GET":
            refuse_read_only(page)
        return not_cached(view(page, *args, **kwargs))

    return guarded


def admin_only(view: View[P]) -> AnyView[P]:
    """Answers 404 to everybody else. An auditor may look and change nothing."""

    @wraps(view)
    def guarded(request: PageRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if not is_overseer(request.user):
            raise NotFound("page")
        if not is_platform_admin(request.user):
            request.may_write = False
            if request.method != "GET":
                raise NotAllowed(AUDITOR)
        return view(request, *args, **kwargs)

    return signed_in(guarded)


def needs_write(view: View[P]) -> View[P]:
    """Guards forms: a read-only token cannot even open them."""

    @wraps(view)
    def guarded(request: PageRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        refuse_read_only(request)
        return view(request, *args, **kwargs)

    return guarded


def refuse_read_only(request: PageRequest) -> None:
    if not request.may_write:
        raise NotAllowed(why_not_write(request))


def why_not_write(request: PageRequest) -> str:
    """The page shows it in place of buttons."""
    if request.may_write:
        return ""
    return READ_ONLY if not request.login.allows(Scope.WRITE) else AUDITOR


def not_cached(response: Answer) -> Answer:
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


def zone_of(request: HttpRequest) -> ZoneInfo:
    """Reads a cookie that the browser's script sets, and is UTC until then."""
    try:
        return ZoneInfo(request.COOKIES.get(ZONE_COOKIE, "UTC")[:64])
    except (ValueError, OSError, KeyError):
        return ZoneInfo("UTC")


def moment_formatter(request: PageRequest) -> Callable[[datetime], str]:
    return partial(words.moment, now=request.now, zone=request.zone)


def _as_page(request: HttpRequest, login: Login, now: datetime) -> PageRequest:
    page: Any = request
    page.user, page.login, page.now, page.zone = login.user, login, now, zone_of(request)
    page.may_write = login.allows(Scope.WRITE)
    timezone.activate(page.zone)
    passed: PageRequest = page
    return passed
