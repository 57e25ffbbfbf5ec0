"""Readings of a box's GPUs, minute by minute, through the agents' lane."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from gpr.models import Gpr
from inventory.models import Gpu
from observability.services import readings_step
from tests.lifecycle.stage import Stage
from tests.observability.telemetry.saying import reading, store

MINUTE = timedelta(minutes=1)
LAG_S = 150  # after so long a minute is counted


def gpus_of_box(gpr: Gpr) -> list[Gpu]:
    return list(Gpu.objects.filter(reserved__reservation__gpr=gpr, reserved__state="HELD").order_by("node__name", "index"))


def work(stage: Stage, gpr: Gpr, minutes: int, use: Callable[[int], float | None], *, wait_s: float = 60) -> None:
    """Lets so many minutes pass. GPU number `n` of the box is used `use(n)` percent; None means that it tells nothing."""
    gpus = gpus_of_box(gpr)
    for _ in range(minutes):
        told = [
            reading(gpu, at=stage.now, utilization_percent=percent, memory_used_mib=percent * 100)
            for n, gpu in enumerate(gpus)
            if (percent := use(n)) is not None
        ]
        store(stage.cluster, *told, now=stage.now)
        stage.watched(wait_s)


def count(stage: Stage) -> None:
    readings_step(now=stage.now)
