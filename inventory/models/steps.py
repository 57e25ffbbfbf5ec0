from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from inventory.models.clusters import Cluster
from inventory.models.reservations import Repair, Reservation
from protocol.agents.events import Outcome
from protocol.nodes.checks import Verdict

VERDICTS = [(verdict.value, verdict.value.title()) for verdict in Verdict]
OUTCOMES = [(outcome.value, outcome.value.title()) for outcome in Outcome]


@column_checks
class StepResult(models.Model):
    """Records a step of a reservation or of a repair."""

    reservation = models.ForeignKey(Reservation, null=True, blank=True, on_delete=models.CASCADE, related_name="steps")
    repair = models.ForeignKey(Repair, null=True, blank=True, on_delete=models.CASCADE, related_name="steps")
    step = models.CharField(max_length=63)
    attempt = models.PositiveIntegerField()
    outcome = models.CharField(max_length=11, choices=OUTCOMES)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    log = models.TextField(blank=True)
    evidence = models.JSONField(default=dict)
    blames_node = models.BooleanField(default=True, help_text="False: the node did not cause the failure.")

    class Meta:
        ordering: ClassVar[list[str]] = ["started_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["reservation", "step", "attempt"], name="step_attempt_once"),
            models.UniqueConstraint(fields=["repair", "step", "attempt"], name="repair_step_attempt_once"),
            models.CheckConstraint(condition=Q(reservation=None) ^ Q(repair=None), name="step_is_of_one"),
        ]

    def __str__(self) -> str:
        return f"{self.step} {self.outcome}"

    @property
    def skipped_why(self) -> str:
        """Says why a passed step measured nothing; else empty."""
        results = self.results.all()
        if self.outcome != Outcome.OK or not results or any(result.verdict != Verdict.SKIP for result in results):
            return ""
        return "; ".join(dict.fromkeys(result.text for result in results))


@column_checks
class CheckResult(models.Model):
    step = models.ForeignKey(StepResult, on_delete=models.CASCADE, related_name="results")
    what = models.CharField(max_length=63, help_text="Name of the limit.")
    gpu_uuid = models.CharField(max_length=63, blank=True, help_text="The vendor's UUID; the GPU may be unknown to the inventory.")
    value = models.FloatField(null=True)
    unit = models.CharField(max_length=63, blank=True)
    threshold = models.FloatField(null=True)
    is_least = models.BooleanField(default=False, help_text="The threshold is a minimum; otherwise a maximum.")
    verdict = models.CharField(max_length=4, choices=VERDICTS)
    text = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["step", "what", "gpu_uuid"], name="check_result_once_per_gpu"),
        ]

    def __str__(self) -> str:
        return f"{self.what} {self.verdict}"


@column_checks
class CheckPolicy(models.Model):
    """Overrides the agent's check limits. A shape's policy takes precedence."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="check_policies")
    shape = models.CharField(max_length=63, blank=True, help_text="Empty: all shapes.")
    limits = models.JSONField(default=dict, help_text="Thresholds by name of the limit.")
    images = models.JSONField(default=dict, help_text="Image by purpose.")
    skipped_steps = models.JSONField(default=list)
    storage_class = models.CharField(max_length=253, blank=True, help_text="Storage class of the storage check's volume.")
    rdma_subnet = models.CharField(max_length=19, blank=True, help_text="First half of the GIDs that RDMA ports must have.")
    runtime_class = models.CharField(max_length=253, blank=True, help_text="Runtime class of pods that check GPUs.")
    pull_secret = models.CharField(max_length=253, blank=True, help_text="Pull secret of the images, in egs-system.")
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["cluster__name", "shape"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["cluster", "shape"], name="check_policy_once"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return f"{self.cluster.name}, {self.shape}" if self.shape else self.cluster.name
