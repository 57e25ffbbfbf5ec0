# `make client` writes this file. Do not edit it.

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from egs_client.models.shared import Holder


class Reading(Struct, kw_only=True):
    """Null: not measured. Members are told none of the counts that began before their box."""

    at: datetime
    temperature_c: int | None
    memory_temperature_c: int | None
    utilization_percent: int | None
    memory_used_mib: int | None
    power_w: int | None
    sm_clock_mhz: int | None
    tensor_percent: int | None
    memory_bandwidth_percent: int | None
    nvlink_mib_s: int | None
    pcie_mib_s: int | None
    throttled_percent: int | None
    new_faults: int | None
    xid: int | None
    ecc_corrected: int | None
    ecc_uncorrected: int | None
    rows_remapped: int | None
    rows_failed: int | None
    pcie_replays: int | None
    nvlink_errors: int | None


class Hotspot(Struct, kw_only=True):
    id: str
    name: str
    index: int
    node_id: str
    node: str
    cluster_id: str
    cluster: str
    shape: str
    model: str
    is_stale: bool
    reading: Reading | None
    held_by: Holder | None
