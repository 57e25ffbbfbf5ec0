from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from gpr.models.gprs import Gpr
from inventory.models import Cluster


@column_checks
class ClusterRequestRecord(models.Model):
    """Records an object of kind GPUProvisioningRequest or GPUJob in a cluster, and the one GPR that was filed for it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    uid = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    requester = models.CharField(max_length=253, blank=True, help_text="Kubernetes user who created the object; empty: unknown.")
    is_auto = models.BooleanField(default=False, help_text="The agent created the object for waiting pods.")
    gpr = models.OneToOneField(Gpr, on_delete=models.PROTECT, related_name="cluster_request")
    generation = models.PositiveBigIntegerField()  # the last one that was answered
    # The ClusterRequestSpec of the last generation that was accepted. The GPR may differ, since people can change it here: a later
    # generation changes only the fields that differ from `asked`.
    asked = models.JSONField()
    reason = models.CharField(max_length=63, blank=True, help_text="Code of the last generation's refusal; empty: accepted.")
    message = models.TextField(blank=True, help_text="The refusal as a sentence.")
    is_told = models.BooleanField(default=True, help_text="The agent receives its status. False some time after the end.")

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["cluster", "uid"], name="cluster_request_once"),
            models.CheckConstraint(condition=Q(reason="", message="") | ~Q(reason=""), name="cluster_request_refused_with_a_reason"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["cluster"], condition=Q(is_told=True), name="cluster_request_told"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def sentence(self) -> str:
        """Names the object and who made it; reads `cluster`."""
        by = f", made by {self.requester}" if self.requester else ""
        for_pods = " for pods that wait" if self.is_auto else ""
        return f"object {self} of cluster {self.cluster.name}{for_pods}{by}"
