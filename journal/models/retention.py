from __future__ import annotations

from typing import ClassVar

from django.db import models

from core.column_checks import column_checks


@column_checks
class EventRetention(models.Model):
    """The table has one row at most. The database lets nobody delete Events that are not older."""

    singleton = models.BooleanField(primary_key=True, default=True)
    deleted_before_at = models.DateTimeField(help_text="Events from before are deleted, or may be.")

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=models.Q(singleton=True), name="event_retention_is_one"),
        ]

    def __str__(self) -> str:
        return f"events before {self.deleted_before_at} are deleted"
