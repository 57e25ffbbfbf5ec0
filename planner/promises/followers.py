"""Keeps requests behind those that they start after.

A follower's slot starts no sooner than its predecessor ends at the latest: the end of a running box, or the promise plus the length of one
that waits. So a predecessor that starts by its promise moves no follower. A predecessor that ends later moves its followers' slots, and
promises that cannot be kept; it moves nobody else's.
"""

from __future__ import annotations

from planner.board.board import Board
from planner.board.waiting import Waiting
from planner.causes import Cause
from planner.promises.repair import place_again


def hold_followers(board: Board) -> bool:
    """Tell the passes over the queue when each follower may start. Return whether that is another time than before for any."""
    return sum(board.hold_until(waiting, board.opens_s(waiting.request)) for waiting in board.followers) > 0


def compress_chains(board: Board) -> None:
    """Move all slots up; once a predecessor has moved, its followers may, too."""
    board.compress()
    while hold_followers(board):
        board.compress()


def settle_followers(board: Board) -> None:
    """Move the slots that start before their predecessors end."""
    for waiting in board.followers:
        opens_s = board.opens_s(waiting.request)
        board.hold_until(waiting, opens_s)
        if waiting.risk is not None:
            continue  # nothing starts there, and once its cluster is heard the slot is judged again
        if board.has_slot(waiting) and board.start_s(waiting) < opens_s:
            _give_up(board, waiting)
        if not board.has_slot(waiting) and waiting.promise_s is not None:
            place_again(board, waiting)


def _give_up(board: Board, waiting: Waiting) -> None:
    board.remove_slot(waiting)
    after, request = waiting.request.after, waiting.request
    cause = (Cause.OVERRUN if after in board.overdue else Cause.PREDECESSOR), after
    if request.slot is not None:
        waiting.displaced = waiting.displaced or cause
