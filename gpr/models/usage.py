from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from slices.models import Project

GPU_S_MOST = 1e300


@column_checks
class ProjectUsage(models.Model):
    """Stores the decaying sum of the GPU-seconds that ended boxes of a project used, as of `summed_at`."""

    project = models.OneToOneField(Project, primary_key=True, on_delete=models.CASCADE, related_name="usage")
    gpu_s = models.FloatField(default=0)
    summed_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            # Excludes infinity and NaN, which compare above every number.
            models.CheckConstraint(condition=Q(gpu_s__gte=0, gpu_s__lte=GPU_S_MOST), name="usage_is_a_number"),
        ]

    def __str__(self) -> str:
        return f"{self.project_id} used {self.gpu_s:.0f} GPU-seconds"
