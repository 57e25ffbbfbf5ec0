from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from inventory.models import Cluster

PRIORITY_MIN, PRIORITY_MAX, PRIORITY_DEFAULT = 1, 300, 101


class Project(models.Model):
    """A tenant."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]

    def __str__(self) -> str:
        return self.name


class Slice(models.Model):
    """A workspace: the members who share GPRs, and the clusters where those may run.

    Its policy: what exceeds a `…_approval` limit waits for an admin; what exceeds `duration_max_s` is refused.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="slices")
    name = models.CharField(max_length=63, unique=True)
    created_at = models.DateTimeField()
    number = models.PositiveIntegerField(default=0, help_text="In order of creation: its color and mark on pages.")
    clusters = models.ManyToManyField(Cluster, related_name="slices")
    nodes_approval = models.PositiveIntegerField(default=16, help_text="More nodes in one GPR need approval.")
    gpus_approval = models.PositiveIntegerField(default=128, help_text="More GPUs in one GPR need approval.")
    duration_approval_s = models.PositiveBigIntegerField(default=7 * 86_400, help_text="Longer needs approval.")
    duration_max_s = models.PositiveBigIntegerField(default=90 * 86_400, help_text="Longer is refused.")
    priority_approval = models.PositiveIntegerField(default=200, help_text="A higher priority needs approval.")
    may_evict = models.BooleanField(default=False, help_text="Its GPRs may evict others of lower priority without approval.")
    may_order = models.BooleanField(default=False, help_text="Nodes may be ordered for its GPRs from supplies, at their cost.")
    shapes = models.JSONField(default=list, help_text="Shapes it may ask for; empty means all.")
    home = models.ForeignKey(
        Cluster,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="The cluster where its GPRs run unless another saves much time; null: it likes all the same.",
    )
    burst_gain_s = models.PositiveBigIntegerField(default=1800, help_text="Outside its home they run only where that saves more time.")

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(duration_approval_s__lte=F("duration_max_s")), name="slice_approval_below_maximum"),
            models.CheckConstraint(
                condition=Q(priority_approval__gte=PRIORITY_MIN, priority_approval__lte=PRIORITY_MAX),
                name="slice_priority_in_range",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Quota(models.Model):
    """GPUs of one shape for a project, or for a slice out of its project's: see docs/quotas.md."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="quotas")
    slice = models.ForeignKey(Slice, null=True, blank=True, on_delete=models.CASCADE, related_name="quotas")
    shape = models.CharField(max_length=63)
    guaranteed_gpus = models.PositiveIntegerField(default=0, help_text="To these it is entitled; what it holds beyond is borrowed.")
    most_gpus = models.PositiveIntegerField(null=True, blank=True, help_text="It never holds more; null: no limit.")
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

    @property
    def owner(self) -> Project | Slice:
        if self.slice is not None:
            return self.slice
        return self.project  # type: ignore[return-value]  # the database holds it to one of the two

    @property
    def tenant(self) -> Project:
        """The project that it is of, or that its slice is of."""
        return self.owner if isinstance(self.owner, Project) else self.owner.project


class Role(models.TextChoices):
    OWNER = "owner", "Owner"  # members, namespaces, and every GPR of the slice
    EDITOR = "editor", "Editor"  # its own GPRs
    VIEWER = "viewer", "Viewer"


class Membership(models.Model):
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=6, choices=Role.choices)

    class Meta:
        ordering: ClassVar[list[str]] = ["user__name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["slice", "user"], name="member_once_per_slice"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} is {self.role} of {self.slice_id}"


class Namespace(models.Model):
    """A Kubernetes namespace bound to a slice: its pods may use the slice's nodes, and no other slice may bind it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slice = models.ForeignKey(Slice, on_delete=models.CASCADE, related_name="namespaces")
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=63)
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["cluster__name", "name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["cluster", "name"], name="namespace_bound_once"),
        ]

    def __str__(self) -> str:
        return self.name
