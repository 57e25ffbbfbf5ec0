"""The pure planner at size: a plan from stored slots, and an offer, at growing queues on busy nodes."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.figures import Figure
from gpr.planner.engine import offers, plan
from gpr.planner.snapshot import Node, Policy, Pool, Request, Running, Snapshot

SIZES = ((500, 250), (1_000, 500), (2_000, 1_000))
GPUS = 8
RUNS = 5


def run(traces: Path | None) -> list[Figure]:
    figures = []
    for queue_count, node_count in SIZES:
        fresh = _snapshot(queue_count, node_count)
        nothing_s = _seconds(partial(plan, fresh), runs=1)
        stored = _with_slots(fresh)
        candidate = _request(random.Random(1), -1)
        case = f"{queue_count} queued on {node_count} nodes"
        figures += [
            Figure("planner-speed", f"{case}: plan from nothing", "s", nothing_s),
            Figure("planner-speed", f"{case}: plan from stored slots", "s", _seconds(partial(plan, stored), runs=RUNS)),
            Figure(
                "planner-speed",
                f"{case}: one offer",
                "s",
                _seconds(partial(offers, stored, candidate), runs=RUNS),
            ),
        ]
    return figures


def _snapshot(queue_count: int, node_count: int) -> Snapshot:
    rng = random.Random(7)
    nodes = tuple(Node(f"n{number:05}", GPUS) for number in range(node_count))
    running = tuple(
        Running(f"r{number}", f"r{number}", "p", 101, "pool", (node.id,), GPUS, rng.randrange(60, 36_000))
        for number, node in enumerate(nodes)
    )
    queue = tuple(_request(rng, number) for number in range(queue_count))
    return Snapshot(now_s=0, pools=(Pool("pool", "c", "gpu", nodes),), running=running, queue=queue)


def _request(rng: random.Random, number: int) -> Request:
    gang = rng.random() < 0.1
    return Request(
        id=f"q{number}",
        slice=f"q{number}",
        project="p",
        priority=101,
        rank=number,
        node_count=rng.choice((2, 4, 8)) if gang else 1,
        gpus_per_node=0 if gang else rng.choice((1, 1, 2, 4, 8)),
        length_s=rng.randrange(600, 36_000),
        pools=("pool",),
    )


def _with_slots(snapshot: Snapshot) -> Snapshot:
    """As the next tick finds it: every request with its slot and promise, and nothing freed since."""
    placed = {placement.id: placement for placement in plan(snapshot).placements}
    queue = tuple(replace(request, slot=placed[request.id].slot, promise_s=placed[request.id].promise_s) for request in snapshot.queue)
    return replace(snapshot, queue=queue, policy=Policy(may_improve=False))


def _seconds(work: Callable[[], object], *, runs: int) -> float:
    """The median of some runs."""
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
