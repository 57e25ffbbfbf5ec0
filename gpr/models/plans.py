"""Has the tables about the stored plan and the ticks. `PlanRecord` and `AllocatorRecord` have one row each."""

from __future__ import annotations

from django.db import models

from core.column_checks import column_checks


@column_checks
class PlanRecord(models.Model):
    """Holds the single row of sums that plans keep from one to the next. Writers hold the plan lock."""

    singleton = models.BooleanField(default=True, unique=True)
    # Decaying sums of promised waits, and of the waits that conservative backfill would have promised.
    promised_sum_s = models.FloatField(default=0)
    patient_sum_s = models.FloatField(default=0)
    summed_at = models.DateTimeField(null=True, blank=True)
    ran_sum_s = models.FloatField(default=0, help_text="Box time used, decayed.")
    booked_sum_s = models.FloatField(default=0, help_text="Box time booked, decayed.")
    has_freed = models.BooleanField(default=False, help_text="A box has ended early since the last plan.")
    explained = models.UUIDField(null=True, help_text="Drawn anew by each plan that stores explanations.")

    def __str__(self) -> str:
        return "the stored plan"


class PlanChange(models.Model):
    """Records that something has changed that plans read. Triggers write these rows; change_log.py reads them."""

    kind = models.CharField(max_length=8)  # "gpr", "node", "slice" or "settings"
    key = models.UUIDField()
    transaction_id = models.BigIntegerField(
        null=True, db_index=True, help_text="PostgreSQL's transaction. Null on SQLite, which commits in order."
    )

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@column_checks
class AllocatorRecord(models.Model):
    """Describes the last ticks of any process in a single row."""

    singleton = models.BooleanField(default=True, unique=True)
    last_tick_at = models.DateTimeField(null=True, blank=True, help_text="Start of the last finished tick.")
    last_duration_s = models.FloatField(default=0)
    began_at = models.DateTimeField(null=True, blank=True, help_text="Start of the last tick, finished or not.")
    away_at = models.DateTimeField(null=True, blank=True, help_text="Last sign of EGS before its last outage.")
    back_at = models.DateTimeField(null=True, blank=True, help_text="End of that outage.")
    served_at = models.DateTimeField(null=True, blank=True, help_text="Last sign of a web server.")
    tick_count = models.PositiveBigIntegerField(default=0)
    kept_count = models.PositiveBigIntegerField(default=0, help_text="Starts by the first promised time.")
    late_count = models.PositiveBigIntegerField(default=0, help_text="Starts after the first promised time.")
    planned_event_id = models.BigIntegerField(null=True, blank=True, help_text="Newest Event in the last plan.")
    changes_pruned_to = models.BigIntegerField(default=0, help_text="Changes up to this transaction (SQLite: row) may be deleted.")
    rests_until_at = models.DateTimeField(
        null=True, blank=True, help_text="No new plan before this time unless something happens; null: plan at the next tick."
    )

    def __str__(self) -> str:
        return "what the allocator did"
