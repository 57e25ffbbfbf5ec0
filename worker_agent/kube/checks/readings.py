"""Parses what the tools of the checks print. All functions are pure.

Formats: nvidia-smi (--help-query-gpu, --help-query-remapped-rows), the kernel log of NVIDIA's driver, sysfs of InfiniBand
(Documentation/ABI/stable/sysfs-class-infiniband), nccl-tests (report of version 2). Nobody has seen them on real hardware.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

import msgspec

from protocol.decoding import decode
from protocol.gpus.xids import XIDS, XidAction

XID_WINDOW_S: Final = 2 * 3600.0
# Fields of nvidia-smi --query-gpu, in the order of `gpus`. Drivers before 535 know one by its name in OLD_NAMES.
GPU_FIELDS: Final = (
    "uuid",
    "pci.bus_id",
    "temperature.gpu",
    "memory.used",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.sram",
    "ecc.errors.corrected.aggregate.sram",
    "ecc.errors.corrected.aggregate.dram",
    "clocks_event_reasons.active",
)
OLD_NAMES: Final = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
ROW_FIELDS: Final = (
    "gpu_uuid",
    "remapped_rows.uncorrectable",
    "remapped_rows.pending",
    "remapped_rows.failure",
)
# Bracketed values by which nvidia-smi says that it has no value for us. Any other, such as [GPU is lost], is a fault.
NOT_TOLD: Final = frozenset(
    {"n/a", "not supported", "not available", "not active", "deprecated", "function not found", "insufficient permissions"}
)
VITAL: Final = frozenset({"uuid", "pci.bus_id", "temperature.gpu", "memory.used", "ecc.errors.uncorrected.volatile.total", *ROW_FIELDS})
ROW_REMAPPERS: Final = ("A100", "A30", "A800", "H100", "H200", "H800", "H20", "GH200", "B100", "B200", "B300", "GB200", "GB300")
THROTTLES: Final = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}

_XID = re.compile(r"^(?:<\d+>)?\[\s*(?P<at_s>\d+\.\d+)\] .*?NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)")
_GID: Final = re.compile(r"([0-9a-f]{4}:){3}[0-9a-f]{4}(:[0-9a-f]{4}){0,4}")  # whole, or cut by the probe
NO_GID: Final = ":".join(["0000"] * 8)  # an unused entry of the port's table
IPV4: Final = "IPv4"
_YES_NO: Final = {"yes": 1.0, "no": 0.0}
XIDS_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 63, 94, 121, 137})  # a fault of the program, repaired already, or measured separately
_ADVICE: Final = {
    XidAction.RESET_GPU: "reset the GPU",
    XidAction.REBOOT_NODE: "reboot the node",
    XidAction.CONTACT_SUPPORT: "ask the vendor",
    XidAction.INVESTIGATE: "look at the errors beside it",
}
# NVIDIA's catalog and Azure's node health checks list these; each fails the node. Any other Xid is only reported.
XIDS_OF_GPUS: Final = {
    **{number: _ADVICE[xid.action] for number, xid in XIDS.items() if xid.is_of_hardware},
    **dict.fromkeys((56, 57, 58, 65, 68, 69, 73, 80, 81, 92), "examine the hardware"),
}


class SmiReading(msgspec.Struct, frozen=True, kw_only=True):
    """Holds one line of nvidia-smi. None means that this GPU or driver does not report the value."""

    uuid: str
    bus_id: str
    temperature_c: float | None
    memory_used_mib: float | None
    ecc_uncorrected: float | None
    ecc_sram_uncorrected: float | None
    ecc_sram_corrected: float | None
    ecc_dram_corrected: float | None
    throttles: tuple[str, ...]
    faults: tuple[str, ...] = ()  # vital fields that were answered with an error, with its text

    @property
    def is_lost(self) -> bool:
        return _is_fault(self.uuid)  # it does not even report a name


class RemappedRows(msgspec.Struct, frozen=True, kw_only=True):
    uncorrectable: float | None
    pending: float | None
    failed: float | None
    faults: tuple[str, ...] = ()


class XidReading(msgspec.Struct, frozen=True, kw_only=True):
    bus: str  # from bus_of()
    number: int
    age_s: float


class Port(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    is_up: bool
    rate_gbps: float | None
    subnets: tuple[str, ...]  # first halves of its GIDs, or IPV4


class NcclReading(msgspec.Struct, frozen=True, kw_only=True):
    """Holds latency of the smallest size and bandwidth of the largest; the worse of in place and out of place."""

    latency_us: float
    bandwidth_gbs: float
    wrong: float


def gpus(text: str) -> list[SmiReading]:
    """Parses nvidia-smi --query-gpu=GPU_FIELDS --format=csv,noheader,nounits."""
    return [
        SmiReading(
            uuid=row[0],
            bus_id=row[1],
            temperature_c=_number(row[2]),
            memory_used_mib=_number(row[3]),
            ecc_uncorrected=_number(row[4]),
            ecc_sram_uncorrected=_number(row[5]),
            ecc_sram_corrected=_number(row[6]),
            ecc_dram_corrected=_number(row[7]),
            throttles=_throttles(row[8]),
            faults=_faults(GPU_FIELDS, row),
        )
        for row in _rows(text, len(GPU_FIELDS))
    ]


def remapped_rows(text: str) -> dict[str, RemappedRows]:
    """Returns rows by GPU UUID, from nvidia-smi --query-remapped-rows=ROW_FIELDS --format=csv,noheader,nounits."""
    return {
        row[0]: RemappedRows(
            uncorrectable=_number(row[1]), pending=_number(row[2]), failed=_number(row[3]), faults=_faults(ROW_FIELDS, row)
        )
        for row in _rows(text, len(ROW_FIELDS))
    }


def remaps_rows(shape: str) -> bool:
    return shape.split("-", maxsplit=1)[0] in ROW_REMAPPERS  # of other models, such as in `T4-16GB`, it is not known


def processes(text: str) -> dict[str, int]:
    """Count by GPU UUID, from nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv,noheader."""
    counts: dict[str, int] = {}
    for row in _rows(text, 2):
        counts[row[0]] = counts.get(row[0], 0) + 1
    return counts


def xids(log: str, uptime_s: float) -> list[XidReading]:
    """Returns Xids of the last XID_WINDOW_S in lines of the kernel log."""
    found = (_XID.match(line) for line in log.splitlines())
    read = [XidReading(bus=bus_of(m["pci"]), number=int(m["xid"]), age_s=uptime_s - float(m["at_s"])) for m in found if m]
    return [xid for xid in read if xid.age_s <= XID_WINDOW_S]


def bus_of(pci: str) -> str:
    """Returns `0000:3b` for `00000000:3B:00.0` and for `0000:3b:00`."""
    domain, bus = [*pci.lower().split(":"), ""][:2]
    return f"{domain[-4:]}:{bus}"


def ports(files: Mapping[str, str]) -> list[Port]:
    """Parses /sys/class/infiniband/*/ports/*/{state,phys_state,rate,gids/*} by path; sorts by name."""
    by_port: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        parts = PurePosixPath(path).parts
        if "ports" in parts and len(parts) > parts.index("ports") + 2:
            at = parts.index("ports")
            by_port.setdefault(f"{parts[at - 1]}/{parts[at + 1]}", {})["/".join(parts[at + 2 :])] = text
    return [_port(name, by_port[name]) for name in sorted(by_port)]


def nccl(report: bytes) -> NcclReading:
    """Raises ValueError unless it is a whole report with two sizes."""
    try:
        sizes = sorted(decode(report, _NcclReport).results, key=lambda result: result.size)
    except msgspec.DecodeError as error:
        raise ValueError(f"the report of nccl-tests cannot be read: {error}") from error
    if len(sizes) < 2:
        raise ValueError("the report of nccl-tests has not both sizes: the GPUs have too little memory for the larger, or it broke off")
    return NcclReading(
        latency_us=max(way.time for way in sizes[0].ways),
        bandwidth_gbs=min(way.bus_bw for way in sizes[-1].ways),
        wrong=sum(way.nwrong or 0.0 for size in sizes for way in size.ways),
    )


class _NcclTimes(msgspec.Struct, frozen=True, kw_only=True):
    time: float
    bus_bw: float
    nwrong: float | None = None


class _NcclSize(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    in_place: _NcclTimes
    out_of_place: _NcclTimes

    @property
    def ways(self) -> tuple[_NcclTimes, _NcclTimes]:
        return self.in_place, self.out_of_place


class _NcclReport(msgspec.Struct, frozen=True):
    results: tuple[_NcclSize, ...]


def _rows(text: str, columns: int) -> list[list[str]]:
    # Lines of another width are messages, such as that nothing was found.
    rows: Sequence[list[str]] = list(csv.reader(text.splitlines(), skipinitialspace=True))
    return [[cell.strip() for cell in row] for row in rows if len(row) == columns]


def _number(cell: str) -> float | None:
    try:
        return _YES_NO[cell.lower()] if cell.lower() in _YES_NO else float(cell)
    except ValueError:
        return None


def _is_fault(cell: str) -> bool:
    return cell.startswith("[") and cell.strip("[]").lower() not in NOT_TOLD


def _faults(fields: Sequence[str], row: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{field} {cell}" for field, cell in zip(fields, row, strict=True) if field in VITAL and _is_fault(cell))


def _throttles(cell: str) -> tuple[str, ...]:
    try:
        bits = int(cell, 16)
    except ValueError:
        return ()
    return tuple(name for bit, name in THROTTLES.items() if bits & bit)


def _port(name: str, files: Mapping[str, str]) -> Port:
    rate = re.match(r"([\d.]+) Gb/sec", files.get("rate", ""))
    gids = [files[key] for key in sorted(files) if key.startswith("gids/") and _GID.fullmatch(files[key]) and files[key] != NO_GID]
    # "4: ACTIVE" and "5: LinkUp"
    is_up = files.get("state", "").endswith("ACTIVE") and files.get("phys_state", "5: LinkUp").endswith("LinkUp")
    return Port(name=name, is_up=is_up, rate_gbps=float(rate[1]) if rate else None, subnets=tuple(dict.fromkeys(map(_subnet, gids))))


def _subnet(gid: str) -> str:
    return IPV4 if gid.startswith("0000:0000:0000:0000:0000:ffff") else ":".join(gid.split(":")[:4])
