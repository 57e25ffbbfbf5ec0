"""Some compiled functions count no references: what was planned with is let go all the same."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from planner.board.board import Board
from planner.capacity.profile import Ints
from planner.engine import place_newcomers
from planner.promises.repair import board_of
from planner.snapshot import PlanPolicy, Quota, Snapshot
from tests.planner.build import EITHER, GUARDED, pool, request, running, settled


def crowd(policy: PlanPolicy) -> Snapshot:
    """Boxes that run, gangs and parts of nodes that wait, below a limit."""
    boxes = tuple(running(f"r{i}", f"p{i}", end=50 + 7 * i, gpus=5) for i in range(6))
    queue = tuple(request(f"q{i}", count=1 + i % 3, gpus=(0, 1, 4)[i % 3], length=20 + i, slice=f"s{i % 5}") for i in range(30))
    quotas = (Quota("x", "shape-p", guaranteed=8, most=40),)
    return Snapshot(0, (pool(8),), boxes, queue, policy=policy, quotas=quotas)


def arrays_of(board: Board) -> Iterator[Ints]:
    capacity = board.capacity
    tuples = (capacity.nodes, capacity.limits, capacity, board._table, board._free_now or ())
    return (part for parts in tuples for part in parts if isinstance(part, np.ndarray))


@EITHER
def test_a_board_that_was_planned_on_is_freed_whole(policy: PlanPolicy) -> None:
    snapshot = replace(settled(crowd(policy)), now_s=10, has_freed=True)
    board, newcomers = board_of(snapshot)
    place_newcomers(board, newcomers, snapshot)
    board.expected()
    board.remove_slots([waiting := board.order[0]])
    assert list(board.put_back([waiting])) == []
    board.compress()
    board.start()
    left = [weakref.ref(array) for array in arrays_of(board)]

    del board, newcomers, waiting
    gc.collect()

    assert len(left) > 20
    assert [ref for ref in left if ref() is not None] == []


def test_what_was_planned_is_right_when_memory_is_used_again() -> None:
    """Freed too early, it would be written over by the next plans."""
    boards = [board_of(settled(crowd(GUARDED)))[0] for _ in range(5)]
    first = boards[0].expected()

    assert all(board.expected() == first for board in boards for _ in range(20))
