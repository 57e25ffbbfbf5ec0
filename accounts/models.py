from __future__ import annotations

import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from typing import Any, ClassVar, Final

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import models

from core.column_checks import column_checks


class Scope(models.TextChoices):
    READ = "read", "Read"
    GPR_WRITE = "gpr:write", "Read, and change requests"
    WRITE = "write", "Read and change"
    ADMIN = "admin", "Administer"


class PlatformRole(models.TextChoices):
    MEMBER = "member", "Member"  # has only the roles that projects and workspaces give
    AUDITOR = "auditor", "Auditor"  # sees everything and changes nothing
    ADMIN = "admin", "Administrator"


ROLES_OF_GROUPS: Final = [(role.value, role.label) for role in (PlatformRole.AUDITOR, PlatformRole.ADMIN)]


# The scopes that include the key's scope.
IMPLIED_BY: Final = {
    Scope.READ: set(Scope),
    Scope.GPR_WRITE: {Scope.GPR_WRITE, Scope.WRITE, Scope.ADMIN},
    Scope.WRITE: {Scope.WRITE, Scope.ADMIN},
    Scope.ADMIN: {Scope.ADMIN},
}


class RoleSource(models.TextChoices):
    NOBODY = "nobody", "Nobody"
    HAND = "hand", "An administrator"  # no group changes it
    GROUP = "group", "A group"  # an identity provider's; its loss takes the role


@column_checks
class User(AbstractBaseUser):
    """It is a person or a robot. It is never deleted, since Events name it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    email = models.EmailField(blank=True)
    role = models.CharField(max_length=7, choices=PlatformRole.choices, default=PlatformRole.MEMBER)
    role_source = models.CharField(max_length=6, choices=RoleSource.choices, default=RoleSource.NOBODY, help_text="Who gave the role.")
    is_active = models.BooleanField(default=True, help_text="Disabled people cannot sign in, and their tokens do not work.")
    is_service = models.BooleanField(default=False, help_text="A program of one workspace; it signs in to no page.")
    created_at = models.DateTimeField()

    # The token of this request, if it has one. Never stored.
    credential: ApiToken | None = None

    USERNAME_FIELD: ClassVar[str] = "name"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    def __str__(self) -> str:
        return self.name

    @property
    def bound_to(self) -> Collection[str]:
        """Returns the ids of the workspaces that the token of this request is bound to; empty: no bound."""
        return self.credential.slices if self.credential is not None else ()

    def narrow_to(self, token: ApiToken | None) -> None:
        """A role of the platform counts only with a token of the scope admin, or without one. A narrowed user must not be saved."""
        if token is not None and Scope.ADMIN not in token.scopes:
            self.role = PlatformRole.MEMBER
        self.credential = token


@column_checks
class ApiToken(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=63)
    key_id = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64)
    pepper_id = models.CharField(max_length=8)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_address = models.CharField(max_length=45, blank=True, help_text="Where it was used last.")
    networks = models.JSONField(default=list, help_text="Networks that may use it, e.g. 10.0.0.0/8; empty: all.")
    slices = models.JSONField(default=list, help_text="Ids of the workspaces that it is bound to; empty: all of its user's.")
    checked_at: datetime  # when this request was signed in

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=models.Q(expires_at__gt=models.F("created_at")), name="token_expires_after_creation"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.key_id})"

    def is_live(self, now: datetime) -> bool:
        return self.revoked_at is None and now < self.expires_at

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes

    def takes(self, address: str) -> bool:
        """Tell whether it may be used from this address, as `client_address` gives it."""
        return not self.networks or (address != "" and any(ip_address(address) in ip_network(network) for network in self.networks))

    def covers(self, *, scopes: Collection[str], slices: Collection[str], networks: Collection[str]) -> bool:
        """Tell whether a token of these terms may do no more than this one."""
        return (
            all(IMPLIED_BY[Scope(scope)] & set(self.scopes) for scope in scopes)
            and (not self.slices or (bool(slices) and set(slices) <= set(self.slices)))
            and (not self.networks or (bool(networks) and all(self._holds(network) for network in networks)))
        )

    def _holds(self, network: str) -> bool:
        inner: Any = ip_network(network)
        return any(inner.version == outer.version and inner.subnet_of(outer) for outer in map(ip_network, self.networks))


@column_checks
class Identity(models.Model):
    """Describes a person as an identity provider knows him. Issuer and subject alone identify the person: a name or an address may pass to
    somebody else.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities")
    provider = models.CharField(max_length=31, help_text="Key of the provider in EGS_OIDC_PROVIDERS.")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    groups = models.JSONField(default=list, help_text="Names of the groups at the last sign-in.")
    groups_at = models.DateTimeField(null=True, blank=True, help_text="When they were told last; null: at the last sign-in.")
    email = models.EmailField(blank=True, help_text="Address that the provider has verified, at the last sign-in, in small letters.")
    created_at = models.DateTimeField()
    last_login_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["provider", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="identity_once_per_issuer_and_subject"),
        ]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"


@column_checks
class GroupRole(models.Model):
    """Gives people in this group of this identity provider the role on the platform."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    provider = models.CharField(max_length=31)
    group = models.CharField(max_length=255)
    role = models.CharField(max_length=7, choices=ROLES_OF_GROUPS)
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["provider", "group"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["provider", "group"], name="group_has_one_platform_role"),
        ]

    def __str__(self) -> str:
        return f"{self.group} of {self.provider}: {self.role}"


@column_checks
class Login(models.Model):
    """It is the session of a browser. It has the rights of the token, or of the identity, that opened it, and ends with it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="logins")
    token = models.ForeignKey(ApiToken, null=True, on_delete=models.CASCADE, related_name="+")
    identity = models.ForeignKey(Identity, null=True, on_delete=models.CASCADE, related_name="+")
    provider_session = models.CharField(max_length=255, blank=True, help_text="The provider's id of its own session (sid).")
    created_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    address = models.CharField(max_length=45, blank=True)
    browser = models.CharField(max_length=200, blank=True, help_text="The browser's User-Agent header.")

    class Meta:
        ordering: ClassVar[list[str]] = ["-last_seen_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=models.Q(token=None, identity__isnull=False) | models.Q(token__isnull=False, identity=None),
                name="login_by_token_or_identity",
            ),
        ]

    def __str__(self) -> str:
        return f"session {self.pk}"

    @property
    def scopes(self) -> list[str]:
        return self.token.scopes if self.token is not None else list(Scope)

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes

    def is_live(self, now: datetime, *, idle_max: timedelta) -> bool:
        is_open = self.ended_at is None and now < self.expires_at and now - self.last_seen_at < idle_max
        return is_open and self.user.is_active and (self.token is None or self.token.is_live(now))


class DeviceLoginState(models.TextChoices):
    PENDING = "pending", "Waits for an answer"
    CONFIRMED = "confirmed", "Confirmed"
    REFUSED = "refused", "Refused"
    USED = "used", "Has its token"


@column_checks
class DeviceLogin(models.Model):
    """Describes a terminal that asks for a token. `scopes` is what it asks for, and after the answer what the person granted."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    device_digest = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the secret by which the terminal asks again.")
    user_code = models.CharField(max_length=8, unique=True, help_text="What the terminal shows and the person types.")
    state = models.CharField(max_length=9, choices=DeviceLoginState.choices, default=DeviceLoginState.PENDING)
    name = models.CharField(max_length=63, help_text="Of the terminal, as it says itself; then of its token.")
    address = models.CharField(max_length=45, blank=True, help_text="From which it asked.")
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(help_text="Of the code, not of the token.")
    polled_at = models.DateTimeField(null=True)
    interval_s = models.PositiveSmallIntegerField(help_text="The terminal has to wait so long before it asks again.")
    user = models.ForeignKey(User, null=True, on_delete=models.CASCADE, related_name="+", help_text="Who answered.")
    token_life_s = models.PositiveIntegerField(default=0)
    networks = models.JSONField(default=list)
    slices = models.JSONField(default=list)
    token = models.ForeignKey(ApiToken, null=True, on_delete=models.CASCADE, related_name="+")

    class Meta:
        ordering: ClassVar[list[str]] = ["created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=models.Q(state="pending") | models.Q(user__isnull=False), name="device_login_answered_by_somebody"
            ),
            models.CheckConstraint(condition=~models.Q(state="used") | models.Q(token__isnull=False), name="device_login_used_has_token"),
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.state}"

    @property
    def shown_code(self) -> str:
        return f"{self.user_code[:4]}-{self.user_code[4:]}"


@column_checks
class IdempotentCreation(models.Model):
    """Names the object that a request with this key made or changed."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    route = models.CharField(max_length=400, help_text="The address below the API's root.")
    key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the request's body.")
    object_id = models.UUIDField(null=True, help_text="The object that was created; null: none, e.g. after a refusal.")
    told = models.JSONField(null=True, help_text="The answer where no object can give it again.")
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["user", "route", "key"], name="idempotency_key_once_per_user_and_route"),
        ]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"
