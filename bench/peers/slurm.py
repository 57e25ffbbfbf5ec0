"""Compares wait estimates with a live Slurm's, on the same frozen states and on one small queue that really drains.

Frozen: nodes are full of boxes of hours, some more wait, and probes ask one after the other when they would start, each submitted
afterwards. Nothing ends meanwhile, so Slurm's estimate is held against Slurm's own backfill plan, and ours against what our planner does
when the clock is moved on. Draining: boxes of minutes, each canceled at its limit, and Slurm's estimates are held against its real starts.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure, NotRun
from bench.hub.planner_speed import with_slots
from bench.peers.slurmctld import Ask, Listed, Slurm, slurmctld
from planner.board.board import Board
from planner.engine import admit, plan
from planner.promises.ranges import quantile
from planner.promises.slack import SlackTracker
from planner.snapshot import Memory, Node, PlanPolicy, Pool, Request, Running, Snapshot
from simulation.joblist import TraceJob
from simulation.replay import POLICIES, replay

GPUS = 8
NODES = 64
# How many states at each depth of the queue.
STATES = {0: 10, 100: 10, 1000: 3}
PROBES = 10
SEED = 4001
# The draining queue.
DRAIN_NODES, DRAINED = 24, 70
# Slurm's scheduler runs now and then: so much is no wait.
AT_ONCE_S = 5
PLANNED_WITHIN_S = 180


def run(traces: Path | None) -> list[Figure]:
    figures = [figure for depth in STATES for figure in _frozen(depth)]
    return [*figures, *_draining()]


@dataclass(slots=True)
class _Told:
    """Holds for one side the seconds of each answer, and its error. Ours answers with a promise, then with the expected start."""

    took_s: list[float] = field(default_factory=list)
    played_s: list[float] = field(default_factory=list)
    kept: list[bool] = field(default_factory=list)
    off_s: list[float] = field(default_factory=list)
    planned_per_s: list[float] = field(default_factory=list)
    replanned_per_s: list[float] = field(default_factory=list)


def _frozen(depth: int) -> list[Figure]:
    slurm_told, ours_told = _Told(), _Told()
    _ours([], _pool(8), _asks(random.Random(1), 2), _asks(random.Random(0), 2), _Told())  # compiles
    for state in range(STATES[depth]):
        dice = random.Random(SEED + 1000 * depth + state)
        running, queue, probes = list(_filling(dice, NODES)), _asks(dice, depth), _asks(dice, PROBES)
        with slurmctld(nodes=NODES, gpus=GPUS) as slurm:
            listed = _load(slurm, running, queue)
            _slurms(slurm, probes, slurm_told)
        _ours(listed, _pool(NODES), queue, probes, ours_told)
    return _figures(f"{depth} queued on {NODES} nodes", ours_told, slurm_told)


def _figures(case: str, ours: _Told, slurm: _Told) -> list[Figure]:
    peer = "sbatch --test-only"
    figures = [_figure(case, f"an answer, p{level}", "ms", _ms(ours.took_s, level), peer, _ms(slurm.took_s, level)) for level in (50, 99)]
    figures.append(_figure(case, "with the expected start, p50", "ms", _ms(ours.played_s, 50), peer, _ms(slurm.took_s, 50)))
    figures.append(Figure("slurm", f"{case}: promises kept", "", statistics.fmean(ours.kept), goal="1"))
    if slurm.planned_per_s:
        theirs = statistics.median(slurm.planned_per_s)
        for what, rates in (("planned, all of them new", ours.planned_per_s), ("planned again, as by each tick", ours.replanned_per_s)):
            rate = statistics.median(rates)
            figures.append(_figure(case, what, "jobs/s", rate, "Slurm's backfill, all again each time", theirs))
            figures.append(Figure("slurm", f"{case}: {what}, x Slurm's backfill", "x", rate / theirs, goal=">= 10"))
    return [*figures, *_accuracy(case, ours, slurm, "Slurm, of its own plan")]


def _accuracy(case: str, ours: _Told, slurm: _Told, peer: str) -> list[Figure]:
    medians = [statistics.median(told.off_s) for told in (ours, slurm)]
    figures = [_figure(case, "estimates off by, median", "s", medians[0], peer, medians[1])]
    for minutes in (1, 10):
        shares = [sum(off_s <= 60 * minutes for off_s in told.off_s) / len(told.off_s) for told in (ours, slurm)]
        figures.append(_figure(case, f"estimates within {minutes} min", "", shares[0], peer, shares[1]))
    return figures


def _figure(case: str, what: str, unit: str, ours: float, peer: str, theirs: float) -> Figure:
    return Figure("slurm", f"{case}: {what}", unit, ours, peer, theirs)


def _ms(times_s: Sequence[float], level: int) -> float:
    return 1000 * (quantile(times_s, level / 100) or 0.0)


def _asks(dice: random.Random, count: int) -> list[Ask]:
    """Makes boxes of 1 to 24 hours, every fifth a gang."""
    return [_ask(dice, dice.randrange(60, 24 * 60)) for _ in range(count)]


def _ask(dice: random.Random, minutes: int) -> Ask:
    if dice.random() < 0.2:
        return Ask(dice.choice((2, 4, 8)), 0, minutes)
    return Ask(1, dice.choice((1, 2, 4, 0)), minutes)


def _filling(dice: random.Random, node_count: int) -> Iterator[Ask]:
    """Whole nodes and halves until all are full: Slurm packs halves of one node, as we do."""
    for _ in range(node_count // 2):
        yield Ask(1, 0, dice.randrange(30, 24 * 60))
    for _ in range(2 * (node_count - node_count // 2)):
        yield Ask(1, GPUS // 2, dice.randrange(30, 24 * 60))


def _load(slurm: Slurm, running: Sequence[Ask], queue: Sequence[Ask]) -> list[tuple[Ask, Listed]]:
    """Lists running boxes with their nodes and ends."""
    ask_of = {slurm.submit(ask): ask for ask in running}
    _wait(lambda: sum(job.is_running for job in slurm.queue()) == len(ask_of))
    for ask in queue:
        slurm.submit(ask)
    return [(ask_of[job.id], job) for job in slurm.queue() if job.is_running]


def _slurms(slurm: Slurm, probes: Sequence[Ask], told: _Told) -> None:
    estimates: dict[str, int] = {}
    for ask in probes:
        began = time.perf_counter()
        estimate_s = slurm.estimate(ask)
        told.took_s.append(time.perf_counter() - began)
        estimates[slurm.submit(ask)] = estimate_s
    _wait(lambda: all(job.start_s is not None for job in slurm.queue() if job.id in estimates))
    starts = {job.id: job.start_s for job in slurm.queue() if job.start_s is not None}
    told.off_s += [abs(starts[id_] - estimate_s) for id_, estimate_s in estimates.items()]
    tried, spent_s = slurm.backfill_cycle()
    if tried > len(probes):
        told.planned_per_s.append(tried / spent_s)


def _ours(running: Iterable[tuple[Ask, Listed]], pool: Pool, queue: Sequence[Ask], probes: Sequence[Ask], told: _Told) -> None:
    now_s = int(time.time())
    boxes = tuple(Running(job.id, "", "", 101, pool.id, job.nodes, ask.gpus, job.end_s or now_s) for ask, job in running)
    requests = tuple(_request(f"q{rank}", rank, ask, pool) for rank, ask in enumerate(queue))
    if requests:
        snapshot = Snapshot(now_s, (pool,), boxes, requests)
        told.planned_per_s.append(_planned_per_s(snapshot))
        told.replanned_per_s.append(_planned_per_s(with_slots(snapshot)))
    board = Board((pool,), now_s=now_s, policy=PlanPolicy())
    board.add_all_running(boxes)
    slack = SlackTracker(board, Memory())
    for request in requests:
        admit(board, slack, board.enqueue(request))
    board.start()
    expected_s, promises_s = {}, {}
    for rank, ask in enumerate(probes, start=len(queue)):
        id_ = f"probe{rank}"
        began = time.perf_counter()
        waiting = board.enqueue(_request(id_, rank, ask, pool))
        admit(board, slack, waiting)
        told.took_s.append(time.perf_counter() - began)
        expected_s[id_], promises_s[id_] = board.expected()[id_].start_s, waiting.promise_s or 0
        told.played_s.append(time.perf_counter() - began)
    starts = _play(board)
    told.kept += [starts[id_] <= promise_s for id_, promise_s in promises_s.items()]
    told.off_s += [abs(starts[id_] - start_s) for id_, start_s in expected_s.items()]


def _planned_per_s(snapshot: Snapshot) -> float:
    """Plans as a tick does: each request gets a promise, the expected start and its reason."""
    began = time.perf_counter()
    plan(snapshot)
    return len(snapshot.queue) / (time.perf_counter() - began)


def _play(board: Board) -> dict[str, int]:
    """Moves the clock on until no request waits; every box takes its whole length."""
    starts: dict[str, int] = {}
    while True:
        starts |= {new.request.id: new.slot.start_s for new in board.start()}
        next_s = board.next_start_s()
        if next_s is None:
            return starts
        board.now_s = min([next_s, *(box.end_s for box in board.running.values())])
        for id_ in [box.id for box in board.running.values() if box.end_s <= board.now_s]:
            board.release(id_)


def _request(id_: str, rank: int, ask: Ask, pool: Pool) -> Request:
    return Request(id_, "", "", 101, rank, ask.nodes, ask.gpus, 60 * ask.minutes, (pool.id,))


def _pool(node_count: int) -> Pool:
    return Pool("p", "c", "gpu", tuple(Node(f"n{number}", GPUS) for number in range(1, node_count + 1)))


def _wait(is_done: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PLANNED_WITHIN_S
    while not is_done():
        if time.monotonic() > until_s:
            raise NotRun("Slurm did not get there in time")
        time.sleep(0.5)


# The queue that drains.


def _draining() -> list[Figure]:
    """Both on the same asks in the same order; each then starts them as its own policy wants."""
    dice = random.Random(SEED)
    asks = [_ask(dice, dice.randrange(1, 5)) for _ in range(DRAINED)]
    with slurmctld(nodes=DRAIN_NODES, gpus=GPUS) as slurm:
        slurm_told = _drain(slurm, asks)
    pools = (_pool(DRAIN_NODES),)
    done = replay(
        POLICIES["egs"](pools),
        [_job(i, ask, pools[0]) for i, ask in enumerate(asks)],
        early=False,
        ignore_priority=True,
        clock=time.perf_counter,
    )
    ours_told = _Told(off_s=[abs(run.wait_s - run.forecast.expected_wait_s) for run in done.runs if run.forecast is not None])
    case = f"{DRAINED} boxes of 1 to 4 minutes on {DRAIN_NODES} nodes"
    kept = sum(run.start_s <= (run.promise_s or 0) for run in done.runs) / len(done.runs)
    return [*_accuracy(case, ours_told, slurm_told, "Slurm, of its starts"), Figure("slurm", f"{case}: promises kept", "", kept, goal="1")]


def _drain(slurm: Slurm, asks: Sequence[Ask]) -> _Told:
    """Submit all, asking before each; then play the nodes: a box that has had its time is canceled."""
    told = _Told()
    waiting: dict[str, tuple[float, int]] = {}
    ask_of: dict[str, Ask] = {}
    for ask in asks:
        estimate_s = slurm.estimate(ask)
        id_ = slurm.submit(ask)
        waiting[id_], ask_of[id_] = (time.time(), estimate_s), ask
    while waiting:
        time.sleep(0.2)
        for job in slurm.queue():
            if not job.is_running or job.start_s is None:
                continue
            if job.id in waiting:
                queued_s, estimate_s = waiting.pop(job.id)
                if job.start_s - queued_s > AT_ONCE_S:
                    told.off_s.append(abs(job.start_s - estimate_s))
            if time.time() >= job.start_s + 60 * ask_of[job.id].minutes:
                slurm.cancel(job.id)
    return told


def _job(number: int, ask: Ask, pool: Pool) -> TraceJob:
    """Slurm took about so many in a second."""
    length_s = 60 * ask.minutes
    return TraceJob(f"j{number}", number // 10, length_s, length_s, ask.nodes, ask.gpus, 101, "", (pool.id,))
