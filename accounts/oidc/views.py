from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.crypto import constant_time_compare, get_random_string
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from mozilla_django_oidc.utils import generate_code_challenge

from accounts.models import Login
from accounts.oidc.backend import Claims, CodeFlow, SignInRefused
from accounts.oidc.people import identity_sign_in
from accounts.oidc.providers import WHY_KEY, Provider, endpoints_of, provider_for
from accounts.sessions import Proof, logins_end, session_login, session_open, sign_in_refused
from core.clock import db_now
from core.errors import EgsError
from core.pages.links import safe_next

ASKED_KEY: Final = "oidc"  # in Django's session: what this browser asked a provider for
VERIFIER_CHARS: Final = 64
RANDOM_CHARS: Final = 43


@require_GET
def sign_in(request: HttpRequest, key: str) -> HttpResponse:
    """Sends the browser to the provider."""
    provider = provider_for(key)
    verifier = get_random_string(VERIFIER_CHARS)
    asked = {"provider": key, "next": safe_next(request, request.GET.get("next", "/")), "is_link": "link" in request.GET}
    asked |= {"state": get_random_string(RANDOM_CHARS), "nonce": get_random_string(RANDOM_CHARS), "verifier": verifier}
    try:
        address = endpoints_of(provider).authorization
    except EgsError as error:
        return _back_to_login(request, key, error.detail)
    request.session[ASKED_KEY] = asked
    query = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": _callback_url(request, provider),
        "scope": provider.scopes,
        "state": asked["state"],
        "nonce": asked["nonce"],
        "code_challenge": generate_code_challenge(verifier, "S256"),
        "code_challenge_method": "S256",
    }
    return HttpResponseRedirect(f"{address}?{urlencode(query)}")


@require_GET
def callback(request: HttpRequest, key: str) -> HttpResponse:
    """The browser comes back. What it asked for counts once, and only with the same provider.

    A person who is signed in may have asked to link the identity to himself.
    """
    asked: dict[str, Any] = request.session.pop(ASKED_KEY, {})
    try:
        provider = provider_for(key)
        _refuse_unasked(request, key, asked)
        claims = _claims(request, provider, asked)
        login = session_login(request.session, now=db_now()) if asked["is_link"] else None
        identity = identity_sign_in(provider=provider, claims=claims, link_to=login.user if login else None, now=db_now())
    except EgsError as error:
        return _back_to_login(request, key, error.detail)
    session_open(request, proof=Proof(identity=identity, provider_session=claims.session[:255]), now=db_now())
    return HttpResponseRedirect(asked["next"])


@csrf_exempt
@require_POST
def backchannel_logout(request: HttpRequest, key: str) -> HttpResponse:
    """The provider ends the sessions of a person, or of one of his sessions there."""
    provider = provider_for(key)
    try:
        told = CodeFlow(provider).logout_claims(request.POST.get("logout_token", ""))
    except SignInRefused as error:
        return HttpResponse(error.detail, status=400, content_type="text/plain", headers={"Cache-Control": "no-store"})
    logins = Login.objects.filter(identity__issuer=provider.issuer)
    logins = logins.filter(identity__subject=told["sub"]) if told.get("sub") else logins
    logins = logins.filter(provider_session=told["sid"]) if told.get("sid") else logins
    logins_end(logins, why=f"was signed out by {provider.label}", actor=None, now=db_now())
    return HttpResponse(status=200, headers={"Cache-Control": "no-store"})


def _back_to_login(request: HttpRequest, key: str, why: str) -> HttpResponse:
    sign_in_refused(f"through {key}: {why}", now=db_now())
    request.session[WHY_KEY] = why  # not in the address, where others could write it
    return HttpResponseRedirect(reverse("login"))


def _refuse_unasked(request: HttpRequest, key: str, asked: dict[str, Any]) -> None:
    is_asked = asked.get("provider") == key and constant_time_compare(request.GET.get("state", ""), asked.get("state", ""))
    if not is_asked:
        raise SignInRefused("This sign-in was not started in this browser, or it was used already. Start again.")
    if "code" not in request.GET:
        raise SignInRefused("The identity provider did not sign you in. Start again.")


def _claims(request: HttpRequest, provider: Provider, asked: dict[str, Any]) -> Claims:
    return CodeFlow(provider).claims_of(
        code=request.GET["code"], code_verifier=asked["verifier"], nonce=asked["nonce"], redirect_uri=_callback_url(request, provider)
    )


def _callback_url(request: HttpRequest, provider: Provider) -> str:
    return request.build_absolute_uri(reverse("oidc-callback", args=[provider.key]))
