from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from gpr.models.gprs import Gpr


@column_checks
class Promise(models.Model):
    """Stores the promise to a queued GPR, and its slot in the stored plan."""

    gpr = models.OneToOneField(Gpr, primary_key=True, on_delete=models.CASCADE, related_name="promise")
    made_at = models.DateTimeField()
    first_promised_start_at = models.DateTimeField()
    promised_start_at = models.DateTimeField()
    slot_pool = models.CharField(max_length=250)
    slot_start_at = models.DateTimeField()
    # Ids of nodes, or of orders of nodes.
    slot_nodes = models.JSONField(default=list)
    # The cause for which the slot is lost or at risk (planner.causes.Cause), and the id of its object.
    lost_cause = models.CharField(max_length=32, blank=True)
    lost_cause_id = models.CharField(max_length=63, blank=True)
    # 50 % and 90 % of similar requests start by then; null while too few have started to tell.
    p50_at = models.DateTimeField(null=True, blank=True)
    p90_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.gpr_id} by {self.promised_start_at:%Y-%m-%d %H:%M}"

    @property
    def risk(self) -> str:
        """Returns the cause that puts the slot at risk; "" when there is no risk or no slot."""
        return self.lost_cause if self.slot_nodes else ""


@column_checks
class PromiseMove(models.Model):
    """Records one change of a promised start, with its cause."""

    gpr = models.ForeignKey(Gpr, on_delete=models.CASCADE, related_name="promise_moves")
    at = models.DateTimeField()
    old_start_at = models.DateTimeField()
    new_start_at = models.DateTimeField()
    cause = models.CharField(max_length=32)
    cause_id = models.CharField(max_length=63, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.gpr_id} moved by {self.cause}"


@column_checks
class Forecast(models.Model):
    """Holds a forecast for a waiting request and its real start."""

    # Waits are seconds from `made_at`. A forecast is deleted when its request is withdrawn or edited before it starts.

    gpr = models.ForeignKey(Gpr, on_delete=models.CASCADE, related_name="forecasts")
    made_at = models.DateTimeField()
    length_s = models.PositiveBigIntegerField(help_text="Length of the whole box.")
    gpu_count = models.PositiveBigIntegerField()
    expected_wait_s = models.PositiveBigIntegerField(help_text="Expected wait at that time.")
    promised_wait_s = models.PositiveBigIntegerField()
    p50_s = models.PositiveBigIntegerField()
    p90_s = models.PositiveBigIntegerField()
    started_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["gpr"], condition=Q(started_at=None), name="gpr_has_one_open_forecast"),
        ]

    def __str__(self) -> str:
        return f"{self.gpr_id} within {self.p90_s} s"


@column_checks
class PromiseOutcome(models.Model):
    """Stores how one promise turned out, compared with the first promised time."""

    gpr = models.ForeignKey(Gpr, on_delete=models.CASCADE, related_name="outcomes")
    forecast = models.OneToOneField(
        Forecast, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="Null: it started at once or never."
    )
    made_at = models.DateTimeField()
    promised_start_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True, help_text="Null: it was withdrawn or changed when overdue.")
    settled_at = models.DateTimeField(db_index=True)
    margin_s = models.BigIntegerField(help_text="Whole seconds from the start to the promised start; negative: late.")
    wait_s = models.PositiveBigIntegerField(help_text="Whole seconds since the forecast, or else the promise.")
    length_s = models.PositiveBigIntegerField(help_text="Length of the whole box.")
    is_gang = models.BooleanField(help_text="It needs several nodes.")
    is_moved = models.BooleanField(help_text="The promise was moved (PromiseMove).")
    is_learned = models.BooleanField(help_text="The forecast was learned from past promises.")

    def __str__(self) -> str:
        return f"{self.gpr_id} by {self.promised_start_at:%Y-%m-%d %H:%M}, {self.margin_s} s before"


@column_checks
class Shadow(models.Model):
    """Stores the slots of a request in two simulated queues without overtaking; the planner derives slack from them."""

    # A row outlives the wait: it counts until both slots are over, and its work for some days. `patient`, `strict`: pool and nodes.

    gpr = models.OneToOneField(Gpr, primary_key=True, on_delete=models.CASCADE, related_name="shadow")
    made_at = models.DateTimeField(db_index=True)
    priority = models.PositiveIntegerField()
    gpu_s = models.PositiveBigIntegerField(help_text="GPU-seconds of its box.")
    gpus_per_node = models.PositiveIntegerField()
    patient = models.JSONField(default=dict)
    patient_starts_at = models.DateTimeField(null=True)
    patient_ends_at = models.DateTimeField(null=True)
    strict = models.JSONField(default=dict)
    strict_starts_at = models.DateTimeField(null=True)
    strict_ends_at = models.DateTimeField(null=True, db_index=True)

    def __str__(self) -> str:
        return f"{self.gpr_id} of {self.gpu_s} GPU-seconds"
