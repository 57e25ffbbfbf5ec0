from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from inventory.models import Cluster
from slices.models.namespaces import DETAIL_MAX_CHARS
from slices.models.tenants import Slice

LIVE_STATES = ("asked", "made", "given")  # of a kubeconfig whose account exists or is to be made


class KubeconfigState(models.TextChoices):
    ASKED = "asked", "Asked for"  # the agent has yet to make its token
    MADE = "made", "Made"  # its token is stored here until it is read
    GIVEN = "given", "In use"  # its user has read it; the hub has deleted the token
    FAILED = "failed", "Failed"
    REVOKED = "revoked", "Revoked"
    EXPIRED = "expired", "Expired"


@column_checks
class Kubeconfig(models.Model):
    """`due_at` limits the time in the present state."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="kubeconfigs")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    namespace = models.CharField(max_length=63, help_text="Namespace of its service account.")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    duration_s = models.PositiveBigIntegerField(help_text="Requested lifetime; the cluster may grant less.")
    state = models.CharField(max_length=7, choices=KubeconfigState.choices, default=KubeconfigState.ASKED)
    detail = models.CharField(max_length=DETAIL_MAX_CHARS, blank=True, help_text="Why it ended, as a sentence.")
    asked_at = models.DateTimeField()
    due_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_generation = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="First generation of the cluster's desired set without this account."
    )
    closed_at = models.DateTimeField(null=True, blank=True, help_text="When the cluster reported that the account is gone.")
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    token = models.TextField(blank=True)
    server = models.CharField(max_length=253, blank=True)
    ca = models.TextField(blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-asked_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            # The database enforces that a secret is stored only until it is read.
            models.CheckConstraint(condition=Q(token="") | Q(state=KubeconfigState.MADE), name="kubeconfig_token_until_read"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["due_at"], condition=Q(state__in=LIVE_STATES), name="kubeconfig_live"),
            models.Index(fields=["cluster"], condition=Q(ended_at__isnull=False, closed_at=None), name="kubeconfig_open"),
        ]

    def __str__(self) -> str:
        return f"kubeconfig {self.pk}"

    @property
    def name(self) -> str:
        return f"{self.slice.name}@{self.cluster.name}"

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES
