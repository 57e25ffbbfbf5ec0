from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import structlog
from django.conf import settings
from django.core.cache import cache

from accounts.models import Login
from core.errors import EgsError, NotFound

log = structlog.get_logger(__name__)

TIMEOUT_S: Final = 5
METADATA_S: Final = 600
WHY_KEY: Final = "oidc_why"  # in Django's session: why the last sign-in failed, for the login page


class ProviderDown(EgsError):
    status = 503
    code = "provider_down"
    title = "The identity provider does not answer"

    def __init__(self, provider: Provider) -> None:
        super().__init__(f"{provider.label} does not answer. Try again later, or sign in with a token.")


@dataclass(frozen=True, slots=True)
class Provider:
    """Holds an entry of EGS_OIDC_PROVIDERS, whose keys have these names."""

    key: str
    label: str
    issuer: str
    client_id: str
    client_secret: str
    scopes: str = "openid profile email"
    groups_claim: str = "groups"
    algorithm: str = "RS256"


@dataclass(frozen=True, slots=True)
class Endpoints:
    authorization: str
    token: str
    userinfo: str
    keys: str
    end_session: str  # empty: the provider has none


def providers() -> tuple[Provider, ...]:
    return tuple(Provider(**entry) for entry in settings.EGS_OIDC_PROVIDERS)


def provider_for(key: str) -> Provider:
    """Raises NotFound."""
    for provider in providers():
        if provider.key == key:
            return provider
    raise NotFound("identity provider")


def endpoints_of(provider: Provider) -> Endpoints:
    """Reads the provider's metadata (OpenID Connect Discovery 1.0) and remembers it for METADATA_S. Raises ProviderDown."""
    found: Endpoints | None = cache.get(f"oidc:{provider.issuer}")
    if found is None:
        found = _discover(provider)
        cache.set(f"oidc:{provider.issuer}", found, METADATA_S)
    return found


def logout_url(login: Login, *, back: str) -> str:
    """Returns the address at which the provider ends its own session and sends the browser to `back`, an absolute URL. Empty where it
    cannot.
    """
    if login.identity is None:
        return ""
    try:
        provider = provider_for(login.identity.provider)
        address = endpoints_of(provider).end_session
    except EgsError:
        return ""
    query = {"client_id": provider.client_id, "post_logout_redirect_uri": back}
    return f"{address}?{urlencode(query)}" if address else ""


def _discover(provider: Provider) -> Endpoints:
    import requests  # only where there are providers: it costs every process 8 MB

    url = f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration"
    try:
        answer = requests.get(url, timeout=TIMEOUT_S, allow_redirects=False)
        answer.raise_for_status()
        told: dict[str, Any] = answer.json()
        if told["issuer"] != provider.issuer:
            raise ValueError("it names another issuer")
        return Endpoints(
            authorization=told["authorization_endpoint"],
            token=told["token_endpoint"],
            userinfo=told["userinfo_endpoint"],
            keys=told["jwks_uri"],
            end_session=told.get("end_session_endpoint", ""),
        )
    except (requests.RequestException, ValueError, KeyError, TypeError) as error:
        log.warning("oidc_provider_down", provider=provider.key, error=type(error).__name__)
        raise ProviderDown(provider) from None
