from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from core.column_checks import column_checks


@column_checks
class ManifestObject(models.Model):
    """Describes an object that manifests keep: its labels, and who wrote which field."""

    kind = models.CharField(max_length=31)
    key = models.CharField(max_length=1000, help_text="The values that identify it in manifests, as JSON.")
    object_id = models.CharField(max_length=63, help_text="Another id: it was deleted and made again by others.")
    labels: models.JSONField[Any, Any] = models.JSONField(default=dict)
    owners: models.JSONField[Any, Any] = models.JSONField(default=dict, help_text="Field -> manager that wrote it last.")

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["kind", "key"], name="manifest_object_once"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"
