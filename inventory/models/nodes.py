from __future__ import annotations

import uuid
from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from core.column_checks import column_checks
from inventory.models.clusters import Cluster

NODE_GPUS_MAX = 10_000


class CordonCause(models.TextChoices):
    """Names the cause for which a node was set aside."""

    PERSON = "person", "By an administrator"
    CHECK = "check", "A check failed"
    LOST = "lost", "It failed in a running box"
    FAULT = "fault", "Its GPUs reported a fault"


@column_checks
class Node(models.Model):
    """Its UID identifies it: a new node with an old name is another node."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=253)
    uid = models.CharField(max_length=63)
    shape = models.CharField(max_length=63, help_text="GPU model and memory, e.g. H100-80GB.")
    node_type = models.CharField(max_length=63, blank=True)
    gpu_count = models.PositiveIntegerField()
    gpu_memory_gib = models.PositiveIntegerField()
    rdma = models.BooleanField(default=False)
    zone = models.CharField(max_length=63, blank=True)
    rack = models.CharField(max_length=63, blank=True)
    nvlink_domain = models.CharField(max_length=63, blank=True, help_text="Nodes with equal values share one NVLink fabric.")
    # Fencing token: rises with each reservation of the node. The database refuses to lower it.
    epoch = models.BigIntegerField(default=0)
    is_ready = models.BooleanField(default=True, help_text="Kubernetes reports the node as ready.")
    broken_at = models.DateTimeField(null=True, blank=True, help_text="Start of a failure that the cluster reports.")
    sick_gpus_at = models.DateTimeField(null=True, blank=True, help_text="Start of the time with unhealthy GPUs.")
    cordoned_at = models.DateTimeField(null=True, blank=True, help_text="Cordoned by an administrator or after a failed check.")
    cordon_reason = models.CharField(max_length=200, blank=True)
    cordon_cause = models.CharField(max_length=6, choices=CordonCause.choices, blank=True, help_text="Empty: not recorded.")
    cordon_code = models.CharField(max_length=63, blank=True, help_text="The step that failed, or the metric that showed the fault.")
    faulty_at = models.DateTimeField(null=True, blank=True, help_text="Start of a fault of its hardware; boxes on it get another node.")
    conditions = models.JSONField(default=list, blank=True, help_text="Bad conditions of the node in its cluster.")
    seen_at = models.DateTimeField()
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["name", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["cluster", "uid"], name="node_uid_once_per_cluster"),
            models.UniqueConstraint(fields=["cluster", "name"], condition=Q(gone_at=None), name="node_name_once_per_cluster"),
            models.CheckConstraint(condition=Q(gpu_count__lte=NODE_GPUS_MAX), name="node_gpu_count_in_range"),
        ]

    def __str__(self) -> str:
        return self.name


@column_checks
class MaintenanceWindow(models.Model):
    """Closes a node, or the whole cluster if no node is named, over `[starts_at, ends_at)`."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="maintenance")
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.PROTECT, related_name="maintenance")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    canceled_at = models.DateTimeField(null=True, blank=True, help_text="Time of cancellation; from then on it closes no nodes.")

    class Meta:
        ordering: ClassVar[list[str]] = ["starts_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(starts_at__lt=F("ends_at")), name="maintenance_starts_before_it_ends"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["ends_at"], condition=Q(canceled_at=None), name="maintenance_standing"),
        ]

    def __str__(self) -> str:
        return f"{self.place} from {self.starts_at:%Y-%m-%d %H:%M}"

    @property
    def place(self) -> str:
        return f"Node {self.node.name}" if self.node is not None else f"Cluster {self.cluster.name}"

    def state(self, now: datetime) -> MaintenanceState:
        if self.canceled_at is not None:
            return MaintenanceState.CANCELED
        if now >= self.ends_at:
            return MaintenanceState.OVER
        return MaintenanceState.RUNNING if now >= self.starts_at else MaintenanceState.PLANNED

    def is_ahead(self, now: datetime) -> bool:
        return self.canceled_at is None and now < self.ends_at


class MaintenanceState(models.TextChoices):
    PLANNED = "PLANNED", "Planned"
    RUNNING = "RUNNING", "In progress"
    OVER = "OVER", "Over"
    CANCELED = "CANCELED", "Canceled"


@column_checks
class Gpu(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="gpus")
    # One row per node it has been in, so that no agent can take over a GPU by reporting its UUID.
    uuid = models.CharField(
        max_length=63, db_index=True, help_text="Id by which boxes hold the GPU: the vendor's UUID where the cluster reports it."
    )
    hardware_uuid = models.CharField(
        max_length=63, blank=True, db_index=True, help_text="UUID that a check read from the driver; empty: not read yet."
    )
    index = models.PositiveIntegerField()
    model = models.CharField(max_length=63)
    memory_gib = models.PositiveIntegerField()
    is_healthy = models.BooleanField(default=True)
    gone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["node__name", "index", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["node", "uuid"], name="gpu_once_per_node"),
        ]

    def __str__(self) -> str:
        return self.uuid
