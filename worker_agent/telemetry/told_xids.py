"""Finds Xids in bad conditions of nodes, and in warnings about them, as node-problem-detector, NVSentinel and clouds write them.

The driver's own words are `NVRM: Xid (PCI:0000:3b:00): 79`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from protocol.gpus.xids import XIDS
from protocol.nodes.inventory import NodeCondition

_XID: Final = re.compile(r"xids?(?:[\s_]*(?:errors?|code))?[\s:=#_-]*(?:\((PCI:[^)]{1,40})\)[\s:]*)?(\d{1,3})(?!\d)", re.IGNORECASE)
_CODE: Final = re.compile(r"\bErrorCode:(\d{1,3})(?!\d)")  # NVSentinel's, where the condition is named after Xids
_BUS: Final = re.compile(r"\bPCI:([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?![0-9a-f])", re.IGNORECASE)
_BUS_ID: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.\d)?", re.IGNORECASE)
_UUID: Final = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_INDEX: Final = re.compile(r"\bGPU[ :#=]{0,2}(\d{1,2})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Device:
    """Names a GPU by all names that are known of it."""

    uuid: str = ""
    bus_id: str = ""
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Telling:
    """It has what somebody tells of a node, once or `count` times with the same words."""

    by: str  # counts of different ones are about the same
    text: str
    first_s: float = -math.inf
    last_s: float = math.inf
    count: int = 1

    @classmethod
    def of(cls, condition: NodeCondition) -> Telling:
        by, text, since_s = f"{condition.type} {condition.reason}", f"{condition.reason}: {condition.message}", condition.since_s
        return cls(by, text) if since_s is None else cls(by, text, since_s, since_s)


@dataclass(frozen=True, slots=True)
class ToldXid:
    number: int
    device: Device
    first_s: float
    last_s: float
    count: int

    def is_of(self, other: Device, *, gpu_count: int) -> bool:
        """Compares by the best name that both have. Without any, it can only be the GPU of a node with one."""
        mine = self.device
        if mine == Device():
            return gpu_count == 1
        if mine.uuid and other.uuid:
            return mine.uuid.lower() == other.uuid.lower()
        if mine.bus_id and (bus := _bus_of(other.bus_id)):
            return mine.bus_id == bus
        return mine.index is not None and mine.index == other.index


def told_xids(tellings: Iterable[Telling]) -> list[ToldXid]:
    """Each number of a GPU once for each who tells of it. Only those that ask for something."""
    found: dict[tuple[str, int, Device], ToldXid] = {}
    for each in tellings:
        for number, device in dict.fromkeys(_xids(each)):
            key, one = (each.by, number, device), ToldXid(number, device, each.first_s, each.last_s, each.count)
            found[key] = _together(found[key], one) if key in found else one
    return list(found.values())


def _xids(telling: Telling) -> Iterator[tuple[int, Device]]:
    told = [(int(number), bus) for bus, number in _XID.findall(telling.text)]
    if "xid" in telling.by.lower():
        told += [(int(number), "") for number in _CODE.findall(telling.text)]
    whole = _device(telling.text)
    for number, bus in told:
        if number in XIDS:
            yield number, named if bus and (named := _device(bus)).bus_id != whole.bus_id else whole


def _together(one: ToldXid, other: ToldXid) -> ToldXid:
    first_s, last_s = min(one.first_s, other.first_s), max(one.last_s, other.last_s)
    return replace(one, first_s=first_s, last_s=last_s, count=one.count + other.count)


def _device(text: str) -> Device:
    bus, uuid, index = _BUS.search(text), _UUID.search(text), _INDEX.search(text)
    return Device(uuid[0] if uuid else "", _bus(bus) if bus else "", int(index[1]) if index else None)


def _bus_of(bus_id: str) -> str:
    match = _BUS_ID.fullmatch(bus_id)
    return _bus(match) if match else ""


def _bus(match: re.Match[str]) -> str:
    """Exporters write 00000000:3B:00.0, the driver 0000:3b:00."""
    return ":".join(f"{int(part, 16):x}" for part in match.groups()[:3])
