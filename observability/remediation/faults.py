"""Finds faults of the hardware in the counts of a GPU, and the action against each. It is pure.

Errors of applications (13, 31) and what the driver repairs by itself (63, 94) set no node aside.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from observability.xid_counts import counts_from
from protocol.gpus.xids import XIDS, XidAction, new_xids
from protocol.nodes.steps import RepairStep


class Action(StrEnum):
    """Lists actions, the weakest first."""

    CHECK = "check_node"
    RESTART_DRIVER = RepairStep.RESTART_DRIVER.value
    RESET_GPUS = RepairStep.RESET_GPUS.value
    REBOOT_NODE = RepairStep.REBOOT_NODE.value
    SUPPORT = "contact_support"


ACTION_NAMES: Final[Mapping[str, str]] = {
    Action.CHECK: "Check the node",
    Action.RESTART_DRIVER: "Restart the driver's pods and check",
    Action.RESET_GPUS: "Reset the GPUs and check",
    Action.REBOOT_NODE: "Reboot the node and check",
    Action.SUPPORT: "Contact the vendor's support",
}
REPAIRS: Final = (Action.CHECK, Action.RESTART_DRIVER, Action.RESET_GPUS, Action.REBOOT_NODE)


def stronger(action: str) -> Action:
    return REPAIRS[min(REPAIRS.index(Action(action)) + 1, len(REPAIRS) - 1)]


_OF_XID: Final = {
    XidAction.RESET_GPU: Action.RESET_GPUS,
    XidAction.REBOOT_NODE: Action.REBOOT_NODE,
    XidAction.CONTACT_SUPPORT: Action.SUPPORT,
    XidAction.INVESTIGATE: Action.RESET_GPUS,  # failed checks lead to the stronger action
}
XID_ACTIONS: Final[Mapping[int, Action]] = {number: _OF_XID[xid.action] for number, xid in XIDS.items() if xid.is_of_hardware}


@dataclass(frozen=True, slots=True)
class Trend:
    metric: str
    within_s: int
    most: int  # an increase of so much within the time is a fault
    what: str
    action: Action = Action.RESET_GPUS


HOUR_S, DAY_S = 3600, 86_400
TRENDS: Final = (
    Trend("ecc_uncorrected", DAY_S, 1, "uncorrectable memory errors"),
    Trend("ecc_corrected", DAY_S, 10_000, "corrected memory errors"),
    Trend("rows_remapped", DAY_S, 8, "remapped memory rows"),
    Trend("nvlink_errors", HOUR_S, 100, "NVLink errors"),
    Trend("pcie_replays", HOUR_S, 480, "PCIe replays", Action.REBOOT_NODE),
)
LIMIT_NAMES: Final = tuple(trend.metric for trend in TRENDS)
COUNTS: Final = ("xid", "xid_counts", "ecc_corrected", "ecc_uncorrected", "rows_remapped", "rows_failed", "pcie_replays", "nvlink_errors")

Counts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GpuFault:
    metric: str
    value: int
    before: int
    text: str  # after "GPU 3 "
    action: Action

    @property
    def code(self) -> str:
        return f"xid {self.value}" if self.metric == "xid" else self.metric


def faults_of(
    now: Counts, last: Counts | None, base_of: Mapping[int, Counts], *, ignored_xids: Collection[int] = (), limits: Mapping[str, int]
) -> Iterator[GpuFault]:
    """`last` is what was known before (None: nothing), `base_of` the counts that many seconds ago."""
    before, counts_before = (last["xid"], last["xid_counts"]) if last else (0, "")
    came = new_xids(now["xid"], counts_from(now["xid_counts"]), before, counts_from(counts_before))
    actions = list(Action)
    for xid in sorted(came.keys() & XID_ACTIONS.keys() - set(ignored_xids), key=lambda xid: (-actions.index(XID_ACTIONS[xid]), xid)):
        yield GpuFault("xid", xid, before, f"reported Xid {xid} ({XIDS[xid].text})", XID_ACTIONS[xid])
    failed, failed_before = now["rows_failed"], last["rows_failed"] if last else 0
    if failed > failed_before:
        yield GpuFault("rows_failed", failed, failed_before, "has memory rows that could not be remapped", Action.RESET_GPUS)
    for trend in TRENDS:
        most, base = limits.get(trend.metric, trend.most), base_of.get(trend.within_s)
        if base is None or most <= 0 or last is None or now[trend.metric] <= last[trend.metric]:
            continue
        # A count that fell has begun anew.
        since = base[trend.metric] if now[trend.metric] >= base[trend.metric] else 0
        grown = now[trend.metric] - since
        if grown >= most:
            within = "a day" if trend.within_s == DAY_S else "an hour"
            yield GpuFault(trend.metric, now[trend.metric], since, f"counted {grown:,} {trend.what} within {within}", trend.action)


# The action after a check has failed for good, by its step; others: DEFAULT_ACTION.
CHECK_ACTIONS: Final[Mapping[str, Action]] = {
    "node_ready": Action.REBOOT_NODE,
    "gpu_count": Action.REBOOT_NODE,
    "gpu_health": Action.RESET_GPUS,
    "nccl": Action.RESET_GPUS,
    "exit_nccl": Action.RESET_GPUS,
}
DEFAULT_ACTION: Final = Action.RESTART_DRIVER
