from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import sound_values
from gpr.models.gprs import Gpr
from inventory.models import Cluster


@sound_values
class Claim(models.Model):
    """An object of kind GPUProvisioningRequest in a cluster, and the one GPR that was filed for it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    uid = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    requester = models.CharField(max_length=253, blank=True, help_text="Who made the object, by the word of the cluster; empty: not known.")
    is_auto = models.BooleanField(default=False, help_text="The agent made the object, for pods that wait.")
    gpr = models.OneToOneField(Gpr, on_delete=models.PROTECT, related_name="claim")
    generation = models.PositiveBigIntegerField()  # the last one that was answered
    # The ClusterRequestSpec of the last generation that was accepted. The GPR may differ, since people can change it here: a later
    # generation changes only the fields that differ from `asked`.
    asked = models.JSONField()
    reason = models.CharField(max_length=63, blank=True, help_text="Why the last generation was refused, as a code; empty: it was taken.")
    message = models.TextField(blank=True, help_text="The same as a sentence.")
    is_told = models.BooleanField(default=True, help_text="Its agent is told how it stands; not for long after its end.")

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["cluster", "uid"], name="claim_once"),
            models.CheckConstraint(condition=Q(reason="", message="") | ~Q(reason=""), name="claim_refused_with_a_reason"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["cluster"], condition=Q(is_told=True), name="claim_told"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def sentence(self) -> str:
        """Names the object and who made it; reads `cluster`."""
        by = f", made by {self.requester}" if self.requester else ""
        for_pods = " for pods that wait" if self.is_auto else ""
        return f"object {self} of cluster {self.cluster.name}{for_pods}{by}"
