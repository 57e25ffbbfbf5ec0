from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from core.column_checks import column_checks
from inventory.models.clusters import Cluster
from inventory.models.nodes import Gpu, Node
from protocol.assignments import Desired, Phase


class ReservationState(models.TextChoices):
    PLANNED = "PLANNED", "Planned"
    HELD = "HELD", "Held"
    RELEASED = "RELEASED", "Released"


# The order of phases; an observation never moves a reservation or repair back.
_PROGRESS = {
    phase: rank
    for rank, phase in enumerate([Phase.PENDING, Phase.ENTERING, Phase.ENTERED, Phase.ACTIVE, Phase.FAILED, Phase.EXITING, Phase.RELEASED])
}
# The database stores the protocol's values as the agent reports them.
PHASES = [(phase.value, phase.value.title()) for phase in Phase]
DESIRED = [(desired.value, desired.value.title()) for desired in Desired]


@column_checks
class Reservation(models.Model):
    """Gives one node to one GPR over `[starts_at, ends_at)`.

    `ends_at` is when the GPUs should be free again, exit included; `not_after_at` is the end of the GPR's time.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    gpr = models.ForeignKey("gpr.Gpr", on_delete=models.PROTECT, related_name="reservations")
    slice = models.ForeignKey("slices.Slice", on_delete=models.PROTECT, related_name="+")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="reservations")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="reservations")
    epoch = models.BigIntegerField()
    state = models.CharField(max_length=8, choices=ReservationState.choices)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    # Sent to the agent.
    desired = models.CharField(max_length=7, choices=DESIRED, default=Desired.PRESENT)
    run = models.PositiveIntegerField(default=1, help_text="Number of the GPR's start, from 1.")
    gang_count = models.PositiveIntegerField()
    namespaces = models.JSONField(default=list)
    entry_steps = models.JSONField(default=list)
    exit_steps = models.JSONField(default=list)
    enter_by_at = models.DateTimeField()
    duration_s = models.PositiveBigIntegerField()
    not_after_at = models.DateTimeField(null=True, blank=True)
    # Reported by the agent.
    phase = models.CharField(max_length=8, choices=PHASES, default=Phase.PENDING)
    active_at = models.DateTimeField(null=True, blank=True)
    exit_began_at = models.DateTimeField(null=True, blank=True)
    failure = models.CharField(max_length=200, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)
    # A spare node replaces one that fails while its box runs (gpr/replacement/services.py).
    replaces = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="spares", help_text="Reservation that this spare replaces."
    )
    joined_at = models.DateTimeField(null=True, blank=True, help_text="Time when the spare became part of the box.")
    failing_at = models.DateTimeField(null=True, blank=True, help_text="Start of the failure that requires a replacement.")
    failing_why = models.CharField(max_length=200, blank=True)
    replacement_asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Null: EGS itself."
    )
    spare_sought_at = models.DateTimeField(null=True, blank=True, help_text="Last search that found no spare.")
    spare_refusal = models.CharField(max_length=200, blank=True, help_text="Why that search found no spare.")

    class Meta:
        ordering: ClassVar[list[str]] = ["starts_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(starts_at__lt=F("ends_at")), name="reservation_starts_before_it_ends"),
            models.UniqueConstraint(fields=["node", "epoch"], name="reservation_epoch_once_per_node"),
            models.CheckConstraint(
                condition=Q(state=ReservationState.RELEASED, released_at__isnull=False)
                | (~Q(state=ReservationState.RELEASED) & Q(released_at=None)),
                name="reservation_released_at_says_released",
            ),
            models.UniqueConstraint(
                fields=["replaces"],
                condition=Q(state=ReservationState.HELD, desired=Desired.PRESENT, joined_at=None),
                name="one_spare_on_its_way",
            ),
            models.UniqueConstraint(fields=["replaces"], condition=Q(joined_at__isnull=False), name="replaced_once"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["cluster"], condition=Q(state=ReservationState.HELD), name="reservation_held"),
            models.Index(fields=["cluster"], condition=~Q(phase=Phase.RELEASED), name="reservation_told"),
            models.Index(fields=["node", "starts_at"], name="reservation_schedule"),
            models.Index(fields=["starts_at", "node", "epoch"], name="reservation_by_start"),
        ]

    def __str__(self) -> str:
        return f"{self.node_id} for {self.gpr_id}"

    @property
    def is_coming(self) -> bool:
        """Tell whether this spare has not joined its box yet."""
        is_wanted = self.state == ReservationState.HELD and self.desired == Desired.PRESENT
        return self.replaces_id is not None and self.joined_at is None and is_wanted

    @property
    def is_given_up(self) -> bool:
        """Tell whether it leaves its box before a spare has joined."""
        return self.failing_at is not None and self.desired == Desired.ABSENT


@column_checks
class ReservedGpu(models.Model):
    """Repeats its reservation's window and state for database constraints."""

    reservation = models.ForeignKey(Reservation, on_delete=models.PROTECT, related_name="gpus")
    gpu = models.ForeignKey(Gpu, on_delete=models.PROTECT, related_name="reserved")
    state = models.CharField(max_length=8, choices=ReservationState.choices)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(starts_at__lt=F("ends_at")), name="reserved_gpu_starts_before_it_ends"),
            # I2: a GPU stays held until it is released, even after ends_at.
            models.UniqueConstraint(fields=["gpu"], condition=Q(state=ReservationState.HELD), name="gpu_held_once"),
            # I1, at most one box per GPU at any instant, is an EXCLUDE constraint on PostgreSQL and triggers on SQLite: migration 0003.
        ]

    def __str__(self) -> str:
        return f"{self.gpu_id} in {self.reservation_id}"


@column_checks
class Repair(models.Model):
    """Records one try to repair and check a node that is set aside. The agent treats it as an assignment that never opens."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    case = models.ForeignKey("observability.RemediationCase", on_delete=models.PROTECT, related_name="repairs")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="repairs")
    epoch = models.BigIntegerField()
    action = models.CharField(max_length=63, blank=True, help_text="The step that repairs; empty: only checks.")
    entry_steps = models.JSONField(default=list)
    begun_at = models.DateTimeField()
    begun_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Null: EGS itself."
    )
    enter_by_at = models.DateTimeField()
    desired = models.CharField(max_length=7, choices=DESIRED, default=Desired.PRESENT)
    # Reported by the agent.
    phase = models.CharField(max_length=8, choices=PHASES, default=Phase.PENDING)
    failure = models.CharField(max_length=200, blank=True)
    passed_at = models.DateTimeField(null=True, blank=True, help_text="When all of its steps had passed.")
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["begun_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["node"], condition=Q(released_at=None), name="one_repair_of_a_node"),
            models.UniqueConstraint(fields=["node", "epoch"], name="repair_epoch_once_per_node"),
        ]

    def __str__(self) -> str:
        return f"repair of {self.node_id}"


def is_later(phase: Phase, than: Phase) -> bool:
    return _PROGRESS[phase] > _PROGRESS[than]
