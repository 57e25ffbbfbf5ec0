"""Readings of the simulated cluster."""

from __future__ import annotations

from protocol.gpus.telemetry import NAMES
from tests.agent.stage import T0
from tests.agent.telemetry.test_exporters import node
from worker_agent.telemetry.simulated import SimulatedTelemetry


def test_a_gpu_at_work_is_busy_a_free_one_is_not_and_the_same_moment_gives_the_same_readings() -> None:
    telemetry, nodes = SimulatedTelemetry(seed="x"), {"gpu-1": node(gpus=8, held={n: f"gpr-{n}" for n in range(4)})}
    use: dict[bool, list[float]] = {True: [], False: []}
    for at_s in range(int(T0), int(T0) + 7200, 60):
        for n, reading in enumerate(telemetry.read(nodes, lambda at_s=at_s: at_s)):
            assert all(value is None or value >= 0 for value in reading.values)
            use[n < 4].append(dict(zip(NAMES, reading.values, strict=True))["utilization_percent"] or 0.0)

    assert max(use[False]) == 0
    assert max(use[True]) > 20
    assert list(telemetry.read(nodes, lambda: T0)) == list(telemetry.read(nodes, lambda: T0))
