from __future__ import annotations

import uuid
from datetime import datetime
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from core.column_checks import column_checks
from journal.models import Severity
from observability.xid_counts import XID_COUNTS_MAX_CHARS
from protocol.gpus.telemetry import FAULT_TOTALS

LEVEL_MOST = 1e9
WINDOW_LEAST_S, WINDOW_MOST_S = 60, 2 * 86_400
HOLD_MOST_S = 7 * 86_400
RUNBOOK_MAX_CHARS = 1000


class RuleKind(models.TextChoices):
    THRESHOLD = "threshold", "The value is beyond the level"
    RATE = "rate", "So many are counted within the window"
    TREND = "trend", "The value moves by so much within the window, steadily"
    FORECAST = "forecast", "Going on like this, the value is beyond the level one window from now"
    ABSENCE = "absence", "Nothing was heard for so many seconds"


class Direction(models.TextChoices):
    ABOVE = "above", "At the level or above"
    BELOW = "below", "At the level or below"


class Tells(models.TextChoices):
    ADMINS = "admins", "Administrators"
    BOX = "box", "Those whose box or workspace it is"
    BOTH = "both", "Administrators, and those whose box or workspace it is"
    NOBODY = "nobody", "Nobody: administrators see it in the list"


@column_checks
class AlertRule(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=80)
    code = models.CharField(max_length=40, blank=True, help_text="Names a rule that EGS brings; empty: somebody made it.")
    slice = models.ForeignKey(
        "slices.Slice", null=True, blank=True, on_delete=models.CASCADE, related_name="+", help_text="Watches this workspace's boxes alone."
    )
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+", help_text="Null: EGS.")
    signal = models.CharField(max_length=40)
    kind = models.CharField(max_length=9, choices=RuleKind.choices)
    direction = models.CharField(max_length=5, choices=Direction.choices, default=Direction.ABOVE)
    level = models.FloatField()
    clear_level = models.FloatField(help_text="The alert ends when the value is back beyond this.")
    severe_level = models.FloatField(null=True, blank=True, help_text="From here on it is an error.")
    window_s = models.PositiveIntegerField(default=WINDOW_LEAST_S, help_text="Of rates, trends and forecasts.")
    hold_s = models.PositiveIntegerField(default=0, help_text="How long it must last before it fires.")
    clear_s = models.PositiveIntegerField(default=0, help_text="How long it must be over before it is resolved.")
    severity = models.CharField(max_length=7, choices=Severity.choices)
    cluster = models.ForeignKey("inventory.Cluster", null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    shape = models.CharField(max_length=63, blank=True, help_text="Empty: all shapes.")
    tells = models.CharField(max_length=6, choices=Tells.choices, default=Tells.ADMINS)
    is_on = models.BooleanField(default=True)
    runbook = models.TextField(blank=True, max_length=RUNBOOK_MAX_CHARS, help_text="What to do.")
    created_at = models.DateTimeField()
    judged_at = models.DateTimeField(null=True, blank=True, help_text="Last time that a trend or forecast was computed.")

    class Meta:
        ordering: ClassVar[list[str]] = ["name", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["code"], condition=~Q(code=""), name="alert_rule_code_once"),
            models.CheckConstraint(condition=Q(level__range=(-LEVEL_MOST, LEVEL_MOST)), name="alert_rule_level_in_range"),
            models.CheckConstraint(
                condition=Q(direction="above", clear_level__lte=F("level")) | Q(direction="below", clear_level__gte=F("level")),
                name="alert_rule_clears_on_the_good_side",
            ),
            models.CheckConstraint(
                condition=Q(severe_level=None)
                | Q(direction="above", severe_level__gt=F("level"))
                | Q(direction="below", severe_level__lt=F("level")),
                name="alert_rule_severe_is_worse",
            ),
            models.CheckConstraint(
                condition=Q(window_s__range=(WINDOW_LEAST_S, WINDOW_MOST_S), hold_s__lte=HOLD_MOST_S, clear_s__lte=HOLD_MOST_S),
                name="alert_rule_times_in_range",
            ),
            models.CheckConstraint(condition=Q(slice=None) | Q(tells="box"), name="alert_rule_of_workspace_tells_its_people"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_for_admins(self) -> bool:
        return self.slice_id is None and self.tells != Tells.BOX

    @property
    def is_for_boxes(self) -> bool:
        return self.tells in {Tells.BOX, Tells.BOTH}

    def is_beyond(self, value: float, level: float | None = None) -> bool:
        level = self.level if level is None else level
        return value >= level if self.direction == Direction.ABOVE else value <= level

    def is_clear(self, value: float) -> bool:
        return value < self.clear_level if self.direction == Direction.ABOVE else value > self.clear_level

    def is_clear_beyond_level(self) -> bool:
        return not self.is_worse(self.clear_level, self.level)

    def is_worse(self, value: float, than: float) -> bool:
        return value > than if self.direction == Direction.ABOVE else value < than


class AlertState(models.TextChoices):
    PENDING = "PENDING", "Pending"
    FIRING = "FIRING", "Firing"
    ACKNOWLEDGED = "ACKNOWLEDGED", "Acknowledged"
    RESOLVED = "RESOLVED", "Resolved"


@column_checks
class Alert(models.Model):
    """It has one cause: an alert has all subjects that one rule finds at about the same time in one cluster or box.

    Without a workspace it is for administrators. An alert of a workspace is for its people, and knows nothing but their time and their
    GPUs.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="alerts")
    slice = models.ForeignKey("slices.Slice", null=True, on_delete=models.CASCADE, related_name="+")
    gpr = models.ForeignKey("gpr.Gpr", null=True, on_delete=models.CASCADE, related_name="+")
    cluster = models.ForeignKey("inventory.Cluster", null=True, on_delete=models.CASCADE, related_name="+")
    state = models.CharField(max_length=12, choices=AlertState.choices, default=AlertState.PENDING)
    severity = models.CharField(max_length=7, choices=Severity.choices)
    began_at = models.DateTimeField()
    joined_at = models.DateTimeField(help_text="When the last subject joined.")
    fired_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+", help_text="Who takes care of it."
    )
    note = models.CharField(max_length=200, blank=True, help_text="What its owner says.")
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolved_why = models.CharField(max_length=100, blank=True)
    places = models.CharField(max_length=200, help_text="Names of some subjects.")
    firing_count = models.PositiveIntegerField(default=0, help_text="Subjects that fire now.")
    most_count = models.PositiveIntegerField(default=0, help_text="Most subjects that fired at once.")
    worst = models.FloatField(null=True, blank=True)
    told_at = models.DateTimeField(null=True, blank=True, help_text="When people were told last.")
    told_count = models.PositiveIntegerField(default=0, help_text="Subjects that this named.")

    class Meta:
        ordering: ClassVar[list[str]] = ["-began_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(state="RESOLVED", resolved_at__isnull=False) | (~Q(state="RESOLVED") & Q(resolved_at=None)),
                name="alert_resolved_at_says_resolved",
            ),
            models.CheckConstraint(
                condition=Q(state="PENDING", fired_at=None) | (~Q(state="PENDING") & Q(fired_at__isnull=False)),
                name="alert_fired_at_says_fired",
            ),
            models.CheckConstraint(
                condition=~Q(state="ACKNOWLEDGED") | Q(acknowledged_at__isnull=False, owner__isnull=False), name="alert_acknowledged_by_one"
            ),
            models.CheckConstraint(condition=Q(gpr=None) | Q(slice__isnull=False), name="alert_of_box_has_workspace"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["rule"], condition=~Q(state="RESOLVED"), name="alert_open"),
            models.Index(fields=["-began_at", "id"], name="alert_newest"),
            models.Index(fields=["slice", "-began_at"], name="alert_of_slice"),
            models.Index(fields=["told_at"], name="alert_told"),
            models.Index(fields=["state"], condition=Q(told_count__gt=0), name="alert_to_be_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.rule_id} at {self.places}"


class SubjectState(models.TextChoices):
    PENDING = "PENDING", "Pending"
    FIRING = "FIRING", "Firing"
    OVER = "OVER", "Over"


@column_checks
class AlertSubject(models.Model):
    """Holds the subject of an alert (a GPU, a node, a cluster, a request, a quota or a budget) and how far its condition has come."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="subjects")
    rule = models.ForeignKey(AlertRule, on_delete=models.CASCADE, related_name="+")
    subject_id = models.UUIDField()
    node_id = models.UUIDField(null=True)
    key = models.CharField(max_length=80, help_text="The subject, and for whom it is watched.")
    name = models.CharField(max_length=330)
    state = models.CharField(max_length=7, choices=SubjectState.choices, default=SubjectState.PENDING)
    since_at = models.DateTimeField()
    fired_at = models.DateTimeField(null=True, blank=True)
    severe_since_at = models.DateTimeField(null=True, blank=True)
    is_severe = models.BooleanField(default=False)
    clear_since_at = models.DateTimeField(null=True, blank=True)
    unmeasured_since_at = models.DateTimeField(null=True, blank=True)
    over_at = models.DateTimeField(null=True, blank=True)
    first = models.FloatField(help_text="The value with which it began.")
    worst = models.FloatField()

    class Meta:
        ordering: ClassVar[list[str]] = ["name", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["rule", "key"], condition=~Q(state="OVER"), name="alert_subject_open_once"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["subject_id", "since_at"], name="alert_subject_course"),
        ]

    def __str__(self) -> str:
        return self.name


@column_checks
class AlertSilence(models.Model):
    """While it lasts nobody is told of the alerts that match. A silence of a workspace is for its people alone."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slice = models.ForeignKey("slices.Slice", null=True, on_delete=models.CASCADE, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    rule = models.ForeignKey(AlertRule, null=True, on_delete=models.CASCADE, related_name="+")
    cluster = models.ForeignKey("inventory.Cluster", null=True, on_delete=models.CASCADE, related_name="+")
    node = models.ForeignKey("inventory.Node", null=True, on_delete=models.CASCADE, related_name="+")
    alert = models.ForeignKey(Alert, null=True, on_delete=models.CASCADE, related_name="silences")
    reason = models.CharField(max_length=200)
    created_at = models.DateTimeField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar[list[str]] = ["-created_at", "id"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(starts_at__lte=F("ends_at")), name="alert_silence_starts_before_it_ends"),
        ]
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["ends_at"], name="alert_silence_end")]

    def __str__(self) -> str:
        return f"silence to {self.ends_at:%Y-%m-%d %H:%M}"

    def is_running(self, now: datetime) -> bool:
        return self.starts_at <= now < self.ends_at


class CounterState(models.Model):
    """Holds a GPU's totals as of when they were last seen to change."""

    gpu = models.OneToOneField("inventory.Gpu", primary_key=True, on_delete=models.CASCADE, related_name="counter_state")
    at = models.DateTimeField()
    xid = models.IntegerField(null=True)
    xid_counts = models.CharField(max_length=XID_COUNTS_MAX_CHARS, blank=True, default="")
    ecc_corrected = models.IntegerField(null=True)
    ecc_uncorrected = models.IntegerField(null=True)
    rows_remapped = models.IntegerField(null=True)
    rows_failed = models.IntegerField(null=True)
    pcie_replays = models.IntegerField(null=True)
    nvlink_errors = models.IntegerField(null=True)

    TOTALS: ClassVar[tuple[str, ...]] = FAULT_TOTALS

    def __str__(self) -> str:
        return f"counters of {self.gpu_id}"


@column_checks
class CounterIncrease(models.Model):
    gpu = models.ForeignKey("inventory.Gpu", on_delete=models.CASCADE, related_name="+")
    gpr_id = models.UUIDField(null=True, help_text="The box that held the GPU all the time since the reading before.")
    signal = models.CharField(max_length=40)
    count = models.PositiveIntegerField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        ordering: ClassVar[list[str]] = ["id"]

    def __str__(self) -> str:
        return f"{self.signal} of {self.gpu_id}: {self.count} more"


@column_checks
class SignalSample(models.Model):
    """Keeps the course of a signal of a tenant, for trends and forecasts."""

    signal = models.CharField(max_length=40)
    subject_id = models.UUIDField()
    at = models.DateTimeField()
    value = models.FloatField()

    class Meta:
        ordering: ClassVar[list[str]] = ["id"]
        indexes: ClassVar[list[models.Index]] = [models.Index(fields=["signal", "at"], name="signal_sample_course")]

    def __str__(self) -> str:
        return f"{self.signal} of {self.subject_id}"
