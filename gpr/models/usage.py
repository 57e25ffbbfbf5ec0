from __future__ import annotations

import uuid
from typing import ClassVar, Final

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from core.column_checks import column_checks
from gpr.models.gprs import Gpr
from inventory.models import Cluster
from slices.models import Project, Slice

GPU_S_MOST = 1e300
NO_WORKLOAD: Final = uuid.UUID(int=0)
WORKLOAD_NAME_MAX_CHARS: Final = 300


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


class UsageDay(models.Model):
    """Holds the GPU time of one GPR on one day, in UTC, that one workload had, or none. Budgets, showback and the league count these rows.

    Held: from a node's reservation to its release. Measured: readings of an open box tell what the GPU did; used: kernels ran in it.
    """

    gpr = models.ForeignKey(Gpr, on_delete=models.PROTECT, related_name="usage_days")
    slice = models.ForeignKey(Slice, on_delete=models.PROTECT, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    shape = models.CharField(max_length=63)
    day = models.DateField()
    workload = models.UUIDField(default=NO_WORKLOAD, help_text="Its time is a part of what the box held.")
    workload_name = models.CharField(max_length=WORKLOAD_NAME_MAX_CHARS, blank=True)
    held_gpu_ms = models.PositiveBigIntegerField(default=0)
    measured_gpu_ms = models.PositiveBigIntegerField(default=0)
    used_gpu_ms = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["gpr", "day", "cluster", "shape", "workload"], name="usage_day_of_workload_once"),
            models.CheckConstraint(condition=Q(used_gpu_ms__lte=F("measured_gpu_ms")), name="usage_day_used_is_measured"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["day", "slice"], name="usage_by_day"),
            models.Index(fields=["day"], condition=~Q(workload=NO_WORKLOAD), name="usage_of_workloads"),
        ]

    def __str__(self) -> str:
        return f"{self.gpr_id} on {self.day}"


@column_checks
class UsageProgress(models.Model):
    """Holds in one row the time up to which the rows of UsageDay are counted. A process locks the row while it counts."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    held_until_at = models.DateTimeField(null=True, blank=True, help_text="Days before this one are final.")
    measured_until_at = models.DateTimeField(null=True, blank=True, help_text="Readings before this time are counted.")

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [models.CheckConstraint(condition=Q(id=1), name="usage_progress_is_one")]

    def __str__(self) -> str:
        return f"held until {self.held_until_at}, measured until {self.measured_until_at}"


@column_checks
class ShapePrice(models.Model):
    """Sets the price of a GPU of this shape from a day on, until the next price of the shape."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    shape = models.CharField(max_length=63)
    from_day = models.DateField(help_text="In UTC.")
    gpu_hour_price = models.DecimalField(max_digits=12, decimal_places=4)
    set_at = models.DateTimeField()
    set_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering: ClassVar[list[str]] = ["shape", "-from_day"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["shape", "from_day"], name="price_once_per_shape_and_day"),
            models.CheckConstraint(condition=Q(gpu_hour_price__gte=0), name="price_is_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.shape} from {self.from_day}"


@column_checks
class IdleBox(models.Model):
    """Records an active box whose GPUs all do nothing; the row goes when one of them works again."""

    gpr = models.OneToOneField(Gpr, primary_key=True, on_delete=models.CASCADE, related_name="idle_box")
    run = models.PositiveIntegerField(help_text="Number of the GPR's start.")
    idle_since_at = models.DateTimeField()
    kept_at = models.DateTimeField(null=True, blank=True, help_text="Somebody keeps the box: its idle time counts from then.")
    warned_count = models.PositiveSmallIntegerField(default=0, help_text="1: at half of the time-out; 2: shortly before its end, too.")

    def __str__(self) -> str:
        return f"{self.gpr_id} since {self.idle_since_at}"
