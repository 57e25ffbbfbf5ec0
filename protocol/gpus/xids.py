"""Lists Xids, the faults that NVIDIA's driver reports, with what its catalog recommends. Source: that catalog, as gpud groups it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class XidAction(StrEnum):
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    CONTACT_SUPPORT = "contact_support"
    INVESTIGATE = "investigate"  # what to do follows from the other Xids beside it


@dataclass(frozen=True, slots=True)
class Xid:
    text: str
    action: XidAction
    is_of_hardware: bool = True  # alone it shows a fault of the GPU or its links


_A: Final = XidAction
XIDS: Final = {  # others need nothing
    13: Xid("exception in a program", _A.RESTART_APP, is_of_hardware=False),
    31: Xid("memory page fault of a program", _A.RESTART_APP, is_of_hardware=False),
    45: Xid("the driver ended a program", _A.INVESTIGATE, is_of_hardware=False),
    48: Xid("uncorrectable memory error", _A.INVESTIGATE),
    61: Xid("error of the GPU's microcontroller", _A.CONTACT_SUPPORT),
    62: Xid("halt of the GPU's microcontroller", _A.RESET_GPU),
    64: Xid("a memory row could not be remapped", _A.RESET_GPU),
    74: Xid("NVLink error", _A.INVESTIGATE),
    79: Xid("GPU has fallen off the bus", _A.REBOOT_NODE),
    94: Xid("contained memory error", _A.RESTART_APP, is_of_hardware=False),
    95: Xid("uncontained memory error", _A.RESET_GPU),
    109: Xid("context switch timed out", _A.RESET_GPU),
    110: Xid("security fault", _A.RESET_GPU),
    119: Xid("the GPU's system processor does not answer", _A.RESET_GPU),
    120: Xid("error of the GPU's system processor", _A.RESET_GPU),
    122: Xid("the GPU's flash memory cannot be read", _A.CONTACT_SUPPORT),
    136: Xid("link training failed", _A.RESET_GPU),
    140: Xid("unrecovered memory error", _A.RESET_GPU),
    142: Xid("error that needs the vendor", _A.CONTACT_SUPPORT),
    143: Xid("the GPU did not initialize", _A.RESET_GPU),
    144: Xid("NVLink fault", _A.INVESTIGATE),
    145: Xid("NVLink fault", _A.INVESTIGATE),
    149: Xid("NVLink fault", _A.INVESTIGATE),
    154: Xid("the driver asks for a recovery of the GPU", _A.INVESTIGATE),  # and says which one elsewhere
    158: Xid("fatal timeout of the GPU", _A.RESET_GPU),
    171: Xid("details of a memory error", _A.INVESTIGATE, is_of_hardware=False),
    172: Xid("details of a memory error", _A.INVESTIGATE, is_of_hardware=False),
}


def new_xids(last: int | None, counts: Mapping[int, int], last_before: int | None, counts_before: Mapping[int, int]) -> dict[int, int]:
    """Counts by number the Xids that came since the reading before.

    `last` is a gauge that keeps the last Xid (None: not measured), so a change is news and nothing else. `counts` are over some minutes or
    begin anew with the exporter, so a rise is news, and a fall is none. Both tell of the same Xid in one reading, or `last` follows.
    """
    found = {number: count - counts_before.get(number, 0) for number, count in counts.items() if count > counts_before.get(number, 0)}
    if last and last != last_before and last not in counts_before:
        found.setdefault(last, 1)
    return found
