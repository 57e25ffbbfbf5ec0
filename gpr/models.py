from __future__ import annotations

import uuid
from datetime import datetime
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.column_checks import sound_values
from inventory.models import Cluster
from planner.plan import Reason
from slices.models import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN, Project, Slice

GPU_S_MOST = 1e300
NODES_MAX, GPUS_PER_NODE_MAX = 10_000, 1_024
CENTURY_S = 100 * 366 * 86_400  # beyond it an end would be in no calendar
NO_PLACE = frozenset({Reason.NEVER_FITS, Reason.DOES_NOT_FIT_THEN})
TURN_AT_HELP = "Its age among equals: that in the queue, but for an administrator's move."


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


# A slice has at most one GPR in these (I3).
PROVISIONED = frozenset({GprState.PROVISIONING, GprState.ACTIVE, GprState.EXITING})
ENDED = frozenset({GprState.COMPLETED, GprState.RELEASED, GprState.EVICTED, GprState.FAILED, GprState.CANCELED, GprState.REJECTED})


class EndReason(models.TextChoices):
    """Why its nodes were taken back."""

    EXPIRED = "EXPIRED", "The booked time was over"
    EARLY_RELEASE = "EARLY_RELEASE", "Released early by its owner"
    EVICTED = "EVICTED", "Evicted"
    IDLE = "IDLE", "Its GPUs were idle"
    NODE_FAILURE = "NODE_FAILURE", "A node failed"
    CHECK_FAILED = "CHECK_FAILED", "A check on the way in failed"
    ADMIN = "ADMIN", "Released by an administrator"


class Nearness(models.TextChoices):
    """What all nodes of a request must be of; they are put as near together as can be anyway. The planner's codes."""

    ANY = "", "Anywhere"
    RACK = "rack", "One rack"
    NVLINK = "nvlink", "One NVLink domain"


@sound_values
class GprTemplate(models.Model):
    """What requests of a slice may start from; see docs/templates.md.

    The default of a cluster goes before the slice's for all clusters. Where it says `auto`, it is filed for pods that wait, too.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63)
    slice = models.ForeignKey(Slice, on_delete=models.PROTECT, related_name="templates")
    cluster = models.ForeignKey(
        Cluster, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Null: all clusters of the slice."
    )
    asked = models.JSONField(default=dict, help_text="The fields of a request that it gives, by name: see gpr/templates/fields.py.")
    auto = models.BooleanField(default=False, help_text="While it is the default, it is filed for GPU pods that wait.")
    is_default = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["slice__name", "name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["slice", "name"], name="template_name_once_per_slice"),
            models.UniqueConstraint(
                fields=["slice", "cluster"], condition=Q(is_default=True, cluster__isnull=False), name="template_one_default_per_cluster"
            ),
            models.UniqueConstraint(fields=["slice"], condition=Q(is_default=True, cluster=None), name="template_one_default_per_slice"),
        ]

    def __str__(self) -> str:
        return self.name


@sound_values
class Gpr(models.Model):
    """A box in time: nodes x GPUs x duration, with a strict end."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63)
    slice = models.ForeignKey(Slice, on_delete=models.PROTECT, related_name="gprs")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="gprs")
    created_at = models.DateTimeField()
    # What was asked for. Null `gpus_per_node` means all of each node; an empty `shape` any with `min_gpu_memory_gib`.
    shape = models.CharField(max_length=63, blank=True)
    min_gpu_memory_gib = models.PositiveIntegerField(null=True, blank=True)
    nodes = models.PositiveIntegerField()
    gpus_per_node = models.PositiveIntegerField(null=True, blank=True)
    duration_s = models.PositiveBigIntegerField()
    priority = models.PositiveIntegerField(default=PRIORITY_DEFAULT)
    clusters = models.ManyToManyField(Cluster, blank=True, related_name="+", help_text="Allowed ones; none means any of the slice.")
    earliest_start_at = models.DateTimeField(null=True, blank=True)
    # The policy's when it was filed: a later one is for later requests.
    allowed_shapes = models.JSONField(default=list, blank=True, help_text="Shapes that the slice's policy allowed; none means all.")
    is_booking = models.BooleanField(default=False, help_text="It starts at `earliest_start_at`, or is refused.")
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
        GprTemplate, null=True, blank=True, on_delete=models.SET_NULL, related_name="gprs", help_text="What it was filed from."
    )
    # Where it is.
    state = models.CharField(max_length=16, choices=GprState.choices)
    end_reason = models.CharField(max_length=13, choices=EndReason.choices, blank=True)
    state_changed_at = models.DateTimeField()
    version = models.PositiveBigIntegerField(default=1)
    approval_reasons = models.JSONField(default=list, help_text="The rules that made it wait for approval, as sentences.")
    queued_at = models.DateTimeField(null=True, blank=True, help_text="Its age in the queue; kept when it is queued again.")
    turn_at = models.DateTimeField(null=True, blank=True, help_text=TURN_AT_HELP)
    # Where an administrator put it among those of its priority: as if it were of that share and had so much work. Null: nowhere.
    place_share = models.SmallIntegerField(null=True, blank=True)
    place_key = models.PositiveBigIntegerField(null=True, blank=True)
    remaining_s = models.PositiveBigIntegerField(help_text="Of the duration, what it has not had yet.")
    run = models.PositiveIntegerField(default=0, help_text="How often it was started.")
    entry_attempts = models.PositiveIntegerField(default=0, help_text="Of those, how many in a row failed on the way in.")
    cluster = models.ForeignKey(Cluster, null=True, blank=True, on_delete=models.PROTECT, related_name="+")
    provisioning_at = models.DateTimeField(null=True, blank=True)
    active_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)
    exiting_at = models.DateTimeField(null=True, blank=True, help_text="When its nodes began to be taken back.")
    ended_at = models.DateTimeField(null=True, blank=True)
    marks_passed = models.PositiveSmallIntegerField(default=0, help_text="How many of the marks 25, 50, 75 % have been told.")
    # The plan of the last tick, for whoever reads.
    planned_start_at = models.DateTimeField(null=True, blank=True)
    turn_share = models.SmallIntegerField(
        default=0, help_text="How far its project is above its share: of equals in priority the lowest goes first."
    )
    turn_key = models.PositiveBigIntegerField(
        default=0, help_text="Its work in GPU-seconds: of equals in priority and share the least goes first."
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
            models.CheckConstraint(condition=Q(duration_s__lte=CENTURY_S, remaining_s__lte=CENTURY_S), name="gpr_within_a_century"),
            models.CheckConstraint(condition=Q(priority__gte=PRIORITY_MIN, priority__lte=PRIORITY_MAX), name="gpr_priority_in_range"),
            models.CheckConstraint(
                condition=Q(state=GprState.ACTIVE, active_at__isnull=False, ends_at__isnull=False) | ~Q(state=GprState.ACTIVE),
                name="gpr_active_has_a_window",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["-priority", "turn_share", "turn_key", "turn_at", "id"], condition=Q(state="QUEUED"), name="gpr_queue"),
            models.Index(fields=["state"], condition=Q(state__in=["PROVISIONING", "ACTIVE", "EXITING"]), name="gpr_provisioned"),
            models.Index(fields=["slice", "-created_at"], name="gpr_of_slice"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @property
    def has_no_place(self) -> bool:
        """By the last plan it can never start as things are, or the time that it was booked for is taken."""
        return self.explanation.get("reason") in NO_PLACE

    @property
    def current_promise(self) -> Promise | None:
        """None where nothing is promised to it, also while it has no place: what it was promised before does not hold then."""
        promise: Promise | None = getattr(self, "promise", None)
        return None if self.has_no_place else promise

    def time_left_s(self, now: datetime) -> float | None:
        """Of the present window; None when there is none."""
        if self.state != GprState.ACTIVE or self.ends_at is None:
            return None
        return max(0.0, (self.ends_at - now).total_seconds())


class RepeatRule(models.TextChoices):
    """How a series of bookings goes on."""

    DAILY = "daily", "Every day"
    WEEKDAYS = "weekdays", "Monday to Friday"
    WEEKLY = "weekly", "Every week"


@sound_values
class BookingSeries(models.Model):
    """The same booking again and again, at one time of day of its zone. Its occurrences are GPRs of their own."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63)
    slice = models.ForeignKey(Slice, on_delete=models.PROTECT, related_name="booking_series")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="booking_series")
    created_at = models.DateTimeField()
    asked = models.JSONField(help_text="The fields of each request, but for its time; clusters by id.")
    first_start_at = models.DateTimeField()
    rule = models.CharField(max_length=8, choices=RepeatRule.choices)
    zone = models.CharField(max_length=64, help_text="As Europe/Berlin: its clock counts, daylight saving included.")
    until_at = models.DateTimeField(null=True, blank=True, help_text="Nothing starts after this.")
    count = models.PositiveIntegerField(null=True, blank=True, help_text="How many starts there are.")
    next_start_at = models.DateTimeField(null=True, blank=True, db_index=True, help_text="The first not tried yet; null: none is left.")
    canceled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(until_at=None) ^ Q(count=None), name="series_has_one_end"),
            models.CheckConstraint(condition=Q(canceled_at=None) | Q(next_start_at=None), name="series_canceled_books_no_more"),
        ]

    def __str__(self) -> str:
        return self.name


@sound_values
class BookingOccurrence(models.Model):
    """One start of a series: booked as a GPR, or refused, with the nearest times that would have done."""

    series = models.ForeignKey(BookingSeries, on_delete=models.CASCADE, related_name="occurrences")
    starts_at = models.DateTimeField()
    gpr = models.OneToOneField(Gpr, null=True, blank=True, on_delete=models.PROTECT, related_name="occurrence")
    refusal = models.CharField(max_length=500, blank=True)
    tried_at = models.DateTimeField(null=True, blank=True, help_text="While refused: when it was last looked whether it fits.")
    nearest_before_at = models.DateTimeField(null=True, blank=True)
    nearest_after_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["starts_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["series", "starts_at"], name="occurrence_once"),
            models.CheckConstraint(condition=Q(gpr=None) ^ Q(refusal=""), name="occurrence_booked_or_refused"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["starts_at"], condition=Q(gpr=None), name="occurrence_refused"),
        ]

    def __str__(self) -> str:
        return f"{self.series_id} at {self.starts_at:%Y-%m-%d %H:%M}"


@sound_values
class Claim(models.Model):
    """A cluster request: an object of kind GPUProvisioningRequest in a cluster, and the one GPR that was filed for it.

    `generation` is the last that was answered, `asked` the ClusterRequestSpec of the last one that was taken. The GPR may differ
    from it, since people can change it here. A later generation changes only the fields that differ from `asked`.
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    uid = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    requester = models.CharField(max_length=253, blank=True, help_text="Who made the object, by the word of the cluster; empty: not known.")
    is_auto = models.BooleanField(default=False, help_text="The agent made the object, for pods that wait.")
    gpr = models.OneToOneField(Gpr, on_delete=models.PROTECT, related_name="claim")
    generation = models.PositiveBigIntegerField()
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
        """What it was filed as, and by whom. `cluster` must have been read."""
        by = f", made by {self.requester}" if self.requester else ""
        for_pods = " for pods that wait" if self.is_auto else ""
        return f"object {self} of cluster {self.cluster.name}{for_pods}{by}"


@sound_values
class Promise(models.Model):
    """What a waiting GPR was promised, and the slot in the stored plan that the promise rests on (planner/).

    Every queued GPR that can start has one. `slot_nodes` are ids of nodes, or of orders of nodes (gpr/supplies/selectors.py).
    """

    gpr = models.OneToOneField(Gpr, primary_key=True, on_delete=models.CASCADE, related_name="promise")
    made_at = models.DateTimeField()
    first_promised_start_at = models.DateTimeField()
    promised_start_at = models.DateTimeField()
    slot_pool = models.CharField(max_length=250)
    slot_start_at = models.DateTimeField()
    slot_nodes = models.JSONField(default=list)
    # While there is no slot any more, or it is at risk: why (planner.plan.Cause), and what that names.
    lost_cause = models.CharField(max_length=32, blank=True)
    lost_cause_id = models.CharField(max_length=63, blank=True)
    # Half and nine tenths of such requests start by then; null while too few have started to tell.
    p50_at = models.DateTimeField(null=True, blank=True)
    p90_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.gpr_id} by {self.promised_start_at:%Y-%m-%d %H:%M}"

    @property
    def risk(self) -> str:
        """Why nobody knows at present whether its slot can be kept, as a cause; "" where that is known, or it has none."""
        return self.lost_cause if self.slot_nodes else ""


@sound_values
class PromiseMove(models.Model):
    """That a promise was moved, and by what: never without a cause."""

    gpr = models.ForeignKey(Gpr, on_delete=models.CASCADE, related_name="promise_moves")
    at = models.DateTimeField()
    old_start_at = models.DateTimeField()
    new_start_at = models.DateTimeField()
    cause = models.CharField(max_length=32)
    cause_id = models.CharField(max_length=63, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.gpr_id} moved by {self.cause}"


@sound_values
class Eviction(models.Model):
    """Boxes that end early: for a GPR that starts sooner by it (planner/sharing/evictions.py), or because an administrator evicts one.

    An administrator's eviction has no beneficiary and no times of one.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    gpr = models.ForeignKey(
        Gpr, null=True, blank=True, on_delete=models.CASCADE, related_name="evictions", help_text="The beneficiary; null: there is none."
    )
    made_at = models.DateTimeField(db_index=True)
    start_at = models.DateTimeField(null=True, blank=True, help_text="When the beneficiary can start by it.")
    instead_at = models.DateTimeField(null=True, blank=True, help_text="When it could have started without.")

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
    """By what right: the planner's EvictionKind, or an administrator's word."""

    RECLAIM = "reclaim", "Its GPUs were borrowed, and are wanted by whom they are guaranteed to"
    PRIORITY = "priority", "It may be evicted, and a request of higher priority may evict"
    DEFRAGMENT = "defrag", "It stands on parts of nodes, and an administrator moves it to free whole ones"
    ADMIN = "admin", "An administrator evicts it"


class VictimOutcome(models.TextChoices):
    NOTICED = "NOTICED", "Has notice"
    EVICTED = "EVICTED", "Evicted"
    LEFT = "LEFT", "Ended by itself before"
    SPARED = "SPARED", "Not needed any more, and spared"
    SOONER = "SOONER", "Told again, to end sooner"


@sound_values
class EvictionVictim(models.Model):
    """A box that an eviction ends. Its owner has notice until `ends_at`."""

    eviction = models.ForeignKey(Eviction, on_delete=models.CASCADE, related_name="victims")
    gpr = models.ForeignKey(Gpr, on_delete=models.CASCADE, related_name="evicted_by")
    kind = models.CharField(max_length=8, choices=VictimKind.choices)
    priority = models.PositiveIntegerField(null=True, blank=True, help_text="That it had when it was chosen; null: it was not kept then.")
    ends_at = models.DateTimeField()
    lost_gpu_s = models.PositiveBigIntegerField(help_text="GPU-seconds run when it was chosen; for a booking: by its start.")
    outcome = models.CharField(max_length=7, choices=VictimOutcome.choices, default=VictimOutcome.NOTICED)
    outcome_at = models.DateTimeField(null=True, blank=True)
    restart_at = models.DateTimeField(
        null=True, blank=True, help_text="When what is left would start then, by the last plan; null: it does not, or is not known yet."
    )
    foreseen_at = models.DateTimeField(null=True, blank=True, help_text="When that was worked out; null: not yet.")
    is_final = models.BooleanField(default=False, help_text="It cannot be spared any more: its agent may not hear of it in time.")
    reviewed_at = models.DateTimeField(null=True, blank=True, help_text="When others rested on its end, though whom it is for does not.")

    class Meta:
        ordering: ClassVar[list[str]] = ["ends_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["gpr"], condition=Q(outcome="NOTICED"), name="gpr_has_one_notice"),
        ]

    def __str__(self) -> str:
        return f"{self.gpr_id} by {self.ends_at:%Y-%m-%d %H:%M}"


@sound_values
class Forecast(models.Model):
    """What was foretold to a request that had to wait, and how it turned out: what later forecasts learn from (planner/promises/ranges.py).

    Waits are seconds from `made_at`. One for each time it was promised something; one that never started, or asked for something else
    before it did, is taken away.
    """

    gpr = models.ForeignKey(Gpr, on_delete=models.CASCADE, related_name="forecasts")
    made_at = models.DateTimeField()
    length_s = models.PositiveBigIntegerField(help_text="Of the whole box.")
    gpu_count = models.PositiveBigIntegerField()
    expected_wait_s = models.PositiveBigIntegerField(help_text="By the queue as it stood.")
    promised_wait_s = models.PositiveBigIntegerField()
    p50_s = models.PositiveBigIntegerField()
    p90_s = models.PositiveBigIntegerField()
    started_at = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["gpr"], condition=Q(started_at=None), name="gpr_has_one_open_forecast"),
        ]

    def __str__(self) -> str:
        return f"{self.gpr_id} within {self.p90_s} s"


@sound_values
class PromiseOutcome(models.Model):
    """How one promise turned out, held against the time that was promised first (gpr/promises/outcomes.py)."""

    gpr = models.ForeignKey(Gpr, on_delete=models.CASCADE, related_name="outcomes")
    forecast = models.OneToOneField(
        Forecast, null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="Null: it started at once, or never did."
    )
    made_at = models.DateTimeField()
    promised_start_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True, blank=True, help_text="Null: it was withdrawn, or asked for something else, when overdue.")
    settled_at = models.DateTimeField(db_index=True)
    margin_s = models.BigIntegerField(help_text="Until the promised start, whole seconds, rounded down; negative: it was late.")
    wait_s = models.PositiveBigIntegerField(help_text="Since it was foretold, or else promised, whole seconds.")
    length_s = models.PositiveBigIntegerField(help_text="Of the whole box.")
    is_gang = models.BooleanField(help_text="On several nodes.")
    is_moved = models.BooleanField(help_text="Something moved it, see PromiseMove.")
    is_learned = models.BooleanField(help_text="Its owner was told a range that rests on past promises.")

    def __str__(self) -> str:
        return f"{self.gpr_id} by {self.promised_start_at:%Y-%m-%d %H:%M}, {self.margin_s} s before"


@sound_values
class Shadow(models.Model):
    """Where a request would have stood in two queues that nobody overtakes (planner/promises/slack.py), and the work that it brought.

    It outlives the wait: it counts until it is over in both queues, and the work for some days. `patient`, `strict`: pool, nodes.
    """

    gpr = models.OneToOneField(Gpr, primary_key=True, on_delete=models.CASCADE, related_name="shadow")
    made_at = models.DateTimeField(db_index=True)
    priority = models.PositiveIntegerField()
    gpu_s = models.PositiveBigIntegerField(help_text="GPU-seconds of its box.")
    gpus_per_node = models.PositiveIntegerField()
    patient = models.JSONField(default=dict)
    patient_starts_at = models.DateTimeField(null=True)
    patient_ends_at = models.DateTimeField(null=True)
    strict = models.JSONField(default=dict)
    strict_starts_at = models.DateTimeField(null=True)
    strict_ends_at = models.DateTimeField(null=True, db_index=True)

    def __str__(self) -> str:
        return f"{self.gpr_id} of {self.gpu_s} GPU-seconds"


@sound_values
class ProjectUsage(models.Model):
    """GPU-seconds that the ended boxes of a project used, fading, as of `summed_at` (gpr/quotas/fairness.py)."""

    project = models.OneToOneField(Project, primary_key=True, on_delete=models.CASCADE, related_name="usage")
    gpu_s = models.FloatField(default=0)
    summed_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            # Neither infinite nor no number: those are beyond all others.
            models.CheckConstraint(condition=Q(gpu_s__gte=0, gpu_s__lte=GPU_S_MOST), name="usage_is_a_number"),
        ]

    def __str__(self) -> str:
        return f"{self.project_id} used {self.gpu_s:.0f} GPU-seconds"


@sound_values
class Witness(models.Model):
    """One row whose lock orders all writers of slots: two who plan at once would promise the same nodes twice.

    And what they remember: sums of promised waits, and of those that conservative backfill would have promised, fading.
    """

    singleton = models.BooleanField(default=True, unique=True)
    promised_sum_s = models.FloatField(default=0)
    patient_sum_s = models.FloatField(default=0)
    summed_at = models.DateTimeField(null=True, blank=True)
    ran_sum_s = models.FloatField(default=0, help_text="What boxes used of their time, fading.")
    booked_sum_s = models.FloatField(default=0, help_text="What they had booked of it.")
    has_freed = models.BooleanField(default=False, help_text="A box has ended before its time since the last plan.")

    def __str__(self) -> str:
        return "the witness"


@sound_values
class AllocatorRecord(models.Model):
    """One row: what the ticks did, whichever process ran them, for those who watch. Web servers write only that they are there."""

    singleton = models.BooleanField(default=True, unique=True)
    last_tick_at = models.DateTimeField(null=True, blank=True, help_text="When the last whole tick began.")
    last_duration_s = models.FloatField(default=0)
    began_at = models.DateTimeField(null=True, blank=True, help_text="When the last tick began, whole or not.")
    away_at = models.DateTimeField(null=True, blank=True, help_text="When EGS was last there before it was away: see gpr/absence.py.")
    back_at = models.DateTimeField(null=True, blank=True, help_text="When it was back.")
    served_at = models.DateTimeField(null=True, blank=True, help_text="When a web server last said that it is there.")
    tick_count = models.PositiveBigIntegerField(default=0)
    kept_count = models.PositiveBigIntegerField(default=0, help_text="Starts by the time first promised.")
    late_count = models.PositiveBigIntegerField(default=0, help_text="Starts after it.")
    planned_event_id = models.BigIntegerField(null=True, blank=True, help_text="The last event that the last plan knew.")
    rests_until_at = models.DateTimeField(
        null=True, blank=True, help_text="Until then only an event makes another plan; null: the next tick does."
    )

    def __str__(self) -> str:
        return "what the allocator did"
