from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from gpr.models.gprs import Gpr


@column_checks
class Eviction(models.Model):
    """It is a decision to end boxes early, for a GPR or by an administrator (then without a beneficiary)."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    gpr = models.ForeignKey(
        Gpr, null=True, blank=True, on_delete=models.CASCADE, related_name="evictions", help_text="The GPR that gets the nodes; null: none."
    )
    made_at = models.DateTimeField(db_index=True)
    start_at = models.DateTimeField(null=True, blank=True, help_text="Start of the beneficiary with this eviction.")
    instead_at = models.DateTimeField(null=True, blank=True, help_text="Start of the beneficiary without it.")

    class Meta:
        ordering: ClassVar[list[str]] = ["-made_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(gpr=None, start_at=None, instead_at=None)
                | Q(gpr__isnull=False, start_at__isnull=False, instead_at__isnull=False),
                name="eviction_has_times_of_its_beneficiary",
            ),
        ]

    def __str__(self) -> str:
        return f"for {self.gpr_id or 'nobody'}"


class VictimKind(models.TextChoices):
    """Its values are those of planner.causes.EvictionKind, and `admin`."""

    RECLAIM = "reclaim", "It borrowed GPUs, and the tenant they are guaranteed to needs them"
    PRIORITY = "priority", "It is evictable, and a request of higher priority may evict it"
    DEFRAGMENT = "defrag", "An administrator moves it to other nodes, so that whole nodes come free"
    ADMIN = "admin", "An administrator evicts it"


class VictimOutcome(models.TextChoices):
    NOTICED = "NOTICED", "Has notice"
    EVICTED = "EVICTED", "Evicted"
    LEFT = "LEFT", "Ended by itself before"
    SPARED = "SPARED", "Not needed any more, and spared"
    SOONER = "SOONER", "Told again, to end sooner"


@column_checks
class EvictionVictim(models.Model):
    """It is a box that an eviction ends at `ends_at`, after notice to its owner."""

    eviction = models.ForeignKey(Eviction, on_delete=models.CASCADE, related_name="victims")
    gpr = models.ForeignKey(Gpr, on_delete=models.CASCADE, related_name="evicted_by")
    kind = models.CharField(max_length=8, choices=VictimKind.choices)
    priority = models.PositiveIntegerField(null=True, blank=True, help_text="Priority of the evicted GPR at that time; null: not recorded.")
    ends_at = models.DateTimeField()
    lost_gpu_s = models.PositiveBigIntegerField(help_text="GPU-seconds of work lost; for a booking, until the booking starts.")
    outcome = models.CharField(max_length=7, choices=VictimOutcome.choices, default=VictimOutcome.NOTICED)
    outcome_at = models.DateTimeField(null=True, blank=True)
    restart_at = models.DateTimeField(null=True, blank=True, help_text="Planned start of the remaining time; null: none or not known yet.")
    foreseen_at = models.DateTimeField(null=True, blank=True, help_text="Time of that estimate; null: none yet.")
    is_final = models.BooleanField(default=False, help_text="It is too late to withdraw the notice.")
    reviewed_at = models.DateTimeField(null=True, blank=True, help_text="Last review that kept a notice without need.")

    class Meta:
        ordering: ClassVar[list[str]] = ["ends_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["gpr"], condition=Q(outcome="NOTICED"), name="gpr_has_one_notice"),
        ]

    def __str__(self) -> str:
        return f"{self.gpr_id} by {self.ends_at:%Y-%m-%d %H:%M}"
