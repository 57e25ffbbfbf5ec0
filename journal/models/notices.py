"""Notices: what people are told of Events."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from journal.models.events import Event
from journal.notices.kinds import NoticeKind


class Outbox(models.Model):
    """Holds an Event that people are still to be told of. It is written in the Event's transaction."""

    event = models.OneToOneField(Event, primary_key=True, on_delete=models.PROTECT, related_name="+")

    def __str__(self) -> str:
        return f"outbox: {self.event_id}"


@column_checks
class Notice(models.Model):
    """Puts an Event into the bell of one person."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="notices")
    event = models.ForeignKey(Event, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=20, choices=NoticeKind.choices)
    slice_id = models.UUIDField(null=True, help_text="Only those who may see this workspace see the notice. Null: its user sees it.")
    is_for_admins = models.BooleanField(default=False, help_text="Its user sees it only as an administrator.")
    created_at = models.DateTimeField()
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["event", "user"], name="notice_once_per_event_and_user"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["user", "-created_at", "id"], name="notice_of_user"),
            models.Index(fields=["user"], condition=Q(read_at=None), name="notice_unread"),
            models.Index(fields=["created_at"], name="notice_age"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} for {self.user_id}"


@column_checks
class NoticeSettings(models.Model):
    """Holds which notices a person chose, and when. Without a row the defaults hold."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="notice_settings")
    unwanted_kinds = models.JSONField(default=list, help_text="Kinds that the bell leaves out.")
    muted_slices = models.JSONField(default=list, help_text="Ids of workspaces of which nothing but errors is told.")
    zone = models.CharField(max_length=63, default="UTC", help_text="Time zone of the quiet hours and of daily digests.")
    quiet_from = models.TimeField(null=True, blank=True, help_text="Messages wait from here on; null: there are no quiet hours.")
    quiet_until = models.TimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(quiet_from=None, quiet_until=None) | Q(quiet_from__isnull=False, quiet_until__isnull=False),
                name="notice_settings_quiet_both",
            ),
        ]

    def __str__(self) -> str:
        return f"notice settings of {self.user_id}"
