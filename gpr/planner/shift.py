"""A node failed, and who stood there cannot be in time: those due later shift a little, so that as few promises as can be are broken.

Whoever lost its slot takes the first place that those due before it leave, whoever due later stood there takes the next, and so on, until
the node is back or a gap ends it. Each shift is small, so it breaks nothing while promises stand some time after their slots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from gpr.planner.board import Board
from gpr.planner.lines import Ints
from gpr.planner.plan import Cause
from gpr.planner.waiting import Turn, Waiting

# No tick may hang on it: where more would have to move, all stay.
SHIFTED_MOST = 2000


@dataclass(frozen=True, slots=True)
class _Stand:
    """Where a slot is, and since when it may be: `since_s` is its start, or what that was before it was lost."""

    waiting: Waiting
    start_s: int
    places: Ints
    since_s: int
    is_lost: bool

    @property
    def by_start(self) -> tuple[int, Turn]:
        return self.since_s, self.waiting.turn


def shift(board: Board, lost: Sequence[Waiting], cause: tuple[Cause, str] | None) -> None:
    """Unless that breaks fewer promises, of the highest priority first, all stay where they are. `lost`: they have slots again."""
    stands = _stands(board, lost)
    before = _broken_of(board)
    board.lift_all([stand.waiting for stand in stands])
    moved = _set_anew(board, stands)
    if moved is not None and _broken_of(board) < before:
        for waiting in moved:
            waiting.displaced = waiting.displaced or cause
        return
    board.lift_all([stand.waiting for stand in stands if board.has_slot(stand.waiting)])
    for stand in stands:
        board.place(stand.waiting, stand.start_s, stand.places)


def _stands(board: Board, lost: Sequence[Waiting]) -> list[_Stand]:
    """In order of their starts: those that were lost, and all behind them that may be moved."""
    found = [_Stand(waiting, board.start_s(waiting), board.box(waiting).places, _since_s(board, waiting), is_lost=True) for waiting in lost]
    first_s, mine = min(stand.since_s for stand in found), {id(waiting) for waiting in lost}
    pools = {pool for waiting in lost for pool in board.pools_of(waiting.request)}
    highest = max(waiting.request.priority for waiting in lost)
    for waiting in board.order:
        is_one = id(waiting) not in mine and board.has_slot(waiting) and waiting.request.priority <= highest
        if is_one and _may_shift(board, waiting, pools):
            start_s = board.start_s(waiting)
            if start_s >= first_s:
                found.append(_Stand(waiting, start_s, board.box(waiting).places, start_s, is_lost=False))
    return sorted(found, key=lambda stand: stand.by_start)


def _since_s(board: Board, waiting: Waiting) -> int:
    """Its slot, before it was lost."""
    slot, soonest_s = waiting.request.slot, board.soonest_s(waiting.request)
    return soonest_s if slot is None else max(slot.start_s, soonest_s)


def _may_shift(board: Board, waiting: Waiting, pools: set[int]) -> bool:
    """Nobody who loses what it was given: a time of its own, nodes that were ordered for it, or on which others end for it."""
    pool = board.pool_of_slot(waiting)
    return pool in pools and board.pools[pool].supply is None and not waiting.request.is_fixed and not board.may_claim(waiting.request)


def _set_anew(board: Board, stands: Sequence[_Stand]) -> list[Waiting] | None:
    """Each where it was if it still has room there, else as soon after that as it has. Answers who moved; None: too many, or no place."""
    moved: list[Waiting] = []
    for stand in stands:
        waiting, request = stand.waiting, stand.waiting.request
        kind = board.kind(request)
        if not stand.is_lost:
            if board.has_room(stand.places, kind, stand.start_s):
                board.place(waiting, stand.start_s, stand.places)
                continue
            kind = board.kind(request, [int(board.ground.pool_of[stand.places[0]])])
        found = board.earliest(kind, stand.since_s) if len(moved) < SHIFTED_MOST else None
        if found is None:
            return None
        board.place_at(waiting, kind, found)
        moved.append(waiting)
    return moved


def _broken_of(board: Board) -> list[int]:
    """How many promises are broken of each priority, the highest first."""
    tolerance_s = board.policy.promise_tolerance_s
    counts: dict[int, int] = defaultdict(int)
    for waiting in board.order:
        promise_s = waiting.promise_s
        counts[waiting.request.priority] += (
            promise_s is not None and board.has_slot(waiting) and board.start_s(waiting) > promise_s + tolerance_s
        )
    return list(counts.values())
