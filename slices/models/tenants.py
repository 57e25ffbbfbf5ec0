from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from core.column_checks import column_checks
from inventory.models import Cluster

PRIORITY_MIN, PRIORITY_MAX, PRIORITY_DEFAULT = 1, 300, 101
KUBECONFIG_MIN_S = 600  # the minimum of the Kubernetes TokenRequest API


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
    ends_at = models.DateTimeField(null=True, blank=True, help_text="It is archived then, and takes no requests any more; null: no end.")

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
    in_league = models.BooleanField(default=True, help_text="Its workspaces are compared by how much of their GPU time they use.")

    class Meta:
        ordering: ClassVar[list[str]] = ["name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [closed_has_times("project_closed_has_times")]

    def __str__(self) -> str:
        return self.name


@column_checks
class Slice(Closable):
    """It is a workspace.

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
    idle_timeout_s = models.PositiveBigIntegerField(
        default=0, help_text="A box whose GPUs do nothing for so long is released; 0: never. Asking for longer needs approval."
    )
    may_keep_idle = models.BooleanField(default=True, help_text="Members may keep an idle box, which begins its time-out anew.")
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
