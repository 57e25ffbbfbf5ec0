from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.http import require_http_methods, require_POST

from accounts.sessions import session_close, session_open, session_token
from core.clock import db_now
from journal.hints import hint, user_topic
from portal_shared.access import safe_next

TOKEN_MAX_CHARS = 200


@require_http_methods(["GET", "POST"])
def login(request: HttpRequest) -> HttpResponse:
    """Reveals nothing about tenants, nor why a token was refused."""
    back = safe_next(request, (request.POST if request.method == "POST" else request.GET).get("next", "/"))
    if request.method == "POST":
        plain = request.POST.get("token", "").strip()
        if len(plain) <= TOKEN_MAX_CHARS and session_open(request, plain=plain, now=db_now()):
            return HttpResponseRedirect(back)
    elif session_token(request.session, now=db_now()):
        return HttpResponseRedirect(back)
    is_refused = request.method == "POST"
    response = render(request, "login.html", {"next": back, "is_refused": is_refused}, status=400 if is_refused else 200)
    add_never_cache_headers(response)
    return response


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    """The hint ends the login's open sockets."""
    token = session_token(request.session, now=db_now())
    session_close(request)
    if token is not None:
        hint(user_topic(token.user_id))
    return HttpResponseRedirect(reverse("login"))
