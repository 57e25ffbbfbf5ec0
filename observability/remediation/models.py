from __future__ import annotations

import uuid
from typing import ClassVar, Final

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from inventory.models import Cluster, CordonCause, Gpu, Node
from observability.remediation.faults import REPAIRS, Action
from observability.xid_counts import XID_COUNTS_MAX_CHARS

WHY_MAX_CHARS: Final = 200
TRIES_MAX: Final = 10
TRIES, RETURNS = 2, 2


class Mode(models.TextChoices):
    AUTO = "auto", "EGS does it by itself"
    ASK = "ask", "EGS asks an administrator"
    NEVER = "never", "EGS never does it"


class CaseState(models.TextChoices):
    OPEN = "open", "Waits until it can go on"
    ASKING = "asking", "Waits for an administrator's approval"
    ACTING = "acting", "Is being repaired"
    PROVING = "proving", "Is being checked"
    ESCALATED = "escalated", "Needs a person"
    KEPT = "kept", "Kept aside by an administrator"
    RETURNED = "returned", "In use again"
    GONE = "gone", "Left its cluster"


CLOSED: Final = (CaseState.RETURNED, CaseState.GONE)
IS_CLOSED: Final = Q(state__in=CLOSED)
ACTIONS: Final = [(action.value, action.value) for action in Action]
REPAIR_ACTIONS: Final = [(action.value, action.value) for action in REPAIRS]


@column_checks
class RemediationPolicy(models.Model):
    """Holds the actions that EGS may take on nodes of a cluster that are set aside. A cluster without one has the defaults."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="remediation_policy")
    watches_faults = models.BooleanField(default=True, help_text="A fault that GPUs report sets their node aside.")
    check_node = models.CharField(max_length=5, choices=Mode.choices, default=Mode.AUTO, help_text="Check a node that looks well again.")
    restart_driver = models.CharField(max_length=5, choices=Mode.choices, default=Mode.ASK, help_text="Restart pods of the GPU driver.")
    reset_gpus = models.CharField(max_length=5, choices=Mode.choices, default=Mode.ASK, help_text="Reset the GPUs of a node.")
    reboot_node = models.CharField(max_length=5, choices=Mode.choices, default=Mode.ASK, help_text="Reboot a node.")
    tries_max = models.PositiveSmallIntegerField(default=TRIES, help_text="After so many failed repairs a person is asked.")
    returns_max = models.PositiveSmallIntegerField(
        default=RETURNS, help_text="A node that came back so often within a week, and is set aside again, is left to a person."
    )
    ignored_xids = models.JSONField(default=list, help_text="Xids that set no node aside.")
    limits = models.JSONField(default=dict, help_text="Increase of a count that is a fault, by metric; 0: never.")

    class Meta:
        ordering: ClassVar[list[str]] = ["cluster__name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(tries_max__range=(1, TRIES_MAX), returns_max__range=(1, TRIES_MAX)), name="remediation_tries_end"
            )
        ]

    def __str__(self) -> str:
        return f"remediation in {self.cluster_id}"

    @property
    def name(self) -> str:
        return self.cluster.name

    def mode_of(self, action: str) -> Mode:
        return Mode.NEVER if action == Action.SUPPORT else Mode(getattr(self, action))


@column_checks
class RemediationCase(models.Model):
    """Follows a node's way from being set aside to its return."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="cases")
    opened_at = models.DateTimeField()
    cause = models.CharField(max_length=6, choices=CordonCause.choices)
    code = models.CharField(max_length=63, blank=True, help_text="The Xid, metric or step that showed it.")
    why = models.CharField(max_length=WHY_MAX_CHARS)
    evidence = models.JSONField(default=list, help_text="Faults of its GPUs, the first one first.")
    state = models.CharField(max_length=9, choices=CaseState.choices)
    state_why = models.CharField(max_length=WHY_MAX_CHARS, blank=True, help_text="What it waits for, or why it needs a person.")
    action = models.CharField(max_length=15, choices=ACTIONS, help_text="What is done next.")
    approved_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    tries_since_at = models.DateTimeField(help_text="Failed repairs count from here on.")
    closed_at = models.DateTimeField(null=True, blank=True)
    closed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Null: EGS itself."
    )

    class Meta:
        ordering: ClassVar[list[str]] = ["-opened_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["node"], condition=Q(closed_at=None), name="one_open_case_of_a_node"),
            models.CheckConstraint(
                condition=Q(closed_at=None) & ~IS_CLOSED | Q(closed_at__isnull=False) & IS_CLOSED, name="case_closed_at_says_closed"
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["opened_at", "id"], name="case_by_time")]

    def __str__(self) -> str:
        return f"case of {self.node_id}"

    @property
    def name(self) -> str:
        return self.node.name


class FaultCount(models.Model):
    """Holds the counts of a GPU at a time. A row is kept when a count changes."""

    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, related_name="fault_counts")
    at = models.DateTimeField()
    is_newest = models.BooleanField(default=True)
    xid = models.IntegerField(default=0)
    xid_counts = models.CharField(max_length=XID_COUNTS_MAX_CHARS, blank=True, default="")
    ecc_corrected = models.IntegerField(default=0)
    ecc_uncorrected = models.IntegerField(default=0)
    rows_remapped = models.IntegerField(default=0)
    rows_failed = models.IntegerField(default=0)
    pcie_replays = models.IntegerField(default=0)
    nvlink_errors = models.IntegerField(default=0)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["gpu"], condition=Q(is_newest=True), name="one_newest_fault_count"),
        ]
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["gpu", "at"], name="fault_count_by_time")]

    def __str__(self) -> str:
        return f"counts of {self.gpu_id} at {self.at:%Y-%m-%d %H:%M:%S}"
