from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
import requests
import structlog
from django.core.cache import cache
from django.core.exceptions import SuspiciousOperation
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from accounts.oidc.providers import TIMEOUT_S, Endpoints, Provider, ProviderDown, endpoints_of
from core.errors import EgsError
from core.names import text_fault

log = structlog.get_logger(__name__)

CLOCK_SKEW_S: Final = 60
KEYS_S, KEYS_READ_AGAIN_S = 3600, 60
# JSON of another form than the standards say.
MALFORMED: Final = (AttributeError, KeyError, TypeError, ValueError)
LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"


class SignInRefused(EgsError):
    status = 400
    code = "sign_in_refused"
    title = "The sign-in was not accepted"


@dataclass(frozen=True, slots=True)
class Claims:
    """Holds the provider's statements about the person who signed in. Nothing of it is trusted before it was checked here."""

    issuer: str
    subject: str
    session: str
    name: str
    email: str
    groups: tuple[str, ...]


class CodeFlow(OIDCAuthenticationBackend):
    """Checks also what mozilla-django-oidc leaves open: issuer, audience, authorized party and times of the ID token, and the subject."""

    def __init__(self, provider: Provider) -> None:
        self.provider, self.endpoints = provider, endpoints_of(provider)
        super().__init__()

    def get_settings(self, attr: str, *args: Any) -> Any:
        return _settings(self.provider, self.endpoints).get(attr, *args)

    def claims_of(self, *, code: str, code_verifier: str, nonce: str, redirect_uri: str) -> Claims:
        """Exchanges the code. Raises SignInRefused or ProviderDown."""
        asked = {
            "client_id": self.provider.client_id,
            "client_secret": self.provider.client_secret,
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": code_verifier,
        }
        try:
            tokens = self.get_token(asked)
            told = self.verify_token(tokens["id_token"], nonce=nonce)
            more = self.get_userinfo(tokens["access_token"], tokens["id_token"], told)
        except (requests.ConnectionError, requests.Timeout):
            raise ProviderDown(self.provider) from None
        except (requests.RequestException, SuspiciousOperation, jwt.PyJWTError, *MALFORMED) as error:
            log.warning("oidc_refused", provider=self.provider.key, error=type(error).__name__)
            raise SignInRefused(f"The answer of {self.provider.label} was not accepted. Start again.") from None
        if not isinstance(more, dict) or more.get("sub") != told["sub"]:
            raise SignInRefused(f"The answer of {self.provider.label} was not accepted. Start again.")
        return claims_from(self.provider, {**more, **told})

    def logout_claims(self, token: str) -> dict[str, Any]:
        """Checks a logout token (OpenID Connect Back-Channel Logout 1.0, section 2.6). Raises SignInRefused."""
        try:
            told: dict[str, Any] = self.get_payload_data(token, self.retrieve_matching_jwk(token))
        except (requests.RequestException, SuspiciousOperation, jwt.PyJWTError, *MALFORMED):
            raise SignInRefused("This logout token is not valid.") from None
        events, who = told.get("events"), [told[key] for key in ("sub", "sid") if told.get(key)]
        is_logout = isinstance(events, dict) and LOGOUT_EVENT in events and "nonce" not in told
        if not is_logout or not who or any(not isinstance(text, str) or text_fault(text) for text in who):
            raise SignInRefused("This logout token is not valid.")
        return told

    def retrieve_matching_jwk(self, token: str) -> Any:
        """The provider's keys are remembered, and read again when a token names another: at most once a minute."""
        key_id = jwt.get_unverified_header(token).get("kid")
        name = f"oidc-keys:{self.provider.issuer}"
        keys: list[dict[str, Any]] = cache.get(name) or []
        if not any(key.get("kid") == key_id for key in keys) and cache.add(f"{name}:read", 1, timeout=KEYS_READ_AGAIN_S):
            answer = requests.get(self.endpoints.keys, timeout=TIMEOUT_S, allow_redirects=False)
            answer.raise_for_status()
            keys = answer.json()["keys"]
            cache.set(name, keys, timeout=KEYS_S)
        for key in keys:
            if key.get("kid") == key_id and key.get("alg", self.provider.algorithm) == self.provider.algorithm:
                return jwt.PyJWK(key, algorithm=self.provider.algorithm)
        raise SuspiciousOperation("The provider has no such key.")

    def _verify_jws(self, payload: str, key: Any) -> dict[str, Any]:
        told: dict[str, Any] = jwt.decode(
            payload,
            key,
            algorithms=[self.provider.algorithm],
            audience=self.provider.client_id,
            issuer=self.provider.issuer,
            leeway=CLOCK_SKEW_S,
            options={"require": ["iss", "aud", "iat"]},
        )
        party = told.get("azp")
        if party not in {None, self.provider.client_id} or (party is None and isinstance(told["aud"], list) and len(told["aud"]) > 1):
            raise SuspiciousOperation("The token was issued for another client.")
        return told

    def verify_token(self, token: str, **kwargs: Any) -> dict[str, Any]:
        told: dict[str, Any] = super().verify_token(token, **kwargs)
        if "exp" not in told or not told.get("sub"):
            raise SuspiciousOperation("The ID token names no end or no subject.")
        return told


def claims_from(provider: Provider, told: Mapping[str, Any]) -> Claims:
    """Raises SignInRefused for claims that EGS cannot read."""
    overflown, groups = told.get("_claim_names"), told.get(provider.groups_claim) or []
    if isinstance(overflown, dict) and provider.groups_claim in overflown:
        raise SignInRefused(f"{provider.label} has too many groups of you to send. Ask an administrator to have it send fewer.")
    groups = [groups] if isinstance(groups, str) else groups
    subject, session = str(told["sub"]), str(told.get("sid") or "")
    if not isinstance(groups, list) or any(not isinstance(text, str) or text_fault(text) for text in (subject, session, *groups)):
        raise SignInRefused(f"{provider.label} sent a subject, a session or groups that EGS cannot read. Ask an administrator.")
    return Claims(
        issuer=provider.issuer,
        subject=subject,
        session=session,
        name=next((name for key in ("preferred_username", "name", "email") if isinstance(name := told.get(key), str) and name), ""),
        email=str(told.get("email") or "") if told.get("email_verified") is True else "",
        groups=tuple(sorted(set(groups))),
    )


def _settings(provider: Provider, endpoints: Endpoints) -> dict[str, Any]:
    return {
        "OIDC_OP_TOKEN_ENDPOINT": endpoints.token,
        "OIDC_OP_USER_ENDPOINT": endpoints.userinfo,
        "OIDC_OP_JWKS_ENDPOINT": endpoints.keys,
        "OIDC_RP_CLIENT_ID": provider.client_id,
        "OIDC_RP_CLIENT_SECRET": provider.client_secret,
        "OIDC_RP_SIGN_ALGO": provider.algorithm,
        "OIDC_TIMEOUT": TIMEOUT_S,
        "OIDC_USE_NONCE": True,
        "OIDC_VERIFY_SSL": True,
    }
