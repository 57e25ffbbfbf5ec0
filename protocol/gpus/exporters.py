"""Lists names, labels and units of the exporters of each vendor.

Sources: default-counters.csv of dcgm-exporter 3.x and 4.x, the metrics list of AMD's device-metrics-exporter, and the Prometheus exporter
of Intel's XPU Manager 1.x.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

MIB: Final = 1024 * 1024


class Reads(StrEnum):
    VALUE = "value"
    RATE = "rate"  # a counter: its increase in a second
    TOTAL = "total"  # a counter: its value


class Source(NamedTuple):
    metric: str  # of protocol.gpus.telemetry
    rank: int  # of several sources the lowest counts
    scale: float = 1.0
    reads: Reads = Reads.VALUE
    is_part: bool = False  # sources of one rank are added up: directions, kinds of errors
    only: tuple[str, str] | None = None  # a label that the row must have
    adds: str = ""  # rows that differ in this label are added up
    by: str = ""  # the number in this label says what is counted


def _dcgm(field: str) -> bytes:
    return f"DCGM_FI_{field}".encode()


SOURCES: Final[dict[bytes, Source]] = {
    # NVIDIA
    _dcgm("DEV_GPU_TEMP"): Source("temperature_c", 0),
    _dcgm("DEV_MEMORY_TEMP"): Source("memory_temperature_c", 0),
    _dcgm("DEV_GPU_UTIL"): Source("utilization_percent", 0),
    _dcgm("PROF_GR_ENGINE_ACTIVE"): Source("utilization_percent", 1, 100),  # where MIG hides the former
    _dcgm("DEV_FB_USED"): Source("memory_used_mib", 0),
    _dcgm("DEV_POWER_USAGE"): Source("power_w", 0),
    _dcgm("DEV_SM_CLOCK"): Source("sm_clock_mhz", 0),
    _dcgm("PROF_PIPE_TENSOR_ACTIVE"): Source("tensor_percent", 0, 100),
    _dcgm("PROF_DRAM_ACTIVE"): Source("memory_bandwidth_percent", 0, 100),
    _dcgm("DEV_MEM_COPY_UTIL"): Source("memory_bandwidth_percent", 1),
    _dcgm("PROF_NVLINK_TX_BYTES"): Source("nvlink_mib_s", 0, 1 / MIB, is_part=True),
    _dcgm("PROF_NVLINK_RX_BYTES"): Source("nvlink_mib_s", 0, 1 / MIB, is_part=True),
    _dcgm("PROF_PCIE_TX_BYTES"): Source("pcie_mib_s", 0, 1 / MIB, is_part=True),
    _dcgm("PROF_PCIE_RX_BYTES"): Source("pcie_mib_s", 0, 1 / MIB, is_part=True),
    _dcgm("DEV_POWER_VIOLATION"): Source("throttled_percent", 0, 1e-7, Reads.RATE, is_part=True),  # ns
    _dcgm("DEV_THERMAL_VIOLATION"): Source("throttled_percent", 0, 1e-7, Reads.RATE, is_part=True),
    _dcgm("DEV_XID_ERRORS"): Source("xid", 0),
    b"DCGM_EXP_XID_ERRORS_COUNT": Source("xid_counts", 0, by="xid"),  # over the last minutes
    _dcgm("DEV_ECC_SBE_VOL_TOTAL"): Source("ecc_corrected", 0, reads=Reads.TOTAL),
    _dcgm("DEV_ECC_SBE_AGG_TOTAL"): Source("ecc_corrected", 1, reads=Reads.TOTAL),
    _dcgm("DEV_ECC_DBE_VOL_TOTAL"): Source("ecc_uncorrected", 0, reads=Reads.TOTAL),
    _dcgm("DEV_ECC_DBE_AGG_TOTAL"): Source("ecc_uncorrected", 1, reads=Reads.TOTAL),
    _dcgm("DEV_UNCORRECTABLE_REMAPPED_ROWS"): Source("rows_remapped", 0, reads=Reads.TOTAL, is_part=True),
    _dcgm("DEV_CORRECTABLE_REMAPPED_ROWS"): Source("rows_remapped", 0, reads=Reads.TOTAL, is_part=True),
    _dcgm("DEV_ROW_REMAP_FAILURE"): Source("rows_failed", 0, reads=Reads.TOTAL),
    _dcgm("DEV_PCIE_REPLAY_COUNTER"): Source("pcie_replays", 0, reads=Reads.TOTAL),
    _dcgm("DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"): Source("nvlink_errors", 0, reads=Reads.TOTAL, is_part=True, adds="nvlink"),
    _dcgm("DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"): Source("nvlink_errors", 0, reads=Reads.TOTAL, is_part=True, adds="nvlink"),
    _dcgm("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"): Source("nvlink_errors", 0, reads=Reads.TOTAL, is_part=True, adds="nvlink"),
    _dcgm("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"): Source("nvlink_errors", 0, reads=Reads.TOTAL, is_part=True, adds="nvlink"),
    # AMD; some charts add the prefix `amd_`
    b"gpu_junction_temperature": Source("temperature_c", 0),
    b"gpu_edge_temperature": Source("temperature_c", 1),
    b"gpu_memory_temperature": Source("memory_temperature_c", 0),
    b"gpu_gfx_activity": Source("utilization_percent", 0),
    b"gpu_umc_activity": Source("memory_bandwidth_percent", 0),
    b"gpu_used_vram": Source("memory_used_mib", 0),
    b"gpu_package_power": Source("power_w", 0),
    b"gpu_average_package_power": Source("power_w", 1),
    b"gpu_power_usage": Source("power_w", 2),
    b"gpu_clock": Source("sm_clock_mhz", 0, only=("clock_type", "GPU_CLOCK_TYPE_SYSTEM")),
    b"pcie_replay_count": Source("pcie_replays", 0, reads=Reads.TOTAL),
    b"gpu_ecc_correct_total": Source("ecc_corrected", 0, reads=Reads.TOTAL),
    b"gpu_ecc_uncorrect_total": Source("ecc_uncorrected", 0, reads=Reads.TOTAL),
    # Intel
    b"xpum_temperature_celsius": Source("temperature_c", 0, only=("location", "gpu")),
    b"xpum_max_temperature_celsius": Source("temperature_c", 1, only=("location", "gpu")),
    b"xpum_engine_ratio": Source("utilization_percent", 0),
    b"xpum_memory_used_bytes": Source("memory_used_mib", 0, 1 / MIB),
    b"xpum_memory_bandwidth_ratio": Source("memory_bandwidth_percent", 0),
    b"xpum_power_watts": Source("power_w", 0),
    b"xpum_frequency_mhz": Source("sm_clock_mhz", 0, only=("location", "gpu")),
    b"xpum_frequency_throttling_ratio": Source("throttled_percent", 0, only=("location", "gpu")),
}
SOURCES.update({b"amd_" + name: source for name, source in list(SOURCES.items()) if name.startswith((b"gpu_", b"pcie_"))})

# The first of these labels that a row has counts. Prometheus puts `exported_` before labels that it has itself.
UUID_LABELS: Final = ("UUID", "gpu_uuid", "uuid")
INDEX_LABELS: Final = ("gpu", "gpu_id")
BUS_LABELS: Final = ("pci_bus_id", "pci_bdf", "pcie_bus_id")
NODE_LABELS: Final = ("hostname", "Hostname", "node")
POD_LABELS: Final = ("exported_pod", "pod", "pod_name", "kube_pod")
NAMESPACE_LABELS: Final = ("exported_namespace", "namespace", "pod_namespace", "kube_namespace")
# A row with one of these describes a part of a GPU.
PART_LABELS: Final = ("GPU_I_ID", "GPU_I_PROFILE", "sub_dev", "gpu_partition_id")
NOT_A_PART: Final = ("", "NA", "N/A", "0xffffffff", "-1")
