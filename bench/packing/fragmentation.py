"""Counts GPUs that stay unusable when small requests land badly: our packing beside FGD, BestFit and Random on the openb traces.

The protocol is that of the published figures: requests in random order, topped up to 1.3 times the cluster's GPUs, placed one by one
and never taken away; those that fit nowhere are gone. The share of GPUs allocated in the end counts.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, NotRun
from bench.packing.model import WHOLE_GPU, Kind, PackNode, PackRequest, Policy, demand_of
from bench.packing.openb import Mix, arrivals, mixes, published, read_nodes, read_requests
from bench.packing.packer import Packer
from bench.packing.worths import Worths, worths_of
from planner.board.board import Board
from planner.snapshot import Node, PlanPolicy, Pool, Request

WORKLOADS = ("default", "gpushare40", "multigpu20", "cpu050")
SEEDS = range(42, 52)
# Seeds that nothing was tuned or published with.
OTHER_SEEDS = range(242, 245)
PEERS = {Policy.FGD: "FGD", Policy.BEST_FIT: "BestFit", Policy.RANDOM: "Random"}
NEVER_ENDS_S = 1_000_000
# After so many arrivals the demand is learned anew from them, where none is given.
LESSONS = (30, 100, 300, 1_000, 2_000, 4_000, 6_000)


@dataclass(frozen=True, slots=True)
class Run:
    """Holds percent: of the GPUs allocated when so much was asked for, and of those asked for several at once that were placed."""

    allocated: dict[int, float]
    several: float
    decision_s: float


def run(traces: Path | None) -> list[Figure]:
    folder = traces / "openb" if traces else None
    if folder is None or not folder.is_dir():
        raise NotRun("it needs the openb traces: --traces DIR with a folder openb, or EGS_TRACES")
    nodes = read_nodes(folder)
    figures = [figure for workload in WORKLOADS for figure in _workload(folder, workload, nodes)]
    for name, mix in mixes(nodes, read_requests(folder, "default")).items():
        figures += _mix(name, mix)
    return [*figures, *_engine(nodes, read_requests(folder, "default"))]


def _workload(folder: Path, workload: str, nodes: Sequence[PackNode]) -> list[Figure]:
    mix = nodes, read_requests(folder, workload)
    ours = _runs(mix, Policy.EGS, SEEDS)
    peers = {policy: _runs(mix, policy, SEEDS) for policy in PEERS}
    rows = [
        _figure(f"{workload}: {load} % asked for, allocated", _mean(ours, load), f"{PEERS[policy]}, rerun", _mean(peers[policy], load))
        for policy, loads in ((Policy.FGD, (100, 115, 130)), (Policy.BEST_FIT, (130,)), (Policy.RANDOM, (130,)))
        for load in loads
    ]
    for policy, name in PEERS.items():
        theirs = statistics.fmean(published(folder, workload, name).values())
        rows.append(_figure(f"{workload}: our rerun of {name}", _mean(peers[policy], 130), "as published", theirs))
    pairs = list(zip(ours, peers[Policy.FGD], strict=True))
    won = sum(mine.allocated[130] > theirs.allocated[130] for mine, theirs in pairs)
    rows.append(Figure("fragmentation", f"{workload}: seeds of {len(pairs)} where ours allocates more than FGD", "", won))
    lead = min(_mean(ours, load) - _mean(peers[Policy.FGD], load) for load in range(30, 131))
    rows.append(Figure("fragmentation", f"{workload}: least lead over FGD, 30 to 130 % asked for", "points", round(lead, 2)))
    several = [statistics.fmean(run.several for run in runs) for runs in (ours, peers[Policy.FGD])]
    rows.append(_figure(f"{workload}: placed of those asked for several at once", several[0], "FGD, rerun", several[1]))
    learned = _runs(mix, Policy.EGS, OTHER_SEEDS, learning=True)
    theirs = _mean(_runs(mix, Policy.FGD, OTHER_SEEDS), 130)
    rows.append(_figure(f"{workload}: 130 %, demand learned from arrivals", _mean(learned, 130), "FGD told the demand", theirs))
    times = [statistics.median(run.decision_s for run in runs) * 1e6 for runs in (ours, peers[Policy.FGD])]
    return [*rows, Figure("fragmentation", f"{workload}: a decision, mean", "us", times[0], "FGD, rerun", times[1])]


def _mix(name: str, mix: Mix) -> list[Figure]:
    ours, theirs = (_mean(_runs(mix, policy, OTHER_SEEDS), 130) for policy in (Policy.EGS, Policy.FGD))
    return [_figure(f"{name}: 130 % asked for, allocated", ours, "FGD, rerun", theirs)]


def _engine(nodes: Sequence[PackNode], requests: Sequence[PackRequest]) -> list[Figure]:
    """The planner's engine places these itself: it knows whole GPUs, so these ask for nothing else."""
    mix = nodes, [PackRequest(0, 0, request.gpu_count, WHOLE_GPU) for request in requests if request.gpu_count]
    ours = [_engine_run(mix, seed) for seed in OTHER_SEEDS]
    theirs = _runs(mix, Policy.FGD, OTHER_SEEDS)
    mean, several = (statistics.fmean(figures) for figures in zip(*ours, strict=True))
    their_several = statistics.fmean(run.several for run in theirs)
    return [
        _figure("whole GPUs, no CPU or memory: 130 % asked for, allocated by the engine", mean, "FGD, rerun", _mean(theirs, 130)),
        _figure("the same: placed of those asked for several at once", several, "FGD, rerun", their_several),
    ]


def _engine_run(mix: Mix, seed: int) -> tuple[float, float]:
    """Returns percent as in `Run`: allocated in the end, and of those asked for several at once that were placed."""
    nodes, rng = list(mix[0]), random.Random(seed)
    rng.shuffle(nodes)
    capacity = sum(node.gpu_count for node in nodes)
    pool = Pool("openb", "openb", "any", tuple(Node(node.id, node.gpu_count) for node in nodes if node.gpu_count))
    board, stream = Board((pool,), now_s=0, policy=PlanPolicy()), arrivals(mix[1], WHOLE_GPU * capacity, rng)
    placed = [_has_place(board, number, request.gpu_count) for number, request in enumerate(stream)]
    used = sum(request.gpu_count for request, is_placed in zip(stream, placed, strict=True) if is_placed)
    return 100 * used / capacity, _several(stream, placed)


def _has_place(board: Board, number: int, gpu_count: int) -> bool:
    """Returns whether there is a place now that stays free forever."""
    request = Request(str(number), "", "", 1, number, 1, gpu_count, NEVER_ENDS_S, ("openb",))
    demand = board.demand(request)
    found = board.earliest(demand, 0, 1)
    if found is not None:
        board.place_at(board.enqueue(request), demand, found)
    return found is not None


def _runs(mix: Mix, policy: Policy, seeds: Sequence[int], *, learning: bool = False) -> list[Run]:
    nodes, requests = mix
    # FGD as published looks at the most frequent kinds; the rare ones are nearly all of those with several GPUs.
    demand = () if learning else demand_of(requests, cover=0.95 if policy is Policy.FGD else 1.0)
    worths = worths_of(nodes, demand) if policy is Policy.EGS else None
    return [_run(mix, policy, seed, demand, worths, learning=learning) for seed in seeds]


def _run(mix: Mix, policy: Policy, seed: int, demand: Sequence[Kind], worths: Worths | None, *, learning: bool) -> Run:
    # The nodes' order breaks ties, so it is drawn, too, as the published simulator does.
    nodes, rng = list(mix[0]), random.Random(seed)
    rng.shuffle(nodes)
    capacity = WHOLE_GPU * sum(node.gpu_count for node in nodes)
    stream = arrivals(mix[1], capacity, rng)
    draws = [rng.getrandbits(40) for _ in stream]
    packer = Packer(nodes, policy=policy, demand=demand, worths=worths)
    _compile(packer)

    asked, used, placed, spent_s = 0, 0, [], 0.0
    at: dict[int, list[int]] = {}
    for count, (request, draw) in enumerate(zip(stream, draws, strict=True)):
        if learning and count in LESSONS:
            packer.expect(demand_of(stream[:count]))
        began = time.perf_counter()
        is_placed = packer.place(request, draw=draw) is not None
        spent_s += time.perf_counter() - began
        placed.append(is_placed)
        asked += request.gpu_milli_sum
        used += request.gpu_milli_sum * is_placed
        at.setdefault(round(100 * asked / capacity), []).append(used)
    # The published figure is the mean over all arrivals that round to this percentage.
    allocated = {percent: 100 * statistics.fmean(values) / capacity for percent, values in at.items()}
    return Run(allocated, _several(stream, placed), spent_s / len(stream))


def _several(stream: Sequence[PackRequest], placed: Sequence[bool]) -> float:
    asked = sum(request.gpu_count for request in stream if request.gpu_count > 1)
    had = sum(request.gpu_count for request, is_placed in zip(stream, placed, strict=True) if request.gpu_count > 1 and is_placed)
    return 100 * had / asked if asked else 100.0


def _compile(packer: Packer) -> None:
    """The first call compiles, which is not the decision's time."""
    placement = packer.place(PackRequest(0, 0))
    if placement:
        packer.give_back(placement)


def _mean(runs: Sequence[Run], load: int) -> float:
    return statistics.fmean(run.allocated[load] for run in runs)


def _figure(case: str, ours: float, peer: str, theirs: float) -> Figure:
    return Figure("fragmentation", case, "%", round(ours, 2), peer, round(theirs, 2))
