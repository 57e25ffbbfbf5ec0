"""Channels say where messages about Events go outside of EGS."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import ClassVar, Final

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from journal.models.events import Event

ERROR_MAX_CHARS: Final = 300


class ChannelKind(models.TextChoices):
    MAIL = "mail", "Mail"
    SLACK_WEBHOOK = "slack_webhook", "Slack, incoming webhook"
    SLACK_BOT = "slack_bot", "Slack, bot"
    WEBHOOK = "webhook", "Webhook"


class Digest(models.TextChoices):
    NONE = "none", "At once"
    HOURLY = "hourly", "One message an hour"
    DAILY = "daily", "One message a day"


class DeliveryState(models.TextChoices):
    WAITING = "waiting", "Waiting"
    SENT = "sent", "Sent"
    FAILED = "failed", "Failed"
    DROPPED = "dropped", "Not sent"


@column_checks
class Channel(models.Model):
    """Belongs to one person or to one workspace."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="channels")
    slice = models.ForeignKey("slices.Slice", null=True, blank=True, on_delete=models.CASCADE, related_name="channels")
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=13, choices=ChannelKind.choices)
    target = models.CharField(max_length=500, help_text="Mail address, webhook URL, or channel in Slack. It is no secret.")
    sealed = models.TextField(blank=True, help_text="The encrypted secret: URL of a Slack webhook, token of a bot, or key of signatures.")
    replaced_sealed = models.TextField(blank=True, help_text="The encrypted key of signatures before the present one.")
    replaced_until_at = models.DateTimeField(null=True, blank=True, help_text="Until then the replaced key signs, too.")
    notice_kinds = models.JSONField(default=list)
    digest = models.CharField(max_length=6, choices=Digest.choices, default=Digest.NONE)
    is_on = models.BooleanField(default=True)
    confirmed_at = models.DateTimeField(null=True, blank=True, help_text="A mail address gets nothing but a code before; null otherwise.")
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(user=None, slice__isnull=False) | Q(user__isnull=False, slice=None), name="channel_of_one"),
            models.UniqueConstraint(fields=["user", "name"], name="channel_once_per_user_and_name"),
            models.UniqueConstraint(fields=["slice", "name"], name="channel_once_per_slice_and_name"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"

    @property
    def needs_code(self) -> bool:
        return self.kind == ChannelKind.MAIL and self.confirmed_at is None

    def sealed_at(self, at: datetime) -> list[str]:
        """Returns the encrypted secrets that hold then, the newest first."""
        has_replaced = self.replaced_until_at is not None and at < self.replaced_until_at
        return [sealed for sealed in (self.sealed, self.replaced_sealed if has_replaced else "") if sealed]


@column_checks
class Delivery(models.Model):
    """Holds one message to one channel. Its id is the message's id, so a repetition after a crash is the same message."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    events = models.ManyToManyField(Event, related_name="+")
    is_test = models.BooleanField(default=False)
    is_digest = models.BooleanField(default=False)
    state = models.CharField(max_length=7, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    created_at = models.DateTimeField()
    due_at = models.DateTimeField()
    attempt_count = models.PositiveIntegerField(default=0)
    # The process that sends it now has this token, and no other may send it before that time.
    lease = models.UUIDField(null=True, blank=True)
    leased_until_at = models.DateTimeField(null=True, blank=True)
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=ERROR_MAX_CHARS, blank=True, help_text="Why the last attempt failed, as a sentence.")

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["due_at"], condition=Q(state=DeliveryState.WAITING), name="delivery_due"),
            models.Index(fields=["channel", "-created_at", "id"], name="delivery_of_channel"),
            models.Index(fields=["created_at"], name="delivery_age"),
        ]

    def __str__(self) -> str:
        return f"{self.pk} to {self.channel_id}: {self.state}"
