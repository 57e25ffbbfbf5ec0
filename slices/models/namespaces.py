from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from inventory.models import Cluster
from protocol.tenancy.workspaces import BindingState
from slices.models.tenants import Slice

DETAIL_MAX_CHARS = 300
PENDING = "PENDING"  # waits for an administrator's approval: not bound, and not sent to the agent
NAMESPACE_STATES = [(PENDING, "Pending approval"), *((state.value, state.value.capitalize()) for state in BindingState)]


class BoundNamespaces(models.Manager["Namespace"]):
    def get_queryset(self) -> models.QuerySet[Namespace]:
        return super().get_queryset().exclude(state=PENDING)


@column_checks
class Namespace(models.Model):
    """It is a Kubernetes namespace of one slice. The agent reports `state`, `detail` and `waiting`.

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
