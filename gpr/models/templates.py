from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from inventory.models import Cluster
from slices.models import Slice


@column_checks
class GprTemplate(models.Model):
    """Stores fields for new requests of a slice, or, without one, of all slices: a template of the platform.

    A cluster's default precedes the default for all clusters.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63)
    slice = models.ForeignKey(
        Slice, null=True, blank=True, on_delete=models.PROTECT, related_name="templates", help_text="Null: the platform."
    )
    cluster = models.ForeignKey(
        Cluster, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Null: all clusters of the slice."
    )
    asked = models.JSONField(default=dict, help_text="Fields that it sets, by name.")
    job = models.JSONField(default=dict, blank=True, help_text="Fields of a job or a notebook that it sets, by name.")
    auto = models.BooleanField(default=False, help_text="While it is the default, requests for waiting GPU pods are filed from it.")
    is_default = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["slice__name", "name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["slice", "name"], name="template_name_once_per_slice"),
            models.UniqueConstraint(fields=["name"], condition=Q(slice=None), name="template_name_once_on_platform"),
            models.CheckConstraint(
                condition=Q(slice__isnull=False) | Q(cluster=None, is_default=False, auto=False), name="template_of_platform_is_for_all"
            ),
            models.UniqueConstraint(
                fields=["slice", "cluster"], condition=Q(is_default=True, cluster__isnull=False), name="template_one_default_per_cluster"
            ),
            models.UniqueConstraint(fields=["slice"], condition=Q(is_default=True, cluster=None), name="template_one_default_per_slice"),
        ]

    def __str__(self) -> str:
        return self.name
