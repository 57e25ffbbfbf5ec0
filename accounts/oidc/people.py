from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from typing import Final

from django.db import transaction

from accounts.audit import AccountChange, report
from accounts.models import Identity, Login, PlatformRole, Scope, User
from accounts.oidc.backend import Claims, SignInRefused
from accounts.oidc.providers import Provider
from accounts.people.services import identity_set_groups, user_create
from core.locks import transaction_lock
from core.names import mail_fault, name_fault

GROUPS_MAX: Final = 1000
GROUP_MAX_CHARS: Final = 255
NAME_CHARS: Final = 50


@transaction.atomic
def identity_sign_in(*, provider: Provider, claims: Claims, link_to: User | None, now: datetime) -> Identity:
    """Finds the person by issuer and subject alone, or takes `link_to`, or adds him; then applies his groups. Raises SignInRefused."""
    if len(claims.subject) > 255 or len(claims.groups) > GROUPS_MAX or any(len(group) > GROUP_MAX_CHARS for group in claims.groups):
        raise SignInRefused(f"{provider.label} sent more about you than EGS reads. Ask an administrator to send it fewer groups.")
    transaction_lock("identities")
    identity = Identity.objects.select_related("user").filter(issuer=claims.issuer, subject=claims.subject).first()
    if identity is None:
        user = link_to or user_create(name=_free_name(claims), email=_email_of(claims), now=now)
        identity = Identity(user=user, provider=provider.key, issuer=claims.issuer, subject=claims.subject, created_at=now)
        report(AccountChange("identity.linked", f"{user.name} signs in through {provider.key} from now on.", user, now, user=user))
    if link_to is not None and identity.user_id != link_to.pk:
        raise SignInRefused("This identity belongs to another account already.")
    if not identity.user.is_active:
        raise SignInRefused("Your account is disabled. Ask an administrator.")
    identity.provider, identity.email, identity.last_login_at = provider.key, _email_of(claims).lower(), now
    identity.save()
    identity_set_groups(identity=identity, groups=claims.groups, actor=None, now=now)
    identity.user.refresh_from_db()
    return identity


def may_link(login: Login) -> bool:
    """Tell whether the session has all rights of its person: an identity has them all."""
    token = login.token
    if token is None:
        return True
    full = {Scope.READ, Scope.WRITE} if User.objects.filter(pk=login.user_id, role=PlatformRole.MEMBER).exists() else {Scope.ADMIN}
    return not token.slices and not token.networks and full <= set(token.scopes)


def _email_of(claims: Claims) -> str:
    return "" if mail_fault(claims.email) else claims.email[:254]


def _free_name(claims: Claims) -> str:
    """Appends a number if another person has the name already, here or at another provider."""
    for name in _names(claims):
        if not name_fault(name) and not User.objects.filter(name=name).exists():
            return name
    raise AssertionError("there is always a further number")


def _names(claims: Claims) -> Iterator[str]:
    """Returns plain ASCII, so that no look-alike of another person's name appears."""
    plain = unicodedata.normalize("NFKD", claims.name.partition("@")[0]).encode("ascii", "ignore").decode().lower()
    stem = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:NAME_CHARS].strip("-") or "user"
    yield stem
    for number in count(2):
        yield f"{stem}-{number}"
