"""Draws job lists by a seed, none of which was seen while the planner was tuned.

`draw` simulates a training cluster: boxes of 1 to 72 hours, every fifth a gang of 2 to 16 whole nodes, most of them submitted in office
hours, some in bursts of equals. `resample` takes the boxes of a real list in runs of 20, on that list's times of arrival.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.snapshot import Node, Pool
from simulation.joblist import TraceJob

HOUR_S = 3600
GPUS_PER_NODE = 8
SHORTEST_S, LONGEST_S = HOUR_S, 72 * HOUR_S
GANG_SHARE, WHOLE_SHARE = 0.2, 0.25
GANG_SIZES = (2, 2, 2, 3, 4, 4, 4, 6, 8, 8, 12, 16)
BURST_SHARE, BURST_SIZES, BURST_STEP_S = 0.05, range(3, 13), 20
# The share of jobs that end before their box does, and the least part of it that they use.
EARLY_SHARE, LEAST_USED = 0.75, 0.2
# How likely a submission is in each hour of the day.
OFFICE_HOURS = (*[1] * 8, *[4] * 10, *[2] * 6)
WEEKEND_SHARE = 0.3
RUN_OF = 20


def pool_of(node_count: int) -> Pool:
    return Pool("c/gpu", "c", "gpu", tuple(Node(f"n{number:04}", GPUS_PER_NODE) for number in range(node_count)))


def draw(*, seed: int, count: int, load: float, pool: Pool) -> tuple[TraceJob, ...]:
    """Boxes come in order of submission. `load` is their work, relative to what the pool could do while they are submitted."""
    dice = random.Random(seed)
    bursts = list(_bursts(dice, count, pool.id))
    work_gpu_s = sum(len(burst) * _gpu_s(burst[0]) for burst in bursts)
    span_s = int(work_gpu_s / (load * sum(node.gpu_count for node in pool.nodes)))
    times_s = (_office_time_s(dice, span_s) for _ in bursts)
    placed = [(at_s + BURST_STEP_S * i, job) for at_s, burst in zip(times_s, bursts, strict=True) for i, job in enumerate(burst)]
    placed.sort(key=lambda pair: pair[0])
    return _numbered([at_s for at_s, _ in placed], [job for _, job in placed])


def resample(jobs: Sequence[TraceJob], *, seed: int, count: int) -> tuple[TraceJob, ...]:
    """Puts boxes of the whole list on its first times of arrival."""
    dice = random.Random(seed)
    boxes: list[TraceJob] = []
    while len(boxes) < count:
        first = dice.randrange(len(jobs) - RUN_OF + 1)
        boxes += jobs[first : first + RUN_OF]
    return _numbered([job.submit_s for job in jobs[:count]], boxes[:count])


def _bursts(dice: random.Random, count: int, pool: str) -> Iterator[list[TraceJob]]:
    """Most boxes come alone, some with equals."""
    left = count
    while left > 0:
        size = min(left, dice.choice(BURST_SIZES) if dice.random() < BURST_SHARE else 1)
        yield [_box(dice, pool)] * size
        left -= size


def _box(dice: random.Random, pool: str) -> TraceJob:
    kind = dice.random()
    nodes = dice.choice(GANG_SIZES) if kind < GANG_SHARE else 1
    gpus = 0 if kind < GANG_SHARE + WHOLE_SHARE else dice.choice((1, 1, 2, 4))
    run_s = int(SHORTEST_S * math.exp(dice.random() * math.log(LONGEST_S / SHORTEST_S)))
    used = dice.uniform(LEAST_USED, 1) if dice.random() < EARLY_SHARE else 1
    return TraceJob("", 0, int(run_s / used), run_s, nodes, gpus, 101, "", (pool,))


def _gpu_s(job: TraceJob) -> int:
    return job.run_s * job.node_count * (job.gpus_per_node or GPUS_PER_NODE)


def _office_time_s(dice: random.Random, span_s: int) -> int:
    """Draws until a time is in office hours."""
    while True:
        at_s = dice.randrange(span_s)
        day, hour = divmod(at_s // HOUR_S, 24)
        if dice.random() * max(OFFICE_HOURS) < OFFICE_HOURS[hour] * (WEEKEND_SHARE if day % 7 >= 5 else 1):
            return at_s


def _numbered(times_s: Sequence[int], boxes: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    return tuple(replace(box, id=f"d{number:05}", submit_s=at_s) for number, (at_s, box) in enumerate(zip(times_s, boxes, strict=True)))
