"""What NVIDIA recommends after an Xid. Source: NVIDIA's Xid catalog, as gpud groups it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class XidAction(StrEnum):
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    CONTACT_SUPPORT = "contact_support"
    INVESTIGATE = "investigate"  # what to do follows from the other Xids beside it


_BY_ACTION: Final = {
    XidAction.RESTART_APP: (13, 31, 94),
    XidAction.RESET_GPU: (62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 158),
    XidAction.REBOOT_NODE: (79,),
    XidAction.CONTACT_SUPPORT: (61, 122, 142),
    XidAction.INVESTIGATE: (45, 48, 74, 144, 145, 149, 154, 171, 172),
}
ACTIONS: Final = {xid: action for action, xids in _BY_ACTION.items() for xid in xids}  # others need none
