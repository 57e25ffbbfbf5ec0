from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models

from core.column_checks import column_checks


class Severity(models.TextChoices):
    INFO = "info", "Info"
    WARNING = "warning", "Warning"
    ERROR = "error", "Error"


@column_checks
class Event(models.Model):
    """Rows are only appended. A row without a slice is for administrators."""

    at = models.DateTimeField()
    kind = models.CharField(max_length=63)
    severity = models.CharField(max_length=7, choices=Severity.choices, default=Severity.INFO)
    message = models.CharField(max_length=500, help_text="A sentence for people who may see the subject.")
    reason = models.CharField(max_length=63, blank=True)
    old = models.CharField(max_length=63, blank=True)
    new = models.CharField(max_length=63, blank=True)
    # None: EGS itself did it. PROTECT is safe, since users are never deleted.
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+")
    gpr_id = models.UUIDField(null=True)
    slice_id = models.UUIDField(null=True)
    node_id = models.UUIDField(null=True)
    cluster_id = models.UUIDField(null=True)
    data = models.JSONField(default=dict)
    # The origin of the request, for administrators and auditors. Empty: EGS did it by itself.
    request_id = models.CharField(max_length=36, blank=True)
    address = models.CharField(max_length=45, blank=True)
    token_key = models.CharField(max_length=12, blank=True)
    login_id = models.UUIDField(null=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["gpr_id", "-id"], name="event_gpr"),
            models.Index(fields=["slice_id", "-id"], name="event_slice"),
            models.Index(fields=["node_id", "-id"], name="event_node"),
            models.Index(fields=["cluster_id", "-id"], name="event_cluster"),
            models.Index(fields=["kind", "-id"], name="event_kind"),
            models.Index(fields=["actor", "-id"], name="event_actor", condition=models.Q(actor__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"
