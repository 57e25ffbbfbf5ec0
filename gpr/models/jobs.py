from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

from core.column_checks import column_checks
from gpr.models.gprs import ENDED_WELL, Gpr
from protocol.tenancy.workloads import WorkloadKind, WorkloadPhase

RETRIES_MAX = 100
USER_ID_DEFAULT = 1000


class JobState(models.TextChoices):
    """Follows from the GPR's state and what the agent saw."""

    WAITING = "WAITING", "Waiting"
    STARTING = "STARTING", "Starting"
    RUNNING = "RUNNING", "Running"
    STOPPING = "STOPPING", "Stopping"
    SUCCEEDED = "SUCCEEDED", "Succeeded"
    FAILED = "FAILED", "Failed"
    STOPPED = "STOPPED", "Stopped before it was done"


class JobOutcome(models.TextChoices):
    SUCCEEDED = "SUCCEEDED", "Succeeded"
    FAILED = "FAILED", "Failed"


def ended_well(state: str, job_outcome: str | None) -> bool:
    """Tell whether a GPR in this state had its time or was given back, and its job, if it had one, succeeded."""
    return state in ENDED_WELL and job_outcome in {None, JobOutcome.SUCCEEDED}


KINDS = [(kind.value, kind.value) for kind in WorkloadKind]
PHASES = [(phase.value, phase.value.capitalize()) for phase in WorkloadPhase]


@column_checks
class Job(models.Model):
    """Runs in the box of one GPR. Its name, workspace and owner are those of the GPR."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    gpr = models.OneToOneField(Gpr, on_delete=models.PROTECT, related_name="job")
    created_at = models.DateTimeField()
    kind = models.CharField(max_length=12, choices=KINDS, default=WorkloadKind.JOB.value)
    image = models.CharField(max_length=500, blank=True)
    command = models.JSONField(default=list, blank=True)
    env = models.JSONField(default=dict, blank=True)
    secrets = models.JSONField(default=list, blank=True, help_text="Secrets of the namespace whose values it gets as environment.")
    volumes = models.JSONField(default=dict, blank=True, help_text="By PersistentVolumeClaim of the namespace: where it is mounted.")
    pull_secret = models.CharField(max_length=253, blank=True)
    user_id = models.PositiveIntegerField(default=USER_ID_DEFAULT)
    retries = models.PositiveIntegerField(default=0)
    checkpoint = models.JSONField(default=list, blank=True, help_text="A command that runs in each pod before it is ended.")
    objects_wanted = models.JSONField(default=list, blank=True, help_text="Of a manifest.")
    namespace = models.CharField(max_length=63, blank=True, help_text="Empty: the first of the workspace in the cluster.")
    token_sealed = models.TextField(blank=True, help_text="The encrypted token of a notebook.")
    releases_box = models.BooleanField(default=True, help_text="When it has finished, the nodes are given back before their time.")
    # The agent's last view, in the run of this number.
    seen_run = models.PositiveIntegerField(default=0)
    phase = models.CharField(max_length=9, choices=PHASES, blank=True)
    message = models.CharField(max_length=500, blank=True)
    pods_running = models.PositiveIntegerField(default=0)
    seen_namespace = models.CharField(max_length=63, blank=True)
    url = models.CharField(max_length=300, blank=True, help_text="Of a notebook behind the ingress of its cluster.")
    outcome = models.CharField(max_length=9, choices=JobOutcome.choices, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(retries__lte=RETRIES_MAX), name="job_retries_within_bounds"),
            models.CheckConstraint(condition=Q(outcome="") | Q(finished_at__isnull=False), name="job_outcome_has_a_time"),
        ]
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["-created_at", "id"], name="job_newest")]

    def __str__(self) -> str:
        return str(self.gpr_id)


@column_checks
class JobLog(models.Model):
    """Holds the last output of one pod of a job."""

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="logs")
    rank = models.PositiveIntegerField()
    run = models.PositiveIntegerField(default=0)
    text = models.TextField(blank=True)
    dropped = models.PositiveBigIntegerField(default=0, help_text="Characters of earlier output that are not kept any more.")
    until = models.CharField(max_length=40, blank=True, help_text="Time of the last line, as the cluster wrote it.")
    wanted_until_at = models.DateTimeField(help_text="Until then the agent sends what comes.")

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["job", "rank"], name="job_log_once_for_each_pod"),
        ]
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["wanted_until_at"], name="job_log_wanted")]

    def __str__(self) -> str:
        return f"{self.job_id}/{self.rank}"
