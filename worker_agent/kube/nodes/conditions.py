"""Finds bad conditions of a node: those of the kubelet, and those that node-problem-detector and GPU operators set.

Must not live here: any call.
"""

from __future__ import annotations

import re
from typing import Final

from protocol.nodes.inventory import CONDITION_TEXT_MAX_CHARS, CONDITIONS_MAX, NodeCondition
from protocol.scalars import MOMENT_MAX_S
from worker_agent.kube.api.objects import Condition, Node

# If one of these is true, the node cannot take work, whatever Ready says.
PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")

_WORD_MAX: Final = 63
_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]{0,62}")
# Bad if false, such as AcceleratedHardwareReady.
_GOOD: Final = re.compile(r"(?<!Not)(Ready|Healthy)$")
# Bad if true. Other names, such as EtcdIsVoter, tell no fault.
_BAD: Final = re.compile(
    r"gpu|xid|nvlink|nvswitch|ecc|dcgm|infiniband|^ib[A-Z_]|rdma|unhealthy|notready|error|problem|fail|fault|down$|lost|missing|degraded"
    r"|flapping|deadlock|readonly|corrupt|frequent|hung",
    re.IGNORECASE,
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def bad_conditions(node: Node) -> tuple[NodeCondition, ...]:
    """Those of Kubernetes come first. A type that is told twice counts once, by its last entry."""
    bad = {each.type: each for each in node.status.conditions}
    found = sorted(filter(_is_bad, bad.values()), key=lambda each: (each.type != "Ready", each.type not in PRESSURES, each.type))
    return tuple(_told(each) for each in found[:CONDITIONS_MAX])


def _is_bad(condition: Condition) -> bool:
    name = condition.type
    if name == "Ready":
        return condition.status != "True"
    if name in PRESSURES:
        return condition.status == "True"
    if not _NAME.fullmatch(name):
        return False
    if _GOOD.search(name):
        return condition.status == "False"
    return condition.status == "True" and _BAD.search(name) is not None


def _told(condition: Condition) -> NodeCondition:
    since = condition.lastTransitionTime
    since_s = since.timestamp() if since else -1.0
    return NodeCondition(
        type=condition.type,
        status=_clean(condition.status, _WORD_MAX),
        reason=_clean(condition.reason, _WORD_MAX),
        message=_clean(condition.message, CONDITION_TEXT_MAX_CHARS),
        since_s=since_s if 0 <= since_s <= MOMENT_MAX_S else None,
    )


def _clean(text: str, most: int) -> str:
    return _CONTROL.sub(" ", text).strip()[:most]
