from __future__ import annotations

import uuid
from typing import Any, ClassVar, Final

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from core.column_checks import column_checks
from slices.models.tenants import Project, Slice


class TenantOwned:
    """Belongs to a project or to a workspace; a constraint of the model requires one of the two."""

    project: Any
    slice: Any

    @property
    def owner(self) -> Project | Slice:
        owner: Project | Slice = self.project if self.slice is None else self.slice
        return owner

    @property
    def tenant(self) -> Project:
        return self.owner if isinstance(self.owner, Project) else self.owner.project


OWNER_ID: Final = Coalesce("slice_id", "project_id", output_field=models.UUIDField())  # of a row that is TenantOwned


@column_checks
class Quota(TenantOwned, models.Model):
    """See docs/how-to/quotas.md."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="quotas")
    slice = models.ForeignKey(Slice, null=True, blank=True, on_delete=models.CASCADE, related_name="quotas")
    shape = models.CharField(max_length=63)
    guaranteed_gpus = models.PositiveIntegerField(default=0, help_text="GPUs that the owner is entitled to. GPUs beyond are borrowed.")
    most_gpus = models.PositiveIntegerField(null=True, blank=True, help_text="Maximum number of GPUs held; null: no limit.")
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["shape", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(project__isnull=False, slice=None) | Q(project=None, slice__isnull=False), name="quota_of_project_or_slice"
            ),
            models.UniqueConstraint(fields=["project", "shape"], name="quota_once_per_project_and_shape"),
            models.UniqueConstraint(fields=["slice", "shape"], name="quota_once_per_slice_and_shape"),
            models.CheckConstraint(
                condition=Q(most_gpus=None) | Q(guaranteed_gpus__lte=F("most_gpus")), name="quota_guaranteed_within_most"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.owner.name} {self.shape}"


class Period(models.TextChoices):
    WEEK = "week", "Week"  # from Monday, in UTC
    MONTH = "month", "Month"
    RANGE = "range", "Range of dates"


class AtLimit(models.TextChoices):
    APPROVE = "approve", "Approval"  # a request beyond it waits for an administrator
    REFUSE = "refuse", "Refusal"


@column_checks
class Budget(TenantOwned, models.Model):
    """Limits GPU-hours for each period. See docs/how-to/quotas.md."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets")
    slice = models.ForeignKey(Slice, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets")
    shape = models.CharField(max_length=63, blank=True, help_text="Empty: GPUs of all shapes.")
    gpu_hours = models.PositiveIntegerField(help_text="Maximum in each period.")
    period = models.CharField(max_length=5, choices=Period.choices)
    starts_at = models.DateTimeField(null=True, blank=True, help_text="Of a range; null: the period repeats.")
    ends_at = models.DateTimeField(null=True, blank=True)
    at_limit = models.CharField(max_length=7, choices=AtLimit.choices, default=AtLimit.APPROVE)
    created_at = models.DateTimeField()
    warned_at = models.DateTimeField(null=True, blank=True, help_text="Start of the last period whose warning was sent.")
    spent_at = models.DateTimeField(null=True, blank=True, help_text="Start of the last period whose end of hours was told.")

    class Meta:
        ordering: ClassVar[list[str]] = ["shape", "period", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(project__isnull=False, slice=None) | Q(project=None, slice__isnull=False), name="budget_of_project_or_slice"
            ),
            models.CheckConstraint(condition=Q(gpu_hours__gte=1), name="budget_gives_something"),
            models.CheckConstraint(
                condition=Q(period=Period.RANGE, starts_at__lt=F("ends_at")) | (~Q(period=Period.RANGE) & Q(starts_at=None, ends_at=None)),
                name="budget_range_has_its_dates",
            ),
            models.UniqueConstraint(
                fields=["project", "shape", "period"], condition=Q(starts_at=None), name="budget_once_per_project_shape_and_period"
            ),
            models.UniqueConstraint(
                fields=["slice", "shape", "period"], condition=Q(starts_at=None), name="budget_once_per_slice_shape_and_period"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.owner.name} {self.shape or 'all GPUs'} {self.period}"
