"""Signals that rules can watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from observability.alerts.models import RuleKind
from protocol.gpus.telemetry import FAULT_TOTALS, SERIES
from protocol.gpus.xids import XidAction


class Subject(StrEnum):
    GPU = "GPU"
    NODE = "node"
    CLUSTER = "cluster"
    GPR = "request"
    QUOTA = "quota"
    BUDGET = "budget"


K = RuleKind
GAUGE: Final = (K.THRESHOLD, K.TREND, K.FORECAST)


@dataclass(frozen=True, slots=True)
class Signal:
    name: str
    label: str
    unit: str
    subject: Subject
    kinds: tuple[RuleKind, ...]
    is_of_box: bool = True  # a workspace may have rules of its own for it


_LABELS: Final = {
    "temperature_c": "Temperature",
    "memory_temperature_c": "Memory temperature",
    "utilization_percent": "Use",
    "memory_used_mib": "Memory used",
    "power_w": "Power",
    "sm_clock_mhz": "Clock",
    "tensor_percent": "Tensor use",
    "memory_bandwidth_percent": "Memory bandwidth",
    "nvlink_mib_s": "NVLink traffic",
    "pcie_mib_s": "PCIe traffic",
    "throttled_percent": "Throttled",
    "ecc_corrected": "Corrected ECC errors",
    "ecc_uncorrected": "Uncorrected ECC errors",
    "rows_remapped": "Remapped rows",
    "rows_failed": "Failed row remaps",
    "pcie_replays": "PCIe replays",
    "nvlink_errors": "NVLink errors",
}
XID_LABELS: Final = {
    XidAction.RESTART_APP: "Xids of the workload",
    XidAction.RESET_GPU: "Xids that need a reset",
    XidAction.REBOOT_NODE: "Xids that need a reboot",
    XidAction.CONTACT_SUPPORT: "Xids for the vendor",
    XidAction.INVESTIGATE: "Xids to look into",
}
READING, POWER, AGENT, CLOCK, NOT_READY, CHECKS = "reading", "power_percent", "agent", "clock_offset_s", "node_not_ready", "failed_checks"
BEHIND, CONDITIONS = "behind_peers_s", "node_conditions"
WAIT, LATE, QUOTA, BUDGET = "queue_wait_s", "promise_late_s", "quota_percent", "budget_percent"

LENGTHS: Final = (BEHIND, WAIT, LATE)  # told as durations


def xid_signal(action: XidAction) -> str:
    return f"xid_{action}"


def _signals() -> list[Signal]:
    gauges = [metric for metric in SERIES if metric.name != "new_faults"]
    counters = {name: _LABELS[name] for name in FAULT_TOTALS} | {xid_signal(action): label for action, label in XID_LABELS.items()}
    return [
        *(Signal(metric.name, _LABELS[metric.name], metric.unit, Subject.GPU, GAUGE) for metric in gauges),
        Signal(POWER, "Power of the board's limit", "%", Subject.GPU, (K.THRESHOLD,)),
        Signal(BEHIND, "Time behind its peers", "s", Subject.GPU, (K.THRESHOLD,)),
        *(Signal(name, label, "", Subject.GPU, (K.RATE,)) for name, label in counters.items()),
        Signal(READING, "Readings", "s", Subject.GPU, (K.ABSENCE,)),
        Signal(NOT_READY, "Node not ready", "", Subject.NODE, (K.THRESHOLD,), is_of_box=False),
        Signal(CONDITIONS, "Bad conditions of the node", "", Subject.NODE, (K.THRESHOLD,), is_of_box=False),
        Signal(CHECKS, "Failed checks", "", Subject.NODE, (K.RATE,), is_of_box=False),
        Signal(AGENT, "Agent", "s", Subject.CLUSTER, (K.ABSENCE,), is_of_box=False),
        Signal(CLOCK, "Clock of the agent", "s", Subject.CLUSTER, (K.THRESHOLD,), is_of_box=False),
        Signal(WAIT, "Wait in the queue", "s", Subject.GPR, (K.THRESHOLD,)),
        Signal(LATE, "Planned after the promise", "s", Subject.GPR, (K.THRESHOLD,)),
        Signal(QUOTA, "Quota held", "%", Subject.QUOTA, GAUGE),
        Signal(BUDGET, "Budget used", "%", Subject.BUDGET, GAUGE),
    ]


SIGNALS: Final[Mapping[str, Signal]] = {signal.name: signal for signal in _signals()}
