"""Measures speed on the cases that others publish: filling a cluster, one large gang, a deep queue, submits per second.

Each twice: the planner alone, and end to end through the services on PostgreSQL and Redis (bench/hub/speed_hub.py); submits also over HTTP
(bench/hub/speed_http.py). The peers' figures come from other runs, most of them with an API server; only our end-to-end ones are of that
kind. We reserve nodes where KAI and kube-scheduler bind pods.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from bench.figures import Figure
from bench.hub.own_hub import figures_from
from bench.hub.speed_hub import (
    DEEP_NODES,
    DEEP_QUEUE,
    FILL_HERE_S,
    FILL_NODES,
    GANG_NODES,
    GPUS,
    KAI_FILL_S,
    KAI_GANG_S,
    SLURM_PLANNED_PER_S,
)
from planner.engine import plan
from planner.snapshot import Node, Pool, Request, Running, Snapshot

CROWDS = ((1, 1), (1, 16), (2, 16), (2, 64))  # processes, and threads in each
QUEUES = (0, 1_000, 10_000)
ALONE = "planner alone"


def run(traces: Path | None) -> list[Figure]:
    figures = [
        *_alone(),
        *(figure for size in CROWDS for figure in figures_from("bench.hub.speed_hub", "rate", *map(str, size), with_redis=True)),
        *(figure for queued in QUEUES for figure in figures_from("bench.hub.speed_http", str(queued), with_redis=True)),
    ]
    for case in ("gang", "deep", "fill", "inventory"):
        figures += figures_from("bench.hub.speed_hub", case, with_redis=True)
    return figures


def run_boxes(traces: Path | None) -> list[Figure]:
    return figures_from("bench.hub.speed_hub", "boxes", with_redis=True)


def _alone() -> list[Figure]:
    plan(Snapshot(now_s=0, pools=(_pool(2),), queue=tuple(_box(i, 1, 4, 600) for i in range(5))))  # compiles
    return [*_fill(), _gang(), *_deep()]


def _fill() -> list[Figure]:
    queue = tuple(_box(number, 1, 1, 86_400) for number in range(FILL_NODES * GPUS))
    seconds = _started_s(Snapshot(now_s=0, pools=(_pool(FILL_NODES),), queue=queue))
    case = f"{ALONE}: {FILL_NODES} x {GPUS} GPUs filled by {len(queue):,} requests for one"
    peers = {
        "KAI published, until bound": KAI_FILL_S,
        **{f"{name}, two cores, another run": took_s for name, took_s in FILL_HERE_S.items()},
    }
    return [Figure("speed", case, "s", seconds, peer, took_s) for peer, took_s in peers.items()]


def _gang() -> Figure:
    seconds = _started_s(Snapshot(now_s=0, pools=(_pool(GANG_NODES),), queue=(_box(0, GANG_NODES, 0, 86_400),)))
    return Figure("speed", f"{ALONE}: a gang of {GANG_NODES} whole nodes", "s", seconds, "KAI published, 512 pods bound", KAI_GANG_S)


def _deep() -> list[Figure]:
    dice, pool = random.Random(7), _pool(DEEP_NODES)
    running = tuple(Running(f"r{n}", "", "p", 101, pool.id, (node.id,), GPUS, 86_400) for n, node in enumerate(pool.nodes))
    queue = tuple(_box(number, dice.randint(1, 16), 0, dice.randrange(600, 36_000)) for number in range(DEEP_QUEUE))
    began = time.perf_counter()
    made = plan(Snapshot(now_s=0, pools=(pool,), running=running, queue=queue))
    seconds = time.perf_counter() - began
    planned = sum(placement.slot is not None for placement in made.placements)
    case, peer = f"{ALONE}: {DEEP_QUEUE:,} queued on {DEEP_NODES:,} full nodes", "Slurm's backfill, another run"
    return [
        Figure("speed", f"{case}, planned", "", planned, peer, 1_306),
        Figure("speed", f"{case}, all planned after", "s", seconds, peer, 4.0),
        Figure("speed", f"{case}, planned", "jobs/s", planned / seconds, peer, SLURM_PLANNED_PER_S),
    ]


def _started_s(snapshot: Snapshot) -> float:
    """Returns the seconds of a plan in which all start now."""
    began = time.perf_counter()
    made = plan(snapshot)
    seconds = time.perf_counter() - began
    if len(made.starts) < len(snapshot.queue):
        raise RuntimeError(f"only {len(made.starts)} of {len(snapshot.queue)} start")
    return seconds


def _pool(node_count: int) -> Pool:
    return Pool("p", "c", "gpu", tuple(Node(f"n{number:05}", GPUS) for number in range(node_count)))


def _box(number: int, nodes: int, gpus: int, length_s: int) -> Request:
    return Request(f"q{number}", f"q{number}", "p", 101, number, nodes, gpus, length_s, ("p",))
