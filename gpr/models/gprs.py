from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from gpr.models.templates import GprTemplate
from inventory.models import Cluster
from planner.plan import Reason
from slices.models import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, Slice

if TYPE_CHECKING:
    from gpr.models.promises import Promise

NODES_MAX, GPUS_PER_NODE_MAX = 10_000, 1_024
CENTURY_S = 100 * 366 * 86_400  # a later end would be in no calendar
NO_PLACE = frozenset({Reason.NEVER_FITS, Reason.DOES_NOT_FIT_THEN, Reason.PREDECESSOR_HAS_NO_PLACE})
AFTER_HELP = "Its predecessor: it starts when that has ended."
TURN_AT_HELP = "Start of its age in the order; differs from queued_at after an administrator's move."


class GprState(models.TextChoices):
    PENDING_APPROVAL = "PENDING_APPROVAL", "Waiting for approval"
    QUEUED = "QUEUED", "Pending"
    PROVISIONING = "PROVISIONING", "Provisioning"
    ACTIVE = "ACTIVE", "Provisioned"
    EXITING = "EXITING", "Exiting"
    COMPLETED = "COMPLETED", "Completed"
    RELEASED = "RELEASED", "Released early"
    EVICTED = "EVICTED", "Evicted"
    FAILED = "FAILED", "Failed"
    CANCELED = "CANCELED", "Canceled"
    REJECTED = "REJECTED", "Rejected"


# A slice has at most one GPR in these states (I3).
PROVISIONED = frozenset({GprState.PROVISIONING, GprState.ACTIVE, GprState.EXITING})
ENDED = frozenset({GprState.COMPLETED, GprState.RELEASED, GprState.EVICTED, GprState.FAILED, GprState.CANCELED, GprState.REJECTED})
ENDED_WELL = frozenset({GprState.COMPLETED, GprState.RELEASED})
# A state that is no key is final. Triggers in the database refuse every other transition.
TRANSITIONS: dict[str, frozenset[str]] = {
    GprState.PENDING_APPROVAL: frozenset({GprState.QUEUED, GprState.REJECTED, GprState.CANCELED}),
    GprState.QUEUED: frozenset({GprState.PROVISIONING, GprState.PENDING_APPROVAL, GprState.REJECTED, GprState.CANCELED}),
    GprState.PROVISIONING: frozenset({GprState.ACTIVE, GprState.EXITING}),
    GprState.ACTIVE: frozenset({GprState.EXITING}),
    # An evicted or failed GPR may return to QUEUED for the rest of its time.
    GprState.EXITING: frozenset({GprState.COMPLETED, GprState.RELEASED, GprState.EVICTED, GprState.FAILED, GprState.QUEUED}),
}


class EndReason(models.TextChoices):
    EXPIRED = "EXPIRED", "The booked time was over"
    EARLY_RELEASE = "EARLY_RELEASE", "Released early by its owner"
    EVICTED = "EVICTED", "Evicted"
    IDLE = "IDLE", "Its GPUs were idle"
    NODE_FAILURE = "NODE_FAILURE", "A node failed"
    CHECK_FAILED = "CHECK_FAILED", "A check on the way in failed"
    ADMIN = "ADMIN", "Released by an administrator"


class AfterCondition(models.TextChoices):
    """Names the end of its predecessor that a GPR needs to start."""

    ANY = "any", "In any way"
    SUCCESS = "success", "Well, else this is canceled"


class Nearness(models.TextChoices):
    """Names the part of the network that all nodes must share; the values of planner.snapshot.Within."""

    ANY = "", "Anywhere"
    RACK = "rack", "One rack"
    NVLINK = "nvlink", "One NVLink domain"


@column_checks
class Gpr(models.Model):
    """It is a request for nodes x GPUs x duration, with a strict end."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63)
    slice = models.ForeignKey(Slice, on_delete=models.PROTECT, related_name="gprs")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="gprs")
    created_at = models.DateTimeField()
    # The fields of the request. A null `gpus_per_node` means whole nodes; an empty `shape` means any shape with `min_gpu_memory_gib`.
    shape = models.CharField(max_length=63, blank=True)
    min_gpu_memory_gib = models.PositiveIntegerField(null=True, blank=True)
    nodes = models.PositiveIntegerField()
    gpus_per_node = models.PositiveIntegerField(null=True, blank=True)
    duration_s = models.PositiveBigIntegerField()
    priority = models.PositiveIntegerField(default=PRIORITY_DEFAULT)
    clusters = models.ManyToManyField(Cluster, blank=True, related_name="+", help_text="Allowed ones; none means any of the slice.")
    earliest_start_at = models.DateTimeField(null=True, blank=True)
    # Copied from the policy when the request was filed: a later policy applies to later requests.
    allowed_shapes = models.JSONField(default=list, blank=True, help_text="Shapes that the slice's policy allowed; none means all.")
    is_booking = models.BooleanField(default=False, help_text="It starts at `earliest_start_at`, or is refused.")
    after = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="followers", db_index=False, help_text=AFTER_HELP
    )
    after_condition = models.CharField(max_length=7, choices=AfterCondition.choices, default=AfterCondition.ANY)
    node_type = models.CharField(max_length=63, blank=True)
    rdma = models.BooleanField(default=False)
    within = models.CharField(max_length=6, blank=True, choices=Nearness.choices)
    idle_timeout_s = models.PositiveBigIntegerField(null=True, blank=True)
    evictable = models.BooleanField(default=True)
    may_evict = models.BooleanField(default=False)
    requeue_on_failure = models.BooleanField(default=True)
    run_checks = models.BooleanField(default=True)
    model = models.JSONField(default=dict, blank=True, help_text="Name and parameters of the model, free form.")
    template = models.ForeignKey(
        GprTemplate,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="gprs",
        help_text="Template that the request was filed from.",
    )
    # The state, and the run so far.
    state = models.CharField(max_length=16, choices=GprState.choices)
    end_reason = models.CharField(max_length=13, choices=EndReason.choices, blank=True)
    state_changed_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)
    approval_reasons = models.JSONField(default=list, help_text="The rules that made it wait for approval, as sentences.")
    decide_by_at = models.DateTimeField(null=True, blank=True, help_text="If it still waits for approval then, it is rejected.")
    policy_version = models.PositiveBigIntegerField(default=0, help_text="Number of the policy version that it was judged by.")
    queued_at = models.DateTimeField(null=True, blank=True, help_text="Start of its age in the queue. Queueing again keeps it.")
    turn_at = models.DateTimeField(null=True, blank=True, help_text=TURN_AT_HELP)
    # Set when an administrator moved it within its priority: these replace `turn_share` and `turn_key` in the order. Null: not moved.
    place_share = models.SmallIntegerField(null=True, blank=True)
    place_key = models.PositiveBigIntegerField(null=True, blank=True)
    remaining_s = models.PositiveBigIntegerField(help_text="Part of the duration that has not run yet.")
    run = models.PositiveIntegerField(default=0, help_text="How often it was started.")
    entry_attempts = models.PositiveIntegerField(default=0, help_text="Entry failures in a row.")
    cluster = models.ForeignKey(Cluster, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    provisioning_at = models.DateTimeField(null=True, blank=True)
    active_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)
    exiting_at = models.DateTimeField(null=True, blank=True, help_text="Start of the exit.")
    ended_at = models.DateTimeField(null=True, blank=True)
    marks_passed = models.PositiveSmallIntegerField(default=0, help_text="How many of the marks at 25, 50 and 75 % have been sent.")
    # From the plan of the last tick, for pages and the API.
    planned_start_at = models.DateTimeField(null=True, blank=True)
    turn_share = models.SmallIntegerField(
        default=0, help_text="Use of its project beyond its fair share. Among equal priorities the lowest is first."
    )
    turn_key = models.PositiveBigIntegerField(
        default=0, help_text="Work in GPU-seconds. Among equal priorities and shares the least is first."
    )
    explanation = models.JSONField(default=dict)

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["slice"],
                condition=Q(state__in=[GprState.PROVISIONING, GprState.ACTIVE, GprState.EXITING]),
                name="slice_holds_one_gpr",
            ),
            models.CheckConstraint(condition=Q(nodes__gte=1, duration_s__gte=1), name="gpr_asks_for_something"),
            models.CheckConstraint(condition=Q(nodes__lte=NODES_MAX, gpus_per_node__lte=GPUS_PER_NODE_MAX), name="gpr_asks_within_bounds"),
            models.CheckConstraint(condition=Q(is_booking=False) | Q(after=None), name="gpr_booking_follows_none"),
            models.CheckConstraint(condition=Q(duration_s__lte=CENTURY_S, remaining_s__lte=CENTURY_S), name="gpr_within_a_century"),
            models.CheckConstraint(condition=Q(priority__gte=PRIORITY_MIN, priority__lte=PRIORITY_MAX), name="gpr_priority_in_range"),
            models.CheckConstraint(
                condition=Q(state=GprState.ACTIVE, active_at__isnull=False, ends_at__isnull=False) | ~Q(state=GprState.ACTIVE),
                name="gpr_active_has_a_window",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["-priority", "turn_share", "turn_key", "turn_at", "id"], condition=Q(state="QUEUED"), name="gpr_queue"),
            models.Index(fields=["decide_by_at"], condition=Q(state="PENDING_APPROVAL"), name="gpr_to_decide"),
            models.Index(fields=["state"], condition=Q(state__in=["PROVISIONING", "ACTIVE", "EXITING"]), name="gpr_provisioned"),
            models.Index(fields=["slice", "-created_at"], name="gpr_of_slice"),
            models.Index(fields=["-created_at", "id"], name="gpr_newest"),
            models.Index(fields=["after"], condition=Q(after__isnull=False), name="gpr_followers"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_no_place(self) -> bool:
        """Tell whether the last plan says that it can never start, that its booked time is taken, or that its predecessor has no place."""
        return self.explanation.get("reason") in NO_PLACE

    @property
    def current_promise(self) -> Promise | None:
        """Returns None if the plan found no place for the GPR: an earlier promise is void then."""
        promise: Promise | None = getattr(self, "promise", None)
        return None if self.has_no_place else promise

    def time_left_s(self, now: datetime) -> float | None:
        """Seconds until its end; None when it is not active."""
        if self.state != GprState.ACTIVE or self.ends_at is None:
            return None
        return max(0.0, (self.ends_at - now).total_seconds())
