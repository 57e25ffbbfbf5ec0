from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from core.column_checks import column_checks
from inventory.models.clusters import Cluster
from inventory.models.nodes import Node

SUPPLY_NODES_MAX, SUPPLY_GPUS_MAX = 1000, 64
SUPPLY_LEAD_MAX_S, SUPPLY_GAIN_MAX_S = 30 * 86_400, 90 * 86_400


class SupplyKind(models.TextChoices):
    NODE_POOL = "NODE_POOL", "A node pool that can grow"
    ATTACH = "ATTACH", "GPUs that can be attached"


@column_checks
class Supply(models.Model):
    """See docs/how-to/supplies.md."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="supplies")
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=9, choices=SupplyKind.choices)
    shape = models.CharField(max_length=63, help_text="Shape that its nodes will report; it may be new to the cluster.")
    gpus_per_node = models.PositiveIntegerField()
    gpu_memory_gib = models.PositiveIntegerField(help_text="Minimum memory of each GPU.")
    node_count = models.PositiveIntegerField(help_text="Number of nodes that it can provide in total.")
    lead_time_s = models.PositiveBigIntegerField(help_text="Time from the order to the node.")
    gain_s = models.PositiveBigIntegerField(help_text="Minimum gain in start time that justifies an order.")
    is_enabled = models.BooleanField(default=True, help_text="Further orders are allowed.")
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["cluster__name", "name", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint("cluster", Lower("name"), name="supply_name_once_per_cluster"),
            models.CheckConstraint(condition=Q(node_count__gte=1, node_count__lte=SUPPLY_NODES_MAX), name="supply_gives_nodes"),
            models.CheckConstraint(condition=Q(gpus_per_node__gte=1, gpus_per_node__lte=SUPPLY_GPUS_MAX), name="supply_gives_gpus"),
            models.CheckConstraint(condition=Q(gpu_memory_gib__gte=1), name="supply_gpus_have_memory"),
            models.CheckConstraint(condition=Q(lead_time_s__gte=1, lead_time_s__lte=SUPPLY_LEAD_MAX_S), name="supply_lead_time_in_range"),
            models.CheckConstraint(condition=Q(gain_s__lte=SUPPLY_GAIN_MAX_S), name="supply_gain_in_range"),
        ]

    def __str__(self) -> str:
        return self.name


class SupplyOrderState(models.TextChoices):
    ORDERED = "ORDERED", "Ordered"
    ARRIVED = "ARRIVED", "Arrived"
    CANCELED = "CANCELED", "Canceled"
    FAILED = "FAILED", "Failed"


@column_checks
class SupplyOrder(models.Model):
    """Plans use its id as the node's id until the node arrives."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    supply = models.ForeignKey(Supply, on_delete=models.PROTECT, related_name="orders")
    gpr = models.ForeignKey(
        "gpr.Gpr", on_delete=models.PROTECT, related_name="supply_orders", help_text="GPR that the node was ordered for."
    )
    ordered_at = models.DateTimeField()
    expected_at = models.DateTimeField(help_text="Expected arrival: the lead time after the order, or later.")
    state = models.CharField(max_length=8, choices=SupplyOrderState.choices, default=SupplyOrderState.ORDERED)
    node = models.ForeignKey(Node, null=True, blank=True, on_delete=models.PROTECT, related_name="supply_orders")
    ended_at = models.DateTimeField(null=True, blank=True, help_text="Time of arrival, cancellation or failure.")
    ended_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Null: EGS itself."
    )
    why = models.CharField(max_length=200, blank=True)
    refused_to = models.ManyToManyField(
        "gpr.Gpr",
        related_name="+",
        blank=True,
        help_text="GPRs that counted on it when an administrator canceled it. EGS does not order it for them again.",
    )

    class Meta:
        ordering: ClassVar[list[str]] = ["-ordered_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(ordered_at__lt=F("expected_at")), name="supply_order_takes_time"),
            models.CheckConstraint(
                condition=Q(state="ORDERED", ended_at=None) | (~Q(state="ORDERED") & Q(ended_at__isnull=False)),
                name="supply_order_ended_at_says_ended",
            ),
            models.CheckConstraint(
                condition=Q(state="ARRIVED", node__isnull=False) | (~Q(state="ARRIVED") & Q(node=None)),
                name="supply_order_arrived_has_a_node",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["expected_at"], condition=Q(state="ORDERED"), name="supply_order_open"),
        ]

    def __str__(self) -> str:
        return f"{self.supply_id} by {self.expected_at:%Y-%m-%d %H:%M}"

    def is_late(self, now: datetime) -> bool:
        return self.state == SupplyOrderState.ORDERED and now >= self.expected_at

    @property
    def order_by_at(self) -> datetime:
        """Returns the latest time to ask for the node."""
        return max(self.ordered_at, self.expected_at - timedelta(seconds=self.supply.lead_time_s))
