"""Lets slots give way to another slot, by right or by an administrator's decision.

A displaced slot goes to the latest place that keeps its promise, else to the earliest; then its promise moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from planner.board.board import Board, Box
from planner.board.waiting import Waiting, by_promise
from planner.capacity.placement import Demand
from planner.causes import Cause
from planner.promises.repair import place_again
from planner.snapshot import Moved


class DisplacedSlots:
    """Holds slots that were taken off the board until another has its place."""

    def __init__(self, board: Board, waiting: Iterable[Waiting]) -> None:
        self._board = board
        self._waiting = list(waiting)
        board.remove_slots(self._waiting)

    def put_back(self, cause: Callable[[Waiting], tuple[Cause, str]]) -> None:
        """Restore slots where possible, and place the others anew. `cause`: why a slot moved."""
        broken = [self._waiting[i] for i in self._board.put_back(self._waiting)]
        for each in sorted(broken, key=by_promise):
            each.displaced = cause(each)
            place_again(self._board, each)


def apply_move(board: Board, moved: Moved) -> None:
    waiting, behind = board.queue.get(moved.id), board.queue.get(moved.behind)
    if waiting is None or not board.has_slot(waiting) or waiting.request.is_fixed or waiting.risk is not None:
        return
    if behind is None:
        _move_up(board, waiting)
    elif board.has_slot(behind):
        _move_down(board, waiting, board.start_s(behind))


def place_or_restore(board: Board, waiting: Waiting, demand: Demand, found: tuple[int, int] | None, old: Box | None) -> None:
    if found is not None:
        board.place_at(waiting, demand, found)
    elif old is not None:
        board.place(waiting, old.start_s, old.places)


def _move_up(board: Board, waiting: Waiting) -> None:
    request, demand, old = waiting.request, board.demand(waiting.request), board.box(waiting)
    board.remove_slot(waiting)
    displaced_slots = DisplacedSlots(board, _behind(board, waiting, old.end_s))
    found = board.earliest(demand, board.soonest_s(request), old.start_s)
    place_or_restore(board, waiting, demand, found, old)
    if found is not None:
        waiting.promise_by(found[0])
    displaced_slots.put_back(lambda _: (Cause.ADMIN, request.id))


def _move_down(board: Board, waiting: Waiting, since_s: int) -> None:
    request, demand, old = waiting.request, board.demand(waiting.request), board.box(waiting)
    if since_s <= old.start_s:
        return
    board.remove_slot(waiting)
    waiting.displaced = Cause.ADMIN, request.id
    place_or_restore(board, waiting, demand, board.earliest(demand, since_s), old)


def _behind(board: Board, waiting: Waiting, end_s: int) -> list[Waiting]:
    others = (other for other in board.order if other.turn > waiting.turn and board.has_slot(other) and other.risk is None)
    return [other for other in others if board.start_s(other) < end_s and not other.request.is_fixed]
