from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.crypto import constant_time_compare, get_random_string
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from mozilla_django_oidc.utils import generate_code_challenge

from accounts.models import Login, User
from accounts.oidc.backend import Claims, CodeFlow, SignInRefused
from accounts.oidc.people import identity_sign_in, may_link
from accounts.oidc.providers import WHY_KEY, Provider, endpoints_of, provider_for
from accounts.sessions import LOGIN_KEY, Proof, logins_end, session_login, session_open, sign_in_refused
from core.clock import db_now
from core.errors import EgsError, NotAllowed
from core.pages.links import safe_next
from core.request_origin import client_address

ASKED_KEY: Final = "oidc"  # in Django's session: what this browser asked a provider for
ASKED_S: Final = 900  # a sign-in that takes longer starts again
VERIFIER_CHARS: Final = 64
RANDOM_CHARS: Final = 43


@require_GET
def sign_in(request: HttpRequest, key: str) -> HttpResponse:
    return _to_provider(request, provider_for(key), back=safe_next(request, request.GET.get("next", "/")))


@require_POST
def link(request: HttpRequest, key: str) -> HttpResponse:
    """A person who is signed in links an identity to himself. He proves himself to the provider again."""
    login = session_login(request.session, now=db_now())
    if login is None or not may_link(login):
        raise NotAllowed("Sign in with a token of all your scopes and without bounds, or through a provider, to link an identity.")
    return _to_provider(request, provider_for(key), back=reverse("account"), link_to=login)


@require_GET
def callback(request: HttpRequest, key: str) -> HttpResponse:
    """The browser comes back. A sign-in's request counts once, and only with the same provider."""
    provider, asked = provider_for(key), request.session.pop(ASKED_KEY, {})
    try:
        _refuse_unasked(request, key, asked)
        claims = _claims(request, provider, asked)
        identity = identity_sign_in(provider=provider, claims=claims, link_to=_linker(request, asked), now=db_now())
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


def _to_provider(request: HttpRequest, provider: Provider, *, back: str, link_to: Login | None = None) -> HttpResponse:
    verifier = get_random_string(VERIFIER_CHARS)
    asked = {"provider": provider.key, "next": back, "link_to": str(link_to.pk) if link_to is not None else "", "verifier": verifier}
    asked |= {"state": get_random_string(RANDOM_CHARS), "nonce": get_random_string(RANDOM_CHARS)}
    try:
        address = endpoints_of(provider).authorization
    except EgsError as error:
        return _back_to_login(request, provider.key, error.detail)
    if LOGIN_KEY not in request.session:
        request.session.set_expiry(ASKED_S)
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
        **({"prompt": "login"} if link_to is not None else {}),
    }
    return HttpResponseRedirect(f"{address}?{urlencode(query)}")


def _linker(request: HttpRequest, asked: dict[str, Any]) -> User | None:
    """Returns the person who asked to link. Raises SignInRefused if he is not signed in any more."""
    if not asked["link_to"]:
        return None
    login = session_login(request.session, now=db_now())
    if login is None or str(login.pk) != asked["link_to"]:
        raise SignInRefused("You were signed out meanwhile. Sign in, and link the identity again.")
    return login.user


def _back_to_login(request: HttpRequest, key: str, why: str) -> HttpResponse:
    sign_in_refused(f"through {key}: {why}", address=client_address(request), now=db_now())
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
