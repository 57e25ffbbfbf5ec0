from __future__ import annotations

import uuid
from typing import Any, ClassVar, Final

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from core.column_checks import column_checks
from inventory.models import Cluster
from slices.models.tenants import Project, Slice


class Role(models.TextChoices):
    OWNER = "owner", "Owner"  # manages members, namespaces and every GPR of the slice
    EDITOR = "editor", "Editor"  # manages own GPRs
    VIEWER = "viewer", "Viewer"


ROLES_OF_SERVICES: Final = [(role.value, role.label) for role in (Role.VIEWER, Role.EDITOR)]  # a program owns no workspace


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
class ServiceAccount(models.Model):
    """It is a program that acts in one workspace, by tokens or as a service account of a cluster. Its membership holds its role."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, primary_key=True, related_name="service_account")
    slice = models.ForeignKey(Slice, on_delete=models.PROTECT, related_name="service_accounts")
    cluster = models.ForeignKey(Cluster, null=True, blank=True, on_delete=models.PROTECT, related_name="+", help_text="Null: made in EGS.")
    cluster_user = models.CharField(max_length=253, blank=True, help_text="Its user name in that cluster; empty: made in EGS.")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField()
    deleted_at = models.DateTimeField(null=True, help_text="The row keeps its name for the workspace. Null: it is not deleted.")

    class Meta:
        ordering: ClassVar[list[str]] = ["user__name"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["slice", "cluster", "cluster_user"], name="service_account_once_per_slice"),
            models.CheckConstraint(
                condition=Q(cluster=None, cluster_user="") | (Q(cluster__isnull=False) & ~Q(cluster_user="")),
                name="service_account_of_cluster_or_tokens",
            ),
        ]

    def __str__(self) -> str:
        return f"service account {self.user_id} of {self.slice_id}"


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
        """Returns the id of the person who named the deputy; accounts.policy reads this name."""
        return self.approver_id


@column_checks
class SliceGroup(models.Model):
    """Makes people in this group of this identity provider members of the workspace, with this role."""

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
