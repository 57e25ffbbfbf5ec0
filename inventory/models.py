from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from core.column_checks import column_checks
from protocol.agents.events import Outcome
from protocol.assignments import Desired, Phase
from protocol.nodes.checks import Verdict

NODE_GPUS_MAX = 10_000
DRAIN_MAX_S = 86_400
SUPPLY_NODES_MAX, SUPPLY_GPUS_MAX = 1000, 64
SUPPLY_LEAD_MAX_S, SUPPLY_GAIN_MAX_S = 30 * 86_400, 90 * 86_400


class Hub(models.Model):
    """Holds the identity of this database, in one row. Restored backups have the same id."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    singleton = models.BooleanField(default=True, unique=True)

    def __str__(self) -> str:
        return str(self.id)


@column_checks
class Cluster(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    created_at = models.DateTimeField()
    uid = models.CharField(max_length=63, blank=True, help_text="UID of the namespace kube-system. The first join sets it for good.")
    # Rises with each change of the desired set; the database refuses to lower it.
    generation = models.BigIntegerField(default=0)
    is_enabled = models.BooleanField(default=True, help_text="The allocator may start boxes here.")
    api_url = models.CharField(max_length=253, blank=True, help_text="API server address for users; empty: the agent's.")
    repairs_drift = models.BooleanField(default=True, help_text="The agent repairs changed objects of EGS; otherwise it only reports them.")
    drain_grace_s = models.PositiveIntegerField(
        default=30, help_text="How long a disruption budget may keep a pod after the end of its box."
    )
    drain_force_after_s = models.PositiveIntegerField(default=120, help_text="How long after the end of its box a pod is killed.")
    # The agent knew a higher generation, so this database is an old copy. Nothing starts here until an administrator resumes it.
    rewound_at = models.DateTimeField(null=True, blank=True)
    node_failed_at = models.DateTimeField(null=True, blank=True, help_text="Last failure of a node that no tenant caused.")

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["uid"], condition=~Q(uid=""), name="cluster_uid_once"),
            # People would confuse names that differ only in case.
            models.UniqueConstraint(Lower("name"), name="cluster_name_once_in_any_case"),
            models.CheckConstraint(
                condition=Q(drain_force_after_s__gte=F("drain_grace_s"), drain_force_after_s__range=(1, DRAIN_MAX_S)),
                name="cluster_drain_ends",
            ),
        ]

    def __str__(self) -> str:
        return self.name


@column_checks
class AgentSession(models.Model):
    """Almost every message of the agent locks this row first."""

    cluster = models.OneToOneField(Cluster, primary_key=True, on_delete=models.CASCADE, related_name="agent")
    install_id = models.CharField(max_length=63)
    boot_id = models.CharField(max_length=63, blank=True)
    session_epoch = models.BigIntegerField(default=0)
    stored_seq = models.BigIntegerField(default=0, help_text="All events up to here are stored; counts within one session.")
    agent_version = models.CharField(max_length=63, blank=True)
    capabilities = models.JSONField(default=list)
    workload_kinds = models.JSONField(default=list, help_text="Kinds of jobs that the cluster serves.")
    joined_at = models.DateTimeField()
    last_sync_at = models.DateTimeField(null=True, blank=True)
    silence_told_at = models.DateTimeField(null=True, blank=True, help_text="When its silence was told; null: it is heard.")
    known_generation = models.BigIntegerField(default=0, help_text="Generation that the agent has.")
    clock_offset_s = models.FloatField(null=True, blank=True)
    # Two processes used one credential. An administrator has to issue a new join token.
    locked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"agent of {self.cluster_id}"


@column_checks
class JoinToken(models.Model):
    """Holds a token for one install, which may repeat the join if the answer was lost."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="join_tokens")
    key_id = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64)
    pepper_id = models.CharField(max_length=8)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    used_by = models.CharField(max_length=63, blank=True, help_text="install_id of the agent that joined with it.")

    def __str__(self) -> str:
        return f"join token {self.key_id}"


@column_checks
class AgentCredential(models.Model):
    """The first use of its successor ends it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="credentials")
    key_id = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64)
    pepper_id = models.CharField(max_length=8)
    cred_gen = models.BigIntegerField()
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    first_used_at = models.DateTimeField(null=True, blank=True)
    superseded_at = models.DateTimeField(null=True, blank=True, help_text="When a successor was first used.")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["cluster", "cred_gen"], name="credential_generation_once"),
        ]

    def __str__(self) -> str:
        return f"credential {self.key_id}"


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
VERDICTS = [(verdict.value, verdict.value.title()) for verdict in Verdict]
OUTCOMES = [(outcome.value, outcome.value.title()) for outcome in Outcome]


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


@column_checks
class StepResult(models.Model):
    """Records a step of a reservation or of a repair."""

    reservation = models.ForeignKey(Reservation, null=True, blank=True, on_delete=models.CASCADE, related_name="steps")
    repair = models.ForeignKey(Repair, null=True, blank=True, on_delete=models.CASCADE, related_name="steps")
    step = models.CharField(max_length=63)
    attempt = models.PositiveIntegerField()
    outcome = models.CharField(max_length=11, choices=OUTCOMES)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    log = models.TextField(blank=True)
    evidence = models.JSONField(default=dict)
    blames_node = models.BooleanField(default=True, help_text="False: the node did not cause the failure.")

    class Meta:
        ordering: ClassVar[list[str]] = ["started_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["reservation", "step", "attempt"], name="step_attempt_once"),
            models.UniqueConstraint(fields=["repair", "step", "attempt"], name="repair_step_attempt_once"),
            models.CheckConstraint(condition=Q(reservation=None) ^ Q(repair=None), name="step_is_of_one"),
        ]

    def __str__(self) -> str:
        return f"{self.step} {self.outcome}"

    @property
    def skipped_why(self) -> str:
        """Says why a passed step measured nothing; else empty."""
        results = self.results.all()
        if self.outcome != Outcome.OK or not results or any(result.verdict != Verdict.SKIP for result in results):
            return ""
        return "; ".join(dict.fromkeys(result.text for result in results))


@column_checks
class CheckResult(models.Model):
    step = models.ForeignKey(StepResult, on_delete=models.CASCADE, related_name="results")
    what = models.CharField(max_length=63, help_text="Name of the limit.")
    gpu_uuid = models.CharField(max_length=63, blank=True, help_text="The vendor's UUID; the GPU may be unknown to the inventory.")
    value = models.FloatField(null=True)
    unit = models.CharField(max_length=63, blank=True)
    threshold = models.FloatField(null=True)
    is_least = models.BooleanField(default=False, help_text="The threshold is a minimum; otherwise a maximum.")
    verdict = models.CharField(max_length=4, choices=VERDICTS)
    text = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["step", "what", "gpu_uuid"], name="check_result_once_per_gpu"),
        ]

    def __str__(self) -> str:
        return f"{self.what} {self.verdict}"


@column_checks
class CheckPolicy(models.Model):
    """Overrides the agent's check limits. A shape's policy takes precedence."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="check_policies")
    shape = models.CharField(max_length=63, blank=True, help_text="Empty: all shapes.")
    limits = models.JSONField(default=dict, help_text="Thresholds by name of the limit.")
    images = models.JSONField(default=dict, help_text="Image by purpose.")
    skipped_steps = models.JSONField(default=list)
    storage_class = models.CharField(max_length=253, blank=True, help_text="Storage class of the storage check's volume.")
    rdma_subnet = models.CharField(max_length=19, blank=True, help_text="First half of the GIDs that RDMA ports must have.")
    runtime_class = models.CharField(max_length=253, blank=True, help_text="Runtime class of pods that check GPUs.")
    pull_secret = models.CharField(max_length=253, blank=True, help_text="Pull secret of the images, in egs-system.")
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["cluster__name", "shape"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["cluster", "shape"], name="check_policy_once"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return f"{self.cluster.name}, {self.shape}" if self.shape else self.cluster.name


def is_later(phase: Phase, than: Phase) -> bool:
    return _PROGRESS[phase] > _PROGRESS[than]


@dataclass(frozen=True, slots=True)
class HubAbsence:
    """Records a time in which EGS itself was down."""

    began_at: datetime
    ended_at: datetime

    def silent_since(self, heard_at: datetime, *, within_s: float) -> datetime:
        """Returns when the hub returned, if the agent was live when the hub went down; else `heard_at`."""
        was_live = (self.began_at - heard_at).total_seconds() <= within_s
        return max(heard_at, self.ended_at) if was_live else heard_at


def agent_is_live(agent: AgentSession | None, now: datetime, *, within_s: float, absence: HubAbsence | None = None) -> bool:
    """Tell whether it has synced within `within_s` and is not locked."""
    if agent is None or agent.last_sync_at is None or agent.locked_at is not None:
        return False
    since_at = absence.silent_since(agent.last_sync_at, within_s=within_s) if absence is not None else agent.last_sync_at
    return (now - since_at).total_seconds() <= within_s
