from __future__ import annotations

from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import add_never_cache_headers
from django.views.decorators.http import require_http_methods, require_POST

from accounts.oidc.providers import WHY_KEY, logout_url, providers
from accounts.sessions import session_close, session_login, session_open_by_token
from core.clock import db_now
from core.pages.links import safe_next

TOKEN_MAX_CHARS = 200


@require_http_methods(["GET", "POST"])
def login(request: HttpRequest) -> HttpResponse:
    """Tells nothing about tenants, nor why a token was refused."""
    back = safe_next(request, (request.POST if request.method == "POST" else request.GET).get("next", "/"))
    if request.method == "POST":
        plain = request.POST.get("token", "").strip()
        if settings.EGS_TOKEN_LOGIN and len(plain) <= TOKEN_MAX_CHARS and session_open_by_token(request, plain=plain, now=db_now()):
            return HttpResponseRedirect(back)
    elif session_login(request.session, now=db_now()):
        return HttpResponseRedirect(back)
    is_refused = request.method == "POST"
    context = {
        "next": back,
        "next_query": urlencode({"next": back}),
        "is_refused": is_refused,
        "why": request.session.pop(WHY_KEY, ""),
        "providers": providers(),
        "takes_tokens": settings.EGS_TOKEN_LOGIN,
    }
    response = render(request, "login.html", context, status=400 if is_refused else 200)
    add_never_cache_headers(response)
    return response


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    login = session_close(request, now=db_now())
    here = reverse("login")
    provider_url = logout_url(login, back=request.build_absolute_uri(here)) if login is not None else ""
    return HttpResponseRedirect(provider_url or here)
