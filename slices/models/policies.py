from __future__ import annotations

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from slices.models.tenants import Project, Slice

PLATFORM_POLICY = uuid.UUID(int=1)


@column_checks
class Policy(models.Model):
    """Holds the terms that the platform, a project or a workspace sets itself. It inherits omitted terms."""

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
        """Names its owner: the platform, a project or a workspace."""
        return f"workspace {self}" if self.slice else f"project {self}" if self.project else "the platform"


@column_checks
class PolicyVersion(models.Model):
    """Records one change of one policy; append-only. Ids rise over all policies, so that one id names the state of all of them."""

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
