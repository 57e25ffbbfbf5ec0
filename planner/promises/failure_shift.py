"""Shifts later slots of a pool after a node failure, so that fewer promises are broken.

A request that lost its slot takes the first place that earlier slots leave, and pushes later slots back until a gap absorbs the delay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.board.board import Board
from planner.board.waiting import Turn, Waiting
from planner.capacity.profile import Ints
from planner.snapshot import Within

# Limits the time of a tick: if more slots would have to move, none moves. A request with a topology constraint counts NEAR_COUNTS times.
SHIFTED_MOST, NEAR_COUNTS = 2000, 16


@dataclass(frozen=True, slots=True)
class _MovableSlot:
    waiting: Waiting
    start_s: int
    places: Ints
    since_s: int  # the earliest start to try: the stored start if the slot was lost
    is_lost: bool

    @property
    def by_start(self) -> tuple[int, Turn]:
        return self.since_s, self.waiting.turn


def shift_later_slots(board: Board, lost: Sequence[Waiting], broken: Sequence[Waiting], pool: int) -> None:
    """`lost` had slots on failed nodes of this pool and have new ones; those in `broken` now miss their promises.

    Slots move only if this breaks fewer promises, counted from the highest priority down, and none by more than the worst before.
    """
    slots = _slots_to_shift(board, lost, pool, highest=max(waiting.request.priority for waiting in broken))
    before, worst_s = _broken(board, slots), max(_late_s(board, waiting) for waiting in broken)
    board.remove_slots([slot.waiting for slot in slots])
    if _place_all(board, slots, pool, worst_s) and _broken(board, slots) < before:
        for slot in slots:
            if _late_s(board, slot.waiting) > 0:
                slot.waiting.displaced = broken[0].displaced
        return
    board.remove_slots([slot.waiting for slot in slots if board.has_slot(slot.waiting)])
    for slot in slots:
        board.place(slot.waiting, slot.start_s, slot.places)


def _slots_to_shift(board: Board, lost: Sequence[Waiting], pool: int, *, highest: int) -> list[_MovableSlot]:
    found = [
        _MovableSlot(waiting, board.start_s(waiting), board.box(waiting).places, _since_s(board, waiting), is_lost=True) for waiting in lost
    ]
    first_s, were_lost = min(slot.since_s for slot in found), {waiting.request.id for waiting in lost}
    for waiting in board.order:
        is_low = waiting.request.priority <= highest and waiting.request.id not in were_lost
        if is_low and board.has_slot(waiting) and board.start_s(waiting) >= first_s and _may_shift(board, waiting, pool):
            start_s = board.start_s(waiting)
            found.append(_MovableSlot(waiting, start_s, board.box(waiting).places, start_s, is_lost=False))
    return sorted(found, key=lambda slot: slot.by_start)


def _since_s(board: Board, waiting: Waiting) -> int:
    slot, soonest_s = waiting.request.slot, board.soonest_s(waiting.request)
    return soonest_s if slot is None else max(slot.start_s, soonest_s)


def _may_shift(board: Board, waiting: Waiting, pool: int) -> bool:
    """Slots with a booked time, ordered nodes or evicted nodes stay."""
    request = waiting.request
    if board.pool_of_slot(waiting) != pool or board.pools[pool].supply is not None or waiting.risk is not None:
        return False
    return not request.is_fixed and not board.may_cause_evictions(request) and _late_s(board, waiting) == 0


def _place_all(board: Board, slots: Sequence[_MovableSlot], pool: int, worst_s: int) -> bool:
    """Return False if too many slots would move or one too far."""
    moved_count = 0
    for slot in slots:
        waiting, request = slot.waiting, slot.waiting.request
        if not slot.is_lost and board.has_room(slot.places, board.demand(request), slot.start_s):
            board.place(waiting, slot.start_s, slot.places)
            continue
        demand = board.demand(request, None if slot.is_lost else [pool])
        moved_count += 1 if request.within == Within.ANY else NEAR_COUNTS
        found = board.earliest(demand, slot.since_s) if moved_count <= SHIFTED_MOST else None
        if found is None:
            return False
        board.place_at(waiting, demand, found)
        if _late_s(board, waiting) > worst_s:
            return False
    return True


def _late_s(board: Board, waiting: Waiting) -> int:
    promise_s = waiting.promise_s
    late_s = 0 if promise_s is None else board.start_s(waiting) - promise_s
    return late_s if late_s > board.policy.promise_tolerance_s else 0


def _broken(board: Board, slots: Iterable[_MovableSlot]) -> list[int]:
    counts = Counter({slot.waiting.request.priority: 0 for slot in slots})
    counts.update(slot.waiting.request.priority for slot in slots if _late_s(board, slot.waiting) > 0)
    return [counts[priority] for priority in sorted(counts, reverse=True)]
