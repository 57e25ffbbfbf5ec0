"""Defines readings of GPUs. Their lane may lose them: the agent sends no batch twice, and the hub may refuse any.

Rates and increases are the agent's, which sees every counter's course. A total never falls unless the driver was loaded anew.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec

from protocol.scalars import Id, Moment, NodeName

TELEMETRY_PATH = "/agent/v1/telemetry"
EVERY_S, EVERY_MAX_S = 15.0, 600.0  # between batches of one GPU, unless the hub asks for longer pauses
GPUS_MAX = 2000  # of a batch
XIDS_MAX, XID_COUNT_MAX = 20, 1_000_000  # different Xids of a reading, and how often each
STALE_S = 60.0  # an older reading says nothing about now


class RollUp(StrEnum):
    """Names the way in which several readings become one."""

    MEAN = "mean"
    MOST = "most"
    SUM = "sum"
    LAST = "last"  # kept as the newest value alone


class Metric(msgspec.Struct, frozen=True):
    name: str
    unit: str
    roll_up: RollUp
    most: int  # a reading beyond it, or below 0, is an error


METRICS: Final = (
    Metric("temperature_c", "°C", RollUp.MOST, 200),
    Metric("memory_temperature_c", "°C", RollUp.MOST, 200),
    Metric("utilization_percent", "%", RollUp.MEAN, 100),
    Metric("memory_used_mib", "MiB", RollUp.MOST, 4_194_304),
    Metric("power_w", "W", RollUp.MEAN, 20_000),
    Metric("sm_clock_mhz", "MHz", RollUp.MEAN, 20_000),
    Metric("tensor_percent", "%", RollUp.MEAN, 100),
    Metric("memory_bandwidth_percent", "%", RollUp.MEAN, 100),
    Metric("nvlink_mib_s", "MiB/s", RollUp.MEAN, 100_000_000),
    Metric("pcie_mib_s", "MiB/s", RollUp.MEAN, 10_000_000),
    Metric("throttled_percent", "% of the time", RollUp.MEAN, 100),
    Metric("new_faults", "faults", RollUp.SUM, 1_000_000_000),  # increases of the totals below, and new Xids
    Metric("xid", "last Xid", RollUp.LAST, 100_000),
    Metric("ecc_corrected", "errors in total", RollUp.LAST, 1_000_000_000),
    Metric("ecc_uncorrected", "errors in total", RollUp.LAST, 1_000_000_000),
    Metric("rows_remapped", "rows in total", RollUp.LAST, 1_000_000_000),
    Metric("rows_failed", "rows in total", RollUp.LAST, 1_000_000_000),
    Metric("pcie_replays", "replays in total", RollUp.LAST, 1_000_000_000),
    Metric("nvlink_errors", "errors in total", RollUp.LAST, 1_000_000_000),
)
NAMES: Final = tuple(metric.name for metric in METRICS)
SERIES: Final = tuple(metric for metric in METRICS if metric.roll_up is not RollUp.LAST)
SUMMED_OVER_PARTS: Final = frozenset({"memory_used_mib", "nvlink_mib_s", "pcie_mib_s"})  # where nobody says what the whole GPU does
FAULT_TOTALS: Final = ("ecc_corrected", "ecc_uncorrected", "rows_remapped", "rows_failed", "pcie_replays", "nvlink_errors")

MetricName = Annotated[str, msgspec.Meta(max_length=63)]


# Number and count. The exporter counts over its last minutes, so a count that falls says nothing, and a lost batch loses no Xid.
XidCount = tuple[Annotated[int, msgspec.Meta(ge=1, le=100_000)], Annotated[int, msgspec.Meta(ge=0, le=XID_COUNT_MAX)]]


class GpuReading(msgspec.Struct, frozen=True, array_like=True):
    """`values` are in the order of the batch's `metrics`; None: not measured."""

    node: NodeName
    gpu: Id  # as in the inventory
    at_s: Moment
    values: tuple[float | None, ...]
    xids: Annotated[tuple[XidCount, ...], msgspec.Meta(max_length=XIDS_MAX)] = ()


class TelemetryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A hub ignores metrics that it does not know."""

    metrics: Annotated[tuple[MetricName, ...], msgspec.Meta(max_length=100)]
    gpus: Annotated[tuple[GpuReading, ...], msgspec.Meta(max_length=GPUS_MAX)]
    dropped: Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)] = 0  # readings that the agent has dropped since its last batch


class TelemetryReply(msgspec.Struct, frozen=True, kw_only=True):
    stored: int
    refused: int = 0  # readings of GPUs that are not in this cluster's inventory, with impossible times, or too soon
    every_s: float = EVERY_S  # the pause that the hub asks for
