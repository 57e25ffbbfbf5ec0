"""Makes readings of a simulated cluster that look like work: training with checkpoints, fine-tuning, inference, and forgotten notebooks.

Everything follows from the names and the time, so the same fleet gives the same readings.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from protocol.gpus.telemetry import NAMES, GpuReading
from protocol.nodes.inventory import GpuView
from worker_agent.cluster.base import GpuPhase, GpuRecord, NodeState

POWER_W: Final = {"H100": 700, "H200": 700, "A100": 400, "L40S": 350, "A10": 150}  # others: 300
WARM_S: Final = 240.0  # until a GPU is nearly as hot as its work makes it
LOAD_S: Final = 45.0  # a job reads its model
DAY_S: Final = 86_400.0
STEP_S: Final = 15.0
SLOW_SHARE: Final = 1 / 24  # of the GPUs: hotter than their peers, throttled, and stragglers of each gang


@dataclass(frozen=True, slots=True)
class SimulatedWork:
    utilization: float  # all from 0 to 1
    tensor: float = 0.0
    bandwidth: float = 0.0
    memory: float = 0.0
    nvlink: float = 0.0
    pcie: float = 0.0


class WorkKind(StrEnum):
    TRAINING = "training"
    FINE_TUNING = "fine-tuning"
    INFERENCE = "inference"
    FORGOTTEN = "forgotten"


IDLE: Final = SimulatedWork(0.0, memory=0.01)
CHANCES: Final = ((0.45, WorkKind.TRAINING), (0.65, WorkKind.FINE_TUNING), (0.85, WorkKind.INFERENCE), (1.0, WorkKind.FORGOTTEN))
CHECK: Final = SimulatedWork(0.6, 0.3, 0.5, 0.1, nvlink=0.6)


class SimulatedTelemetry:
    def __init__(self, *, seed: str, works: Mapping[str, str] | None = None, xids: Callable[[], Mapping[str, int]] = dict) -> None:
        """`works`: the kind of work by workspace, as records name it. The boxes of others get one by chance. `xids`: by GPU."""
        self._seed, self._works, self._xids = seed, works or {}, xids

    def read(self, nodes: Mapping[str, NodeState], now: Callable[[], float]) -> Iterator[GpuReading]:
        at_s, xids = now(), self._xids()
        for name, node in nodes.items():
            for gpu in node.view.gpus:
                yield GpuReading(name, gpu.uuid, at_s, self.values(gpu, node.records.get(gpu.uuid), at_s, xids.get(gpu.uuid, 0)))

    def values(self, gpu: GpuView, record: GpuRecord | None, at_s: float, xid: int = 0) -> tuple[float | None, ...]:
        since_s = at_s - (record.active_s or at_s) if record else 0.0
        work = self._work(record, since_s, at_s)
        is_slow = record is not None and record.phase is GpuPhase.OPEN and self.luck(gpu.uuid, "is slow") < SLOW_SHARE
        noise = self.luck(gpu.uuid, int(at_s // STEP_S)) - 0.5
        use = min(1.0, max(0.0, work.utilization * (0.74 if is_slow else 1.0) + 0.04 * noise * (work.utilization > 0)))
        most_w = POWER_W.get(gpu.model, 300)
        power_w = most_w * (0.1 + 0.86 * use * (0.55 + 0.45 * work.tensor / 0.6 if work.tensor else 0.5)) + 4 * noise
        warm = 1 - math.exp(-since_s / (WARM_S / 3)) if work.utilization else 0.0
        place = self.luck(gpu.uuid, "place")  # some stand where the air is warm already
        temperature = 31 + 5 * place + warm * (power_w / most_w) * (36 + 8 * place) + (26 * warm if is_slow else 0) + noise
        told: dict[str, float] = {
            "temperature_c": round(temperature),
            "memory_temperature_c": round(temperature + 4 + 6 * work.bandwidth),
            "utilization_percent": round(100 * use, 1),
            "memory_used_mib": round(gpu.memory_gib * 1024 * work.memory),
            "power_w": round(min(power_w, most_w), 1),
            "sm_clock_mhz": 1980 - 15 * round(25 * is_slow + 4 * place) if work.utilization else 345,
            "tensor_percent": round(100 * work.tensor * (use or 0), 1),
            "memory_bandwidth_percent": round(100 * work.bandwidth * (use or 0), 1),
            "nvlink_mib_s": round(430_000 * work.nvlink * use),
            "pcie_mib_s": round(55_000 * work.pcie * (1 + noise / 4)),
            "throttled_percent": round(31 + 12 * noise, 1) if is_slow and warm > 0.6 else 0.0,
            "new_faults": 0,
            "xid": xid,
            "ecc_corrected": int(at_s // 900) % 1000 if self.luck(gpu.uuid, "ecc") > 0.98 else 0,
            "ecc_uncorrected": 0,
            "rows_remapped": int(self.luck(gpu.uuid, "rows") > 0.95),
            "rows_failed": int(not gpu.healthy),
            "pcie_replays": int(3 * self.luck(gpu.uuid, "replays")),
            "nvlink_errors": 0,
        }
        return tuple(told[name] for name in NAMES)

    def _work(self, record: GpuRecord | None, since_s: float, at_s: float) -> SimulatedWork:
        if record is None or record.phase in (GpuPhase.FREE, GpuPhase.CLOSED):
            return IDLE
        if record.phase is GpuPhase.ISOLATED:
            return CHECK
        match self.kind_of(record):
            case WorkKind.TRAINING:
                return _training(since_s)
            case WorkKind.FINE_TUNING:
                return _fine_tuning(since_s)
            case WorkKind.INFERENCE:
                return _inference(at_s, since_s)
            case _:
                return _forgotten(since_s)

    def kind_of(self, record: GpuRecord) -> WorkKind:
        luck = self.luck(record.slice, record.gpr_id)
        chosen = self._works.get(record.slice)
        return WorkKind(chosen) if chosen else next(kind for below, kind in CHANCES if luck < below)

    def luck(self, *of: object) -> float:
        """Returns a number from 0 to 1, the same each time."""
        return zlib.crc32("/".join(map(str, (self._seed, *of))).encode()) % 10_000 / 10_000


def _training(since_s: float) -> SimulatedWork:
    if since_s < LOAD_S:
        return SimulatedWork(0.05, memory=0.9 * since_s / LOAD_S, pcie=0.5)
    if since_s % 300 > 280:  # a checkpoint
        return SimulatedWork(0.22, 0.02, 0.1, 0.91, pcie=0.7)
    return SimulatedWork(0.97, 0.55, 0.62, 0.91, nvlink=0.8, pcie=0.05)


def _fine_tuning(since_s: float) -> SimulatedWork:
    if since_s < LOAD_S:
        return SimulatedWork(0.05, memory=0.7 * since_s / LOAD_S, pcie=0.5)
    if since_s % 600 > 520:  # an evaluation
        return SimulatedWork(0.46, 0.2, 0.4, 0.74, pcie=0.1)
    return SimulatedWork(0.88, 0.42, 0.5, 0.72, nvlink=0.35, pcie=0.08)


def _inference(at_s: float, since_s: float) -> SimulatedWork:
    if since_s < LOAD_S:
        return SimulatedWork(0.05, memory=0.85 * since_s / LOAD_S, pcie=0.6)
    by_day = 0.5 - 0.38 * math.cos(2 * math.pi * (at_s % DAY_S) / DAY_S)
    burst = 0.12 * math.sin(at_s / 47) * math.sin(at_s / 13)
    return SimulatedWork(min(0.95, max(0.04, by_day + burst)), 0.3, 0.75, 0.88, pcie=0.12)


def _forgotten(since_s: float) -> SimulatedWork:
    """Returns a notebook that somebody left open."""
    return SimulatedWork(0.35, 0.1, 0.2, 0.2) if 60 < since_s < 180 else SimulatedWork(0.0, memory=0.14)
