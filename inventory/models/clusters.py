from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from core.column_checks import column_checks

DRAIN_MAX_S = 86_400


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
