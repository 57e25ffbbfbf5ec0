"""Stores readings of GPUs. Columns are the metrics of protocol.gpus.telemetry; null: not measured.

PostgreSQL partitions the three courses by day (observability/telemetry/partitions.py).
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Final

from django.db import models

from observability.remediation.models import FaultCount, RemediationCase, RemediationPolicy
from observability.xid_counts import XID_COUNTS_MAX_CHARS

__all__ = [
    "LEVELS",
    "FaultCount",
    "LatestReading",
    "Reading",
    "Reading1m",
    "Reading10m",
    "Reading15s",
    "RemediationCase",
    "RemediationPolicy",
    "RollUpProgress",
]


class SeriesColumns(models.Model):
    temperature_c = models.SmallIntegerField(null=True)
    memory_temperature_c = models.SmallIntegerField(null=True)
    utilization_percent = models.SmallIntegerField(null=True)
    memory_used_mib = models.IntegerField(null=True)
    power_w = models.SmallIntegerField(null=True)
    sm_clock_mhz = models.SmallIntegerField(null=True)
    tensor_percent = models.SmallIntegerField(null=True)
    memory_bandwidth_percent = models.SmallIntegerField(null=True)
    nvlink_mib_s = models.IntegerField(null=True)
    pcie_mib_s = models.IntegerField(null=True)
    throttled_percent = models.SmallIntegerField(null=True)
    new_faults = models.IntegerField(null=True)

    class Meta:
        abstract = True


class LatestReading(SeriesColumns):
    """Holds the newest reading of a GPU. Its id is the key of the GPU's course, since a UUID would double the size of the rows there.

    Each reading updates the row, so no changing column has an index.
    """

    gpu = models.OneToOneField("inventory.Gpu", on_delete=models.CASCADE, related_name="latest_reading")
    at = models.DateTimeField()
    xid = models.IntegerField(null=True)
    xid_counts = models.CharField(max_length=XID_COUNTS_MAX_CHARS, blank=True, default="")
    ecc_corrected = models.IntegerField(null=True)
    ecc_uncorrected = models.IntegerField(null=True)
    rows_remapped = models.IntegerField(null=True)
    rows_failed = models.IntegerField(null=True)
    pcie_replays = models.IntegerField(null=True)
    nvlink_errors = models.IntegerField(null=True)

    def __str__(self) -> str:
        return f"reading of {self.gpu_id} at {self.at:%Y-%m-%d %H:%M:%S}"


class Reading(SeriesColumns):
    """It is over `[at, at + STEP)`."""

    STEP: ClassVar[timedelta]
    KEPT: ClassVar[timedelta]

    pk = models.CompositePrimaryKey("series_id", "at")
    series_id = models.BigIntegerField(help_text="Id of the GPU's LatestReading.")
    at = models.DateTimeField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.series_id} at {self.at:%Y-%m-%d %H:%M:%S}"


class Reading15s(Reading):
    STEP, KEPT = timedelta(seconds=15), timedelta(days=1)


class Reading1m(Reading):
    STEP, KEPT = timedelta(minutes=1), timedelta(days=7)


class Reading10m(Reading):
    STEP, KEPT = timedelta(minutes=10), timedelta(days=90)


LEVELS: Final[tuple[type[Reading], ...]] = (Reading15s, Reading1m, Reading10m)  # each rolls up the one before it


class RollUpProgress(models.Model):
    """Holds the time up to which a course has been made from the finer one."""

    table = models.CharField(max_length=63, primary_key=True)
    done_at = models.DateTimeField(help_text="All before this time is rolled up.")

    def __str__(self) -> str:
        return f"{self.table} to {self.done_at}"


from observability.alerts import models as alert_models  # noqa: E402, F401  # else Django does not find them
from observability.prometheus.models import PrometheusSource  # noqa: E402, F401  # else Django does not find them
from observability.workloads.models import Pod, Workload  # noqa: E402, F401  # else Django does not find them
