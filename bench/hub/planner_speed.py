"""Measures the pure planner at size: everything that a tick, an offer and a restart do, at growing queues on busy nodes.

The product's board goes on from plan to plan: its submits are "a newcomer's plan" and its estimates "an offer", both "from a board that
goes on". "A whole plan" and "an offer from a snapshot" make the board anew, as a process does when it starts or slots are lost.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from bench.figures import Figure
from planner.board.board import Board
from planner.engine import admit, plan, plan_newcomers
from planner.offers import OfferFinder, offers
from planner.promises.live_board import LiveBoard
from planner.promises.repair import board_of
from planner.promises.slack import SlackTracker
from planner.snapshot import Memory, Node, Pool, Quota, Request, Running, Snapshot, Within

SIZES = ((1_000, 500), (10_000, 5_000), (20_000, 10_000))
LARGE = (100_000, 5_000)
GPUS = 8
RUNS = 5
NEWCOMERS = 25
PROJECTS = 20
# Workspaces run one box at a time, so of their other requests each waits for those before it.
OF_A_WORKSPACE = 20
OF_A_RACK = 16
LATER_S = 100_000
LIMITED = 5
HANDICAP_MOST_S = 20_000
# Twice as many on twice as many nodes may take so much longer.
DOUBLING = "<= 2.4"
GROWING = ("a whole plan", "all expected starts, on a board")
GOALS = {
    "a plan from nothing": "<= 10 s",
    "restart from stored slots": "<= 1 s",
    "a tick with nothing to do, on a board": "<= 0.02 s",
    "all expected starts, on a board": "<= 0.3 s",
    "one offer, on a board": "<= 0.002 s",
    "a whole plan": "<= 0.3 s",
    "a newcomer's plan, from a board that goes on": "<= 0.015 s",
    "an offer, from a board that goes on": "<= 0.015 s",
}
LARGE_GOALS = {"a plan from nothing": "<= 30 s", "a tick with nothing to do, on a board": "<= 0.2 s"}


def run(traces: Path | None) -> list[Figure]:
    plan(_snapshot(10, 5))  # compiles
    measured = {size: _case(*size) for size in SIZES}
    return [*(figure for size, of in measured.items() for figure in _figures(*size, of)), *_doubling(*list(measured.items())[-2:])]


def run_large(traces: Path | None) -> list[Figure]:
    """Measures the deepest queue that the database is measured with (bench/hub/queue_large.py), once each."""
    plan(_snapshot(10, 5))  # compiles
    fresh = _snapshot(*LARGE)
    began = time.perf_counter()
    stored = with_slots(fresh)
    measured = {
        "a plan from nothing": time.perf_counter() - began,
        "restart from stored slots": _seconds(partial(board_of, stored), runs=1),
        "a tick with nothing to do, on a board": _seconds(board_of(stored)[0].start, runs=RUNS),
        "a whole plan": _seconds(partial(plan, stored), runs=1),
    }
    return [
        Figure("planner-large", f"{_title(*LARGE)}: {what}", "s", seconds, goal=LARGE_GOALS.get(what, ""))
        for what, seconds in measured.items()
    ]


@dataclass(slots=True)
class _Newcomers:
    """Holds a board as it stands between ticks, to measure newcomers on."""

    board: Board
    slack: SlackTracker


def _case(queue_count: int, node_count: int) -> dict[str, float]:
    """Returns the seconds of each."""
    fresh = _snapshot(queue_count, node_count)
    nothing_s = _seconds(partial(plan, fresh), runs=1)
    stored = with_slots(fresh)
    restart_s = _seconds(partial(board_of, stored), runs=3)
    newcomers = _Newcomers(board := board_of(stored)[0], SlackTracker(board, stored.memory))
    board.start()
    live, newcomer = LiveBoard(), _request(random.Random(1), -1)
    live.restore(stored)
    crowd = _Crowd(live, stored)
    return {
        "a plan from nothing": nothing_s,
        "restart from stored slots": restart_s,
        "a tick with nothing to do, on a board": _seconds(board.start, runs=RUNS),
        "all expected starts, on a board": _seconds(board.expected, runs=RUNS),
        "one offer, on a board": _seconds(partial(_offer, newcomers, random.Random(1)), runs=50),
        "a whole plan": _seconds(partial(plan, stored), runs=1),
        "an offer from a snapshot": _seconds(partial(offers, stored, newcomer), runs=1),
        "a newcomer's plan, from a board that goes on": _seconds(crowd.grow, runs=NEWCOMERS),
        "an offer, from a board that goes on": _seconds(lambda: OfferFinder(stored, restore=live.restore).offers(newcomer), runs=RUNS),
        "a whole plan, guarantees for 20 projects": _seconds(partial(plan, _with_quotas(stored, most=None)), runs=1),
        "a whole plan, guarantees and limits for 20 projects": _seconds(
            partial(plan, _with_quotas(stored, most=node_count * GPUS)), runs=1
        ),
        **{f"a whole plan, {what}": _seconds(partial(plan, with_slots(change(fresh))), runs=1) for what, change in OTHERS.items()},
    }


class _Crowd:
    """A queue to which requests come, as they do between two ticks."""

    def __init__(self, live: LiveBoard, stands: Snapshot) -> None:
        self._live, self._stands, self._dice = live, stands, random.Random(3)

    def grow(self) -> None:
        came = self._stands.queue
        newcomer = _request(self._dice, 2 * LATER_S + len(came))
        crowd = replace(self._stands, queue=(*came, newcomer))
        with self._live.trial(crowd) as restored:
            made = plan_newcomers(crowd, restored) if restored is not None else None
        if made is None:
            raise RuntimeError("the board was not kept, or more than the newcomer moves")
        (placement,) = made.placements
        newcomer = replace(newcomer, slot=placement.slot, promise_s=placement.promise_s)
        self._stands = replace(crowd, queue=(*came, newcomer))


def _figures(queue_count: int, node_count: int, measured: Mapping[str, float]) -> list[Figure]:
    case = _title(queue_count, node_count)
    figures = [
        Figure("planner-speed", f"{case}: {what}", "s", seconds, goal=GOALS.get(what, "") if node_count == SIZES[1][1] else "")
        for what, seconds in measured.items()
    ]
    # The bench `slurm` has the same beside Slurm.
    return [*figures, Figure("planner-speed", f"{case}: planned from nothing", "jobs/s", queue_count / measured["a plan from nothing"])]


def _doubling(*sizes: tuple[tuple[int, int], Mapping[str, float]]) -> list[Figure]:
    (small, of_small), (large, of_large) = sizes
    case = f"{_title(*large)}, x {_title(*small)}"
    return [Figure("planner-speed", f"{case}: {what}", "x", of_large[what] / of_small[what], goal=DOUBLING) for what in GROWING]


def _title(queue_count: int, node_count: int) -> str:
    return f"{queue_count} queued on {node_count} nodes"


def _offer(newcomers: _Newcomers, dice: random.Random) -> None:
    """Submits the request and takes it back."""
    waiting = newcomers.board.enqueue(_request(dice, -1))
    admit(newcomers.board, newcomers.slack, waiting)
    newcomers.board.dequeue(waiting)


def _snapshot(queue_count: int, node_count: int) -> Snapshot:
    dice = random.Random(7)
    nodes = tuple(Node(f"n{number:05}", GPUS) for number in range(node_count))
    running = tuple(
        Running(f"r{number}", f"r{number}", "p", 101, "pool", (node.id,), GPUS, dice.randrange(60, 36_000))
        for number, node in enumerate(nodes)
    )
    queue = tuple(_request(dice, number) for number in range(queue_count))
    return Snapshot(now_s=0, pools=(Pool("pool", "c", "gpu", nodes),), running=running, queue=queue)


def _request(dice: random.Random, number: int) -> Request:
    gang = dice.random() < 0.1
    return Request(
        id=f"q{number}",
        slice=f"q{number}",
        project="p",
        priority=101,
        rank=number,
        node_count=dice.choice((2, 4, 8)) if gang else 1,
        gpus_per_node=0 if gang else dice.choice((1, 1, 2, 4, 8)),
        length_s=dice.randrange(600, 36_000),
        pools=("pool",),
    )


def with_slots(snapshot: Snapshot) -> Snapshot:
    """Gives every request its slot and promise, as the next tick finds it."""
    made = plan(snapshot)
    placed = {placement.id: placement for placement in made.placements}
    queue = tuple(replace(request, slot=placed[request.id].slot, promise_s=placed[request.id].promise_s) for request in snapshot.queue)
    return replace(snapshot, queue=queue, memory=Memory(shadows=made.remembered.shadows if made.remembered else ()))


def _few_workspaces(snapshot: Snapshot) -> Snapshot:
    count = max(len(snapshot.queue) // OF_A_WORKSPACE, 1)
    return _asked(snapshot, lambda request: replace(request, slice=f"s{request.rank % count}"))


def _in_racks(snapshot: Snapshot) -> Snapshot:
    """All nodes of a gang are in one rack."""
    (pool,) = snapshot.pools
    nodes = tuple(replace(node, rack=f"r{number // OF_A_RACK}") for number, node in enumerate(pool.nodes))
    racked = _asked(snapshot, lambda request: replace(request, within=Within.RACK if request.node_count > 1 else Within.ANY))
    return replace(racked, pools=(replace(pool, nodes=nodes),))


def _for_later(snapshot: Snapshot) -> Snapshot:
    dice = random.Random(3)
    return _asked(snapshot, lambda request: replace(request, earliest_start_s=dice.randrange(LATER_S)))


def _in_two_clusters(snapshot: Snapshot) -> Snapshot:
    """Half of the nodes are in each; all requests may use both."""
    (pool,) = snapshot.pools
    half = len(pool.nodes) // 2
    pools = (replace(pool, nodes=pool.nodes[:half]), Pool("other", "d", "gpu-d", pool.nodes[half:]))
    running = tuple(replace(box, pool="pool" if number < half else "other") for number, box in enumerate(snapshot.running))
    both = _asked(snapshot, lambda request: replace(request, pools=("pool", "other")))
    return replace(both, pools=pools, running=running)


def _liked_better(snapshot: Snapshot) -> Snapshot:
    """Each request would wait for one of two clusters, up to some hours."""
    dice = random.Random(5)
    return _asked(_in_two_clusters(snapshot), lambda request: replace(request, handicaps=(("other", dice.randrange(HANDICAP_MOST_S)),)))


def _at_limits(snapshot: Snapshot) -> Snapshot:
    """A few projects together may have half of the GPUs of one cluster."""
    most = len(snapshot.pools[0].nodes) * GPUS // 2 // LIMITED
    quotas = tuple(Quota(f"p{number}", "gpu", 0, most) for number in range(LIMITED))
    return replace(_asked(snapshot, lambda request: replace(request, project=f"p{request.rank % LIMITED}")), quotas=quotas)


def _asked(snapshot: Snapshot, change: Callable[[Request], Request]) -> Snapshot:
    return replace(snapshot, queue=tuple(map(change, snapshot.queue)))


# Queues in which something else than nodes is in the way of most.
OTHERS: Final[Mapping[str, Callable[[Snapshot], Snapshot]]] = {
    f"{OF_A_WORKSPACE} requests of each workspace": _few_workspaces,
    "each gang in one rack": _in_racks,
    "requests for later": _for_later,
    f"{LIMITED} projects at their limits": _at_limits,
    f"{LIMITED} projects at their limits in one of two clusters": lambda snapshot: _at_limits(_in_two_clusters(snapshot)),
    "one of two clusters liked better": _liked_better,
}


def _with_quotas(snapshot: Snapshot, *, most: int | None) -> Snapshot:
    """Each project is guaranteed an equal part. The limit stops no request, but it is counted."""
    gpus = sum(node.gpu_count for node in snapshot.pools[0].nodes)
    owners = [f"p{number}" for number in range(PROJECTS)]
    return replace(
        snapshot,
        quotas=tuple(Quota(owner, snapshot.pools[0].shape, gpus // PROJECTS, most) for owner in owners),
        queue=tuple(replace(request, project=owners[i % PROJECTS]) for i, request in enumerate(snapshot.queue)),
        running=tuple(replace(box, project=owners[i % PROJECTS]) for i, box in enumerate(snapshot.running)),
    )


def _seconds(work: Callable[[], object], *, runs: int) -> float:
    """Returns the median of some runs."""
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)
