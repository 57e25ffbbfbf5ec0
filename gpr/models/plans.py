"""One row each: the lock and sums of the stored plan, and what the ticks did."""

from __future__ import annotations

from django.db import models

from core.column_checks import sound_values


@sound_values
class Witness(models.Model):
    """The single row that every writer of slots locks, so that two plans never promise the same nodes."""

    singleton = models.BooleanField(default=True, unique=True)
    # Decaying sums of promised waits, and of the waits that conservative backfill would have promised.
    promised_sum_s = models.FloatField(default=0)
    patient_sum_s = models.FloatField(default=0)
    summed_at = models.DateTimeField(null=True, blank=True)
    ran_sum_s = models.FloatField(default=0, help_text="What boxes used of their time, fading.")
    booked_sum_s = models.FloatField(default=0, help_text="What they had booked of it.")
    has_freed = models.BooleanField(default=False, help_text="A box has ended before its time since the last plan.")

    def __str__(self) -> str:
        return "the witness"


class PlanChange(models.Model):
    """Something that plans read has changed. Triggers write these rows; change_log.py reads them."""

    kind = models.CharField(max_length=5)  # "gpr", "node" or "slice"
    key = models.UUIDField()
    transaction_id = models.BigIntegerField(null=True, db_index=True, help_text="Of PostgreSQL. SQLite commits one after the other.")

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@sound_values
class AllocatorRecord(models.Model):
    """The single row that describes the last ticks of any process."""

    singleton = models.BooleanField(default=True, unique=True)
    last_tick_at = models.DateTimeField(null=True, blank=True, help_text="When the last whole tick began.")
    last_duration_s = models.FloatField(default=0)
    began_at = models.DateTimeField(null=True, blank=True, help_text="When the last tick began, whole or not.")
    away_at = models.DateTimeField(null=True, blank=True, help_text="When EGS was last there before its last absence.")
    back_at = models.DateTimeField(null=True, blank=True, help_text="When it was back.")
    served_at = models.DateTimeField(null=True, blank=True, help_text="When a web server last said that it is there.")
    tick_count = models.PositiveBigIntegerField(default=0)
    kept_count = models.PositiveBigIntegerField(default=0, help_text="Starts by the time first promised.")
    late_count = models.PositiveBigIntegerField(default=0, help_text="Starts after it.")
    planned_event_id = models.BigIntegerField(null=True, blank=True, help_text="The last event that the last plan knew.")
    changes_pruned_to = models.BigIntegerField(default=0, help_text="Up to this transaction, or on SQLite row, changes may be deleted.")
    rests_until_at = models.DateTimeField(
        null=True, blank=True, help_text="Until then only an event makes another plan; null: the next tick does."
    )

    def __str__(self) -> str:
        return "what the allocator did"
