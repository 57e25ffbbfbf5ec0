from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.conf import settings
from django.db import models

from core.column_checks import column_checks
from slices.models.tenants import Slice


class RequestState(models.TextChoices):
    PENDING = "PENDING", "Waits for a decision"
    APPROVED = "APPROVED", "Approved"
    REFUSED = "REFUSED", "Refused"
    CANCELED = "CANCELED", "Withdrawn"


@column_checks
class WorkspaceRequest(models.Model):
    """Names are as the requester wrote them: he may not know what there is."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    requester = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=63)
    project = models.CharField(max_length=63)
    purpose = models.CharField(max_length=500)
    clusters = models.JSONField(default=list)
    namespaces = models.JSONField(default=list)
    people = models.JSONField(default=dict, help_text="Name -> role.")
    quota = models.JSONField(default=dict, help_text="Shape -> guaranteed GPUs.")
    ends_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    state = models.CharField(max_length=8, choices=RequestState.choices, default=RequestState.PENDING)
    why = models.CharField(max_length=150, blank=True)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    decided_at = models.DateTimeField(null=True)
    slice = models.ForeignKey(Slice, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]

    def __str__(self) -> str:
        return f"request for workspace {self.name}"

    @property
    def owner_id(self) -> Any:
        """Returns the id of the person who filed it; accounts.policy reads this name."""
        return self.requester_id
