"""A booking starts at its time or not at all: whether it fits then, and where else it would."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from gpr.planner.board import Board
from gpr.planner.ground import Kind
from gpr.planner.repair import board_of
from gpr.planner.snapshot import Request, Snapshot

# People book by the minute: other times are looked for on whole ones.
GRID_S: Final = 60


@dataclass(frozen=True, slots=True)
class Nearest:
    """`fits`: at the time asked for. The last whole minute before that and the first after it that would do; None where there is none."""

    fits: bool
    before_s: int | None
    after_s: int | None


def nearest(snapshot: Snapshot, booking: Request, *, since_s: int) -> Nearest:
    """Beside all slots; other times no earlier than `since_s`. A request in the queue with its id is left out.

    Cost as for one newcomer in `plan`, and again for each place that is not on a whole minute.
    """
    board, _ = board_of(replace(snapshot, queue=tuple(request for request in snapshot.queue if request.id != booking.id)))
    kind, asked_s = board.kind(booking), booking.earliest_start_s
    fits = asked_s >= board.now_s and board.earliest(kind, asked_s, asked_s + 1) is not None
    return Nearest(fits, _last_before(board, kind, asked_s, since_s), _first_after(board, kind, max(asked_s + 1, since_s)))


def _last_before(board: Board, kind: Kind, asked_s: int, since_s: int) -> int | None:
    until_s = _floor(asked_s - 1)
    while until_s >= since_s and (found := board.latest(kind, since_s, until_s)):
        until_s = _floor(found[0])
        if until_s == found[0]:
            return until_s
    return None


def _first_after(board: Board, kind: Kind, since_s: int) -> int | None:
    since_s = -_floor(-since_s)
    while found := board.earliest(kind, since_s):
        since_s = -_floor(-found[0])
        if since_s == found[0]:
            return since_s
    return None


def _floor(at_s: int) -> int:
    return at_s // GRID_S * GRID_S
