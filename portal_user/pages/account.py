"""Shows the reader's own sessions, access tokens and identities."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.urls import reverse

from accounts.devices.services import LIFE
from accounts.models import ApiToken, DeviceLogin, DeviceLoginState, Identity, Login, Scope
from accounts.oidc.providers import providers
from accounts.sessions import live_logins
from core.pages import words
from core.request_origin import client_address
from core.words import plural
from portal_shared.access import PageRequest, why_not_write
from portal_shared.shell import Shell

TOKENS_MAX = 100
ANEW = "Start again in the terminal: egs login"


@dataclass(frozen=True, slots=True)
class LoginRow:
    id: UUID
    browser: str
    how: str
    address: str
    created_at: datetime
    last_seen_at: datetime
    is_this: bool
    end_url: str

    @classmethod
    def of(cls, login: Login, *, this: Login) -> LoginRow:
        how = f"through {login.identity.provider}" if login.identity is not None else f"with token {login.token.name}"  # type: ignore[union-attr]
        return cls(
            id=login.pk,
            browser=_browser(login.browser),
            how=how,
            address=login.address,
            created_at=login.created_at,
            last_seen_at=login.last_seen_at,
            is_this=login.pk == this.pk,
            end_url=reverse("login-end", args=[login.pk]) if login.pk != this.pk else "",
        )


@dataclass(frozen=True, slots=True)
class TokenRow:
    id: UUID
    name: str
    key_id: str
    may: str
    bounds: str
    last_used_at: datetime | None
    last_address: str
    expires_at: datetime
    word: str
    css: str
    revoke_url: str

    @classmethod
    def of(cls, token: ApiToken, *, now: datetime, revoke_url: str) -> TokenRow:
        """`revoke_url`: empty where the reader may change nothing."""
        is_live = token.is_live(now)
        bounds = [*token.networks, *([f"in {plural(len(token.slices), 'workspace')}"] if token.slices else [])]
        return cls(
            id=token.pk,
            name=token.name,
            key_id=token.key_id,
            may=", ".join(Scope(scope).label for scope in token.scopes),
            bounds=", ".join(bounds),
            last_used_at=token.last_used_at,
            last_address=token.last_address,
            expires_at=token.expires_at,
            word="Live" if is_live else "Revoked" if token.revoked_at else "Expired",
            css="good" if is_live else "soft",
            revoke_url=revoke_url if is_live else "",
        )


@dataclass(frozen=True, slots=True)
class AccountPage:
    shell: Shell
    logins: tuple[LoginRow, ...]
    tokens: tuple[TokenRow, ...]
    identities: tuple[Identity, ...]
    link_urls: tuple[tuple[str, str], ...]  # label and address of providers that the reader has no identity of
    has_others: bool
    read_only: str

    @classmethod
    def build(cls, request: PageRequest) -> AccountPage:
        logins = live_logins(now=request.now).filter(user=request.user).select_related("token", "identity")
        rows = tuple(LoginRow.of(login, this=request.login) for login in logins)
        identities = tuple(request.user.identities.all())
        linked = {identity.issuer for identity in identities}
        tokens = ApiToken.objects.filter(user=request.user)[:TOKENS_MAX]
        return cls(
            shell=Shell.user(request, page="account"),
            logins=rows,
            tokens=tuple(
                TokenRow.of(token, now=request.now, revoke_url=reverse("token-revoke", args=[token.pk]) if request.may_write else "")
                for token in tokens
            ),
            identities=identities,
            link_urls=tuple(
                (provider.label, reverse("oidc-link", args=[provider.key])) for provider in providers() if provider.issuer not in linked
            ),
            has_others=len(rows) > 1,
            read_only=why_not_write(request),
        )


def asked_by(asked: DeviceLogin, request: PageRequest) -> tuple[str, ...]:
    """Lists the facts by which people recognize their own terminal."""
    here, there = client_address(request), asked.address or "an unknown address"
    where = f"from {there}, as this browser" if there == here else f"from {there}; this browser is at {here or 'an unknown address'}"
    return (
        f"Its code is {asked.shown_code}. The terminal has to show the same one.",
        f"It calls itself “{asked.name}” and asks {where}.",
        f"It asked {words.relative(asked.created_at, now=request.now)}, and would act as {request.user.name}.",
    )


def became_of(asked: DeviceLogin, request: PageRequest) -> str:
    """Says what became of a code and what to do now; "" while it waits for an answer. Nobody learns who else answered it."""
    if asked.state == DeviceLoginState.PENDING:
        again = f"Nobody answered within {words.duration_exact(int(LIFE.total_seconds()))}, so the code is over. {ANEW}"
        return "" if asked.expires_at > request.now else again
    if asked.user_id != request.user.pk:
        return f"Somebody has answered it already. {ANEW}"
    if asked.state == DeviceLoginState.REFUSED:
        return f"You refused it, and {asked.name} got no token. {ANEW}"
    if asked.state == DeviceLoginState.USED:
        return f"You connected {asked.name}: go on there. Its token is listed on the page Account; revoke it there if that was not you."
    if asked.expires_at <= request.now:
        return f"You connected {asked.name}, but the terminal did not fetch its token in time. {ANEW}"
    return f"You connected {asked.name}, which fetches its token within seconds. Go on there."


def _browser(agent: str) -> str:
    """Returns a short name of what a User-Agent header tells."""
    for mark, name in (("Edg/", "Edge"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari")):
        if mark in agent:
            return name
    return agent[:40] or "Unknown browser"
