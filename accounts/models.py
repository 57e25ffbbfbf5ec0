from __future__ import annotations

import uuid
from datetime import datetime
from typing import ClassVar

from django.contrib.auth.base_user import AbstractBaseUser
from django.db import models

from core.column_checks import column_checks


class Scope(models.TextChoices):
    READ = "read", "Read"
    WRITE = "write", "Read and change"
    ADMIN = "admin", "Administer"


@column_checks
class User(AbstractBaseUser):
    """A person or a robot. Never deleted, since Events name it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    email = models.EmailField(blank=True)
    is_admin = models.BooleanField(default=False, help_text="Administers the whole platform.")
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField()

    USERNAME_FIELD: ClassVar[str] = "name"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    def __str__(self) -> str:
        return self.name


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


@column_checks
class IdempotentCreation(models.Model):
    """Names the object that a request with this key made or changed."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    route = models.CharField(max_length=400, help_text="The address below the API's root.")
    key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64, help_text="SHA-256 of the request's body.")
    object_id = models.UUIDField(null=True, help_text="The object that was created; null: none, e.g. after a refusal.")
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["user", "route", "key"], name="idempotency_key_once_per_user_and_route"),
        ]

    def __str__(self) -> str:
        return f"{self.route} {self.key}"
