from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from core.words import HOUR_S
from inventory.models import Cluster
from slices.models import Slice

NAME_MAX_CHARS, UID_MAX_CHARS, TEXT_MAX_CHARS = 256, 256, 300


class WorkloadState(models.TextChoices):
    RUNNING = "RUNNING", "Running"  # some of its pods hold GPUs
    WAITING = "WAITING", "Waiting"  # all of them wait
    ENDED = "ENDED", "Ended"  # none is left


@column_checks
class Workload(models.Model):
    """It is the owner of pods: a Job, a Deployment, a PyTorchJob and so on, or a pod alone.

    Everybody may write any owner into a pod, so an owner counts within its namespace and workspace alone.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="workloads")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    namespace = models.CharField(max_length=63)
    uid = models.CharField(max_length=UID_MAX_CHARS)
    api = models.CharField(max_length=NAME_MAX_CHARS)
    kind = models.CharField(max_length=NAME_MAX_CHARS)
    name = models.CharField(max_length=NAME_MAX_CHARS)
    created_at = models.DateTimeField(help_text="When its first known pod was made.")
    ended_at = models.DateTimeField(null=True, blank=True)

    gprs = models.ManyToManyField("gpr.Gpr", related_name="workloads", help_text="Requests that carry its pods, or did.")
    state = models.CharField(max_length=7, choices=WorkloadState.choices, default=WorkloadState.WAITING)
    model = models.CharField(max_length=NAME_MAX_CHARS, blank=True, help_text="The model that it trains or serves; empty: not known.")
    framework = models.CharField(max_length=30, blank=True)
    config = models.JSONField(default=dict, help_text="Image, arguments, requests and parallelism of its pods.")
    pods_running = models.PositiveIntegerField(default=0)
    pods_waiting = models.PositiveIntegerField(default=0)
    gpus_held = models.PositiveIntegerField(default=0, help_text="By pods that run.")
    gpus_asked = models.PositiveIntegerField(default=0, help_text="By pods that wait.")

    # The work of its GPUs at `measured_at`, and since EGS knows it.
    measured_at = models.DateTimeField(null=True, blank=True)
    use_percent = models.PositiveSmallIntegerField(null=True, blank=True, help_text="The mean of its GPUs.")
    temperature_c = models.SmallIntegerField(null=True, blank=True, help_text="Of its hottest GPU.")
    power_w = models.PositiveIntegerField(null=True, blank=True, help_text="Of all its GPUs.")
    held_gpu_s = models.FloatField(default=0.0, help_text="GPU-seconds in which readings came.")
    used_gpu_s = models.FloatField(default=0.0, help_text="GPU-seconds, each weighed by its use.")
    behind = models.JSONField(default=dict, help_text="Ids of GPUs that do less than their peers, and since when.")
    straggler_count = models.PositiveIntegerField(default=0)

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["slice", "cluster", "namespace", "uid"], name="workload_once"),
            models.CheckConstraint(
                condition=Q(state=WorkloadState.ENDED, ended_at__isnull=False) | (~Q(state=WorkloadState.ENDED) & Q(ended_at=None)),
                name="workload_has_its_end",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["slice", "-created_at", "id"], name="workload_of_slice"),
            models.Index(fields=["-created_at", "id"], name="workload_newest"),
            models.Index(fields=["ended_at"], name="workload_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def efficiency_percent(self) -> int | None:
        return round(100 * self.used_gpu_s / self.held_gpu_s) if self.held_gpu_s else None

    @property
    def held_hours(self) -> float:
        return self.held_gpu_s / HOUR_S

    @property
    def used_hours(self) -> float:
        return self.used_gpu_s / HOUR_S

    @property
    def wasted_hours(self) -> float:
        return self.held_hours - self.used_hours


@column_checks
class Pod(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="pods")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    uid = models.CharField(max_length=63, help_text="By the API server. A pod of the same name that is made anew has another one.")
    name = models.CharField(max_length=253)
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True)
    gone_at = models.DateTimeField(null=True, blank=True, help_text="When the agent found that it had ended.")

    phase = models.CharField(max_length=63)
    hold = models.CharField(max_length=63, blank=True, help_text="What keeps it from running: gate, scheduler, image or container.")
    why = models.CharField(max_length=TEXT_MAX_CHARS, blank=True, help_text="The hold, as a sentence.")
    gpr = models.ForeignKey("gpr.Gpr", null=True, blank=True, on_delete=models.SET_NULL, related_name="pods")
    node = models.CharField(max_length=253, blank=True)
    gpu_count = models.PositiveIntegerField(default=0)
    gpus = models.JSONField(default=list, help_text="Ids of its GPUs, as far as they are known.")
    requests = models.JSONField(default=dict)
    image = models.CharField(max_length=TEXT_MAX_CHARS, blank=True)
    role = models.CharField(max_length=NAME_MAX_CHARS, blank=True)
    rank = models.PositiveIntegerField(null=True, blank=True)
    restarts = models.PositiveIntegerField(default=0)

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [models.UniqueConstraint(fields=["cluster", "uid"], name="pod_once")]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["-created_at", "id"], name="pod_newest"),
            models.Index(fields=["cluster"], condition=Q(gone_at=None), name="pod_there"),
            models.Index(fields=["gone_at"], name="pod_gone"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def place(self) -> str:
        """Returns the pod's place in words, such as `worker 3` or `rank 3`."""
        return f"{self.role or 'rank'} {self.rank}" if self.rank is not None else self.role
