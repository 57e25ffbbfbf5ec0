from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from core.column_checks import column_checks
from inventory.models import Cluster
from protocol.tenancy.workspaces import BindingState

PRIORITY_MIN, PRIORITY_MAX, PRIORITY_DEFAULT = 1, 300, 101
KUBECONFIG_MIN_S = 600  # the minimum of the Kubernetes TokenRequest API
DETAIL_MAX_CHARS = 300


class Life(models.TextChoices):
    OPEN = "open", "Open"
    ARCHIVED = "archived", "Archived"  # an administrator can open it again
    REMOVED = "removed", "Removed"  # for good; its history stays


class Closable(models.Model):
    """`life` is what was decided; `settled_at` tells when nothing of it runs or waits any more."""

    life = models.CharField(max_length=8, choices=Life.choices, default=Life.OPEN)
    closed_at = models.DateTimeField(null=True, blank=True, help_text="When it was archived or removed; null: it is open.")
    is_drained = models.BooleanField(default=False, help_text="Running GPRs are ended at once, instead of running to their ends.")
    settled_at = models.DateTimeField(null=True, blank=True, help_text="When the last of it had ended; null: not yet, or it is open.")

    class Meta:
        abstract = True

    @property
    def is_open(self) -> bool:
        return self.life == Life.OPEN


def closed_has_times(name: str) -> models.CheckConstraint:
    is_open = Q(life=Life.OPEN, closed_at=None, settled_at=None)
    return models.CheckConstraint(condition=is_open | (~Q(life=Life.OPEN) & Q(closed_at__isnull=False)), name=name)


@column_checks
class Project(Closable):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [closed_has_times("project_closed_has_times")]

    def __str__(self) -> str:
        return self.name


@column_checks
class Slice(Closable):
    """A workspace.

    A request beyond an `…_approval` limit waits for an administrator; one beyond `duration_max_s` is refused. Fields that `Policy` may set
    hold the policy that applies, inherited values included: `slices.policies.services` writes them.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="slices")
    name = models.CharField(max_length=63, unique=True)
    created_at = models.DateTimeField()
    number = models.PositiveIntegerField(default=0, help_text="Order of creation; decides color and mark on pages.")
    clusters = models.ManyToManyField(Cluster, related_name="slices")
    nodes_approval = models.PositiveIntegerField(default=16, help_text="More nodes in one request need approval.")
    gpus_approval = models.PositiveIntegerField(default=128, help_text="More GPUs in one request need approval.")
    duration_approval_s = models.PositiveBigIntegerField(default=7 * 86_400, help_text="Longer needs approval.")
    duration_max_s = models.PositiveBigIntegerField(default=90 * 86_400, help_text="Longer is refused.")
    queued_max = models.PositiveIntegerField(default=100, help_text="Requests that may wait at once; more are refused.")
    priority_approval = models.PositiveIntegerField(default=200, help_text="A higher priority needs approval.")
    may_evict = models.BooleanField(default=False, help_text="Its requests may evict others of lower priority without approval.")
    may_order = models.BooleanField(default=False, help_text="Nodes may be ordered for its requests from supplies, at their cost.")
    may_skip_checks = models.BooleanField(default=True, help_text="Its requests may skip the checks of nodes without approval.")
    ahead_max_s = models.PositiveBigIntegerField(default=366 * 86_400, help_text="A later start, counted from now, is refused.")
    decide_within_s = models.PositiveBigIntegerField(default=14 * 86_400, help_text="What waits longer for approval is rejected.")
    policy_version = models.PositiveBigIntegerField(default=0, help_text="Number of the last PolicyVersion that changed these fields.")
    shapes = models.JSONField(default=list, help_text="Shapes it may ask for; empty means all.")
    home = models.ForeignKey(
        Cluster,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Preferred cluster; GPRs run elsewhere only to save much time. Null: no preference.",
    )
    burst_gain_s = models.PositiveBigIntegerField(
        default=1800, help_text="Requests run outside the preferred cluster only if that saves more than this."
    )

    ends_at = models.DateTimeField(null=True, blank=True, help_text="It is archived then, and takes no requests any more; null: no end.")
    warned_days = models.PositiveSmallIntegerField(null=True, blank=True, help_text="So many days before its end the last warning was due.")
    pods_max = models.PositiveIntegerField(default=1000, help_text="Pods at once in each of its namespaces.")
    may_reach_out = models.BooleanField(default=False, help_text="Pods may open connections to other networks, including the internet.")
    kubeconfig_max_s = models.PositiveBigIntegerField(default=7 * 86_400, help_text="Maximum lifetime of its kubeconfigs.")
    namespace_patterns = models.JSONField(default=list, help_text="Namespace names that owners may bind without approval.")
    namespaces_max = models.PositiveIntegerField(
        default=20, help_text="Maximum number of namespaces, bound or asked for, over all clusters."
    )

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            closed_has_times("slice_closed_has_times"),
            models.CheckConstraint(condition=Q(kubeconfig_max_s__gte=KUBECONFIG_MIN_S), name="slice_kubeconfig_lives_long_enough"),
            models.CheckConstraint(condition=Q(duration_approval_s__lte=F("duration_max_s")), name="slice_approval_below_maximum"),
            models.CheckConstraint(
                condition=Q(priority_approval__gte=PRIORITY_MIN, priority_approval__lte=PRIORITY_MAX),
                name="slice_priority_in_range",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class TenantOwned:
    """Belongs to a project or to a workspace; a constraint of the model requires one of the two."""

    project: Any
    slice: Any

    @property
    def owner(self) -> Project | Slice:
        owner: Project | Slice = self.project if self.slice is None else self.slice
        return owner

    @property
    def tenant(self) -> Project:
        return self.owner if isinstance(self.owner, Project) else self.owner.project


PLATFORM_POLICY = uuid.UUID(int=1)


@column_checks
class Policy(models.Model):
    """What the platform, a project or a workspace sets itself. What it leaves out it inherits."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.OneToOneField(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="policy")
    slice = models.OneToOneField(Slice, null=True, blank=True, on_delete=models.CASCADE, related_name="policy")
    terms = models.JSONField(default=dict, help_text="Field of the workspace -> value.")
    version = models.PositiveBigIntegerField(default=0, help_text="Number of its last PolicyVersion; 0: never set.")

    class Meta:
        ordering: ClassVar[list[str]] = ["id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(project__isnull=False, slice=None)
                | Q(project=None, slice__isnull=False)
                | Q(project=None, slice=None, id=PLATFORM_POLICY),
                name="policy_has_one_owner",
            ),
        ]

    def __str__(self) -> str:
        return self.slice.name if self.slice else self.project.name if self.project else "platform"

    @property
    def of(self) -> str:
        """Whose it is, in words."""
        return f"workspace {self}" if self.slice else f"project {self}" if self.project else "the platform"


@column_checks
class PolicyVersion(models.Model):
    """One change of one policy; append-only. Ids rise over all policies, so that one id names the state of all of them."""

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="versions")
    made_at = models.DateTimeField()
    made_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+")
    why = models.CharField(max_length=150, blank=True)
    before = models.JSONField(default=dict, help_text="The policy's terms before.")
    terms = models.JSONField(default=dict, help_text="The policy's terms since.")

    class Meta:
        ordering: ClassVar[list[str]] = ["-id"]

    def __str__(self) -> str:
        return f"version {self.pk} of the policy of {self.policy_id}"


@column_checks
class Quota(TenantOwned, models.Model):
    """See docs/quotas.md."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="quotas")
    slice = models.ForeignKey(Slice, null=True, blank=True, on_delete=models.CASCADE, related_name="quotas")
    shape = models.CharField(max_length=63)
    guaranteed_gpus = models.PositiveIntegerField(default=0, help_text="GPUs that the owner is entitled to. GPUs beyond are borrowed.")
    most_gpus = models.PositiveIntegerField(null=True, blank=True, help_text="Maximum number of GPUs held; null: no limit.")
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["shape", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(project__isnull=False, slice=None) | Q(project=None, slice__isnull=False), name="quota_of_project_or_slice"
            ),
            models.UniqueConstraint(fields=["project", "shape"], name="quota_once_per_project_and_shape"),
            models.UniqueConstraint(fields=["slice", "shape"], name="quota_once_per_slice_and_shape"),
            models.CheckConstraint(
                condition=Q(most_gpus=None) | Q(guaranteed_gpus__lte=F("most_gpus")), name="quota_guaranteed_within_most"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.owner.name} {self.shape}"


class Period(models.TextChoices):
    WEEK = "week", "Week"  # from Monday, in UTC
    MONTH = "month", "Month"
    RANGE = "range", "Range of dates"


class AtLimit(models.TextChoices):
    APPROVE = "approve", "Approval"  # a request beyond it waits for an administrator
    REFUSE = "refuse", "Refusal"


@column_checks
class Budget(TenantOwned, models.Model):
    """GPU-hours for each period. See docs/quotas.md."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets")
    slice = models.ForeignKey(Slice, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets")
    shape = models.CharField(max_length=63, blank=True, help_text="Empty: GPUs of all shapes.")
    gpu_hours = models.PositiveIntegerField(help_text="Maximum in each period.")
    period = models.CharField(max_length=5, choices=Period.choices)
    starts_at = models.DateTimeField(null=True, blank=True, help_text="Of a range; null: the period repeats.")
    ends_at = models.DateTimeField(null=True, blank=True)
    at_limit = models.CharField(max_length=7, choices=AtLimit.choices, default=AtLimit.APPROVE)
    created_at = models.DateTimeField()
    warned_at = models.DateTimeField(null=True, blank=True, help_text="Start of the last period whose warning was sent.")
    spent_at = models.DateTimeField(null=True, blank=True, help_text="Start of the last period whose end of hours was told.")

    class Meta:
        ordering: ClassVar[list[str]] = ["shape", "period", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(project__isnull=False, slice=None) | Q(project=None, slice__isnull=False), name="budget_of_project_or_slice"
            ),
            models.CheckConstraint(condition=Q(gpu_hours__gte=1), name="budget_gives_something"),
            models.CheckConstraint(
                condition=Q(period=Period.RANGE, starts_at__lt=F("ends_at")) | (~Q(period=Period.RANGE) & Q(starts_at=None, ends_at=None)),
                name="budget_range_has_its_dates",
            ),
            models.UniqueConstraint(
                fields=["project", "shape", "period"], condition=Q(starts_at=None), name="budget_once_per_project_shape_and_period"
            ),
            models.UniqueConstraint(
                fields=["slice", "shape", "period"], condition=Q(starts_at=None), name="budget_once_per_slice_shape_and_period"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.owner.name} {self.shape or 'all GPUs'} {self.period}"


class Role(models.TextChoices):
    OWNER = "owner", "Owner"  # manages members, namespaces and every GPR of the slice
    EDITOR = "editor", "Editor"  # manages own GPRs
    VIEWER = "viewer", "Viewer"


@column_checks
class Membership(models.Model):
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=6, choices=Role.choices)
    is_by_group = models.BooleanField(default=False, help_text="An identity provider's group gave the role, and its loss takes it.")

    class Meta:
        ordering: ClassVar[list[str]] = ["user__name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["slice", "user"], name="member_once_per_slice"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} is {self.role} of {self.slice_id}"


@column_checks
class ProjectAdmin(models.Model):
    """Runs one project: acts as an owner in all its workspaces, and decides on its requests."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="admins")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="administered_projects")
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["user__name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["project", "user"], name="administrator_once_per_project"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} administers {self.project_id}"


@column_checks
class Deputy(models.Model):
    """Decides for a time on what waits for the approver, who named him. The approver's own rights bound his."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    approver = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="deputies")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="deputy_for")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["-starts_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(starts_at__lt=F("ends_at")), name="deputy_for_some_time"),
            models.CheckConstraint(condition=~Q(approver=F("user")), name="deputy_of_another"),
        ]

    def __str__(self) -> str:
        return f"{self.user.name} for {self.approver.name}"

    @property
    def owner_id(self) -> Any:
        """The id of the person who named the deputy; accounts.policy reads this name."""
        return self.approver_id


@column_checks
class SliceGroup(models.Model):
    """People in this group of this identity provider are members of the workspace, with this role."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="groups")
    provider = models.CharField(max_length=31)
    group = models.CharField(max_length=255)
    role = models.CharField(max_length=6, choices=Role.choices)
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["provider", "group", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["slice", "provider", "group"], name="group_once_per_slice"),
        ]

    def __str__(self) -> str:
        return f"{self.group} of {self.provider} in {self.slice_id}"


@column_checks
class Invitation(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="invitations")
    name = models.CharField(max_length=254, help_text="Name or id of a user, as entered, or a mail address in small letters.")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.CASCADE,
        related_name="+",
        help_text="Who had the name or id at that time. Null: nobody, or it is an address.",
    )
    role = models.CharField(max_length=6, choices=Role.choices)
    invited_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["name", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["slice", "name"], name="invited_once_per_slice"),
        ]

    def __str__(self) -> str:
        return f"{self.name}, invited to {self.slice_id}"


class RequestState(models.TextChoices):
    PENDING = "PENDING", "Waits for a decision"
    APPROVED = "APPROVED", "Approved"
    REFUSED = "REFUSED", "Refused"
    CANCELED = "CANCELED", "Withdrawn"


@column_checks
class WorkspaceRequest(models.Model):
    """Names are as the requester wrote them: he may not know what there is."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    requester = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    name = models.CharField(max_length=63)
    project = models.CharField(max_length=63)
    purpose = models.CharField(max_length=500)
    clusters = models.JSONField(default=list)
    namespaces = models.JSONField(default=list)
    people = models.JSONField(default=dict, help_text="Name -> role.")
    quota = models.JSONField(default=dict, help_text="Shape -> guaranteed GPUs.")
    ends_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField()
    state = models.CharField(max_length=8, choices=RequestState.choices, default=RequestState.PENDING)
    why = models.CharField(max_length=150, blank=True)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    decided_at = models.DateTimeField(null=True)
    slice = models.ForeignKey(Slice, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]

    def __str__(self) -> str:
        return f"request for workspace {self.name}"

    @property
    def owner_id(self) -> Any:
        """The id of the person who filed it; accounts.policy reads this name."""
        return self.requester_id


PENDING = "PENDING"  # waits for an administrator's approval: not bound, and not sent to the agent
NAMESPACE_STATES = [(PENDING, "Pending approval"), *((state.value, state.value.capitalize()) for state in BindingState)]
LIVE_STATES = ("asked", "made", "given")  # of a kubeconfig whose account exists or is to be made


class BoundNamespaces(models.Manager["Namespace"]):
    def get_queryset(self) -> models.QuerySet[Namespace]:
        return super().get_queryset().exclude(state=PENDING)


@column_checks
class Namespace(models.Model):
    """A Kubernetes namespace of one slice. The agent reports `state`, `detail` and `waiting`.

    A PENDING one grants nothing and does not reserve its name, so `objects` excludes it.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="namespaces")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=63)
    created_at = models.DateTimeField()
    may_adopt = models.BooleanField(default=False, help_text="An administrator allows the agent to take over an existing namespace.")
    state = models.CharField(max_length=8, choices=NAMESPACE_STATES, default=BindingState.WAITING.value)
    detail = models.CharField(max_length=DETAIL_MAX_CHARS, blank=True, help_text="Why it is not ready, as a sentence.")
    waiting = models.JSONField(null=True, blank=True, help_text="Last report of waiting GPU pods (PodsWaiting); null: none.")

    objects = BoundNamespaces()
    with_pending: ClassVar[models.Manager[Namespace]] = models.Manager()

    class Meta:
        ordering: ClassVar[list[str]] = ["cluster__name", "name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["cluster", "name"], condition=~Q(state=PENDING), name="namespace_bound_once"),
            models.UniqueConstraint(fields=["slice", "cluster", "name"], name="namespace_asked_once"),
        ]

    def __str__(self) -> str:
        return self.name


@column_checks
class Unbinding(models.Model):
    """Stays until the agent has removed the binding; the name may be bound again."""

    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="unbindings")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=63)
    created_at = models.DateTimeField()
    detail = models.CharField(max_length=DETAIL_MAX_CHARS, blank=True, help_text="Why it is waiting, as a sentence.")

    class Meta:
        ordering: ClassVar[list[str]] = ["cluster__name", "name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["slice", "cluster", "name"], name="namespace_unbound_once"),
        ]

    def __str__(self) -> str:
        return f"{self.name}, given up"


class KubeconfigState(models.TextChoices):
    ASKED = "asked", "Asked for"  # the agent has yet to make its token
    MADE = "made", "Made"  # its token is stored here until it is read
    GIVEN = "given", "In use"  # its user has read it; the hub has deleted the token
    FAILED = "failed", "Failed"
    REVOKED = "revoked", "Revoked"
    EXPIRED = "expired", "Expired"


@column_checks
class Kubeconfig(models.Model):
    """`due_at` limits the time in the present state."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="kubeconfigs")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    namespace = models.CharField(max_length=63, help_text="Namespace of its service account.")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    duration_s = models.PositiveBigIntegerField(help_text="Requested lifetime; the cluster may grant less.")
    state = models.CharField(max_length=7, choices=KubeconfigState.choices, default=KubeconfigState.ASKED)
    detail = models.CharField(max_length=DETAIL_MAX_CHARS, blank=True, help_text="Why it ended, as a sentence.")
    asked_at = models.DateTimeField()
    due_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_generation = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="First generation of the cluster's desired set without this account."
    )
    closed_at = models.DateTimeField(null=True, blank=True, help_text="When the cluster reported that the account is gone.")
    ended_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    token = models.TextField(blank=True)
    server = models.CharField(max_length=253, blank=True)
    ca = models.TextField(blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-asked_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            # The database enforces that a secret is stored only until it is read.
            models.CheckConstraint(condition=Q(token="") | Q(state=KubeconfigState.MADE), name="kubeconfig_token_until_read"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["due_at"], condition=Q(state__in=LIVE_STATES), name="kubeconfig_live"),
            models.Index(fields=["cluster"], condition=Q(ended_at__isnull=False, closed_at=None), name="kubeconfig_open"),
        ]

    def __str__(self) -> str:
        return f"kubeconfig {self.pk}"

    @property
    def name(self) -> str:
        return f"{self.slice.name}@{self.cluster.name}"

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_STATES
