from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from gpr.models.gprs import Gpr
from slices.models import Slice


class RepeatRule(models.TextChoices):
    DAILY = "daily", "Every day"
    WEEKDAYS = "weekdays", "Monday to Friday"
    WEEKLY = "weekly", "Every week"


@column_checks
class BookingSeries(models.Model):
    """It is a repeated booking at one time of day in its time zone. Each occurrence is a GPR of its own."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63)
    slice = models.ForeignKey(Slice, on_delete=models.PROTECT, related_name="booking_series")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="booking_series")
    created_at = models.DateTimeField()
    asked = models.JSONField(help_text="Fields of each request except its time. Clusters are ids.")
    first_start_at = models.DateTimeField()
    rule = models.CharField(max_length=8, choices=RepeatRule.choices)
    zone = models.CharField(max_length=64, help_text="Time zone whose clock the series follows, e.g. Europe/Berlin.")
    until_at = models.DateTimeField(null=True, blank=True, help_text="Nothing starts after this.")
    count = models.PositiveIntegerField(null=True, blank=True, help_text="How many starts there are.")
    next_start_at = models.DateTimeField(null=True, blank=True, db_index=True, help_text="Next start to book; null: none is left.")
    canceled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(until_at=None) ^ Q(count=None), name="series_has_one_end"),
            models.CheckConstraint(condition=Q(canceled_at=None) | Q(next_start_at=None), name="series_canceled_books_no_more"),
        ]

    def __str__(self) -> str:
        return self.name


@column_checks
class BookingOccurrence(models.Model):
    """Records one start of a series: a GPR, or a refusal with the nearest times that would have fitted."""

    series = models.ForeignKey(BookingSeries, on_delete=models.CASCADE, related_name="occurrences")
    starts_at = models.DateTimeField()
    gpr = models.OneToOneField(Gpr, null=True, blank=True, on_delete=models.PROTECT, related_name="occurrence")
    refusal = models.CharField(max_length=500, blank=True)
    tried_at = models.DateTimeField(null=True, blank=True, help_text="Last attempt while refused.")
    nearest_before_at = models.DateTimeField(null=True, blank=True)
    nearest_after_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["starts_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["series", "starts_at"], name="occurrence_once"),
            models.CheckConstraint(condition=Q(gpr=None) ^ Q(refusal=""), name="occurrence_booked_or_refused"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["starts_at"], condition=Q(gpr=None), name="occurrence_refused"),
        ]

    def __str__(self) -> str:
        return f"{self.series_id} at {self.starts_at:%Y-%m-%d %H:%M}"
