"""Put the stored slots back into the witness, and mend what no longer holds.

Two kinds of harm, two cures, so that as little as possible moves:
- A delay (nobody planned for a while, a box is overdue): who cannot start in time is shoved back on its own nodes, by no more than
  the delay, and so are those behind it. Otherwise a second's delay would send a request behind all others of its nodes.
- A loss (a node is gone or closed, the request was edited, a running box was extended): only the broken slots move, each to the
  earliest place that the others leave, best promise first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpr.planner.board import Board
from gpr.planner.plan import Cause
from gpr.planner.snapshot import Request, Slot
from gpr.planner.waiting import Waiting, box_of
from gpr.planner.witness import Box


def restore(board: Board, queue: Iterable[Waiting]) -> None:
    """Place all that have a stored slot, there if it is possible. Running boxes must be on the board already.

    Source: `force` in the policy's design, with a shove for delays. O(n log n) while nothing is broken.
    """
    standing: list[_Stored] = []
    lost: list[_Stored] = []
    for waiting in queue:
        slot = waiting.request.slot
        board.enroll(waiting)
        if slot is None:
            board.unplaced.append(waiting)
            continue
        stored = _Stored(waiting, slot, slot.start_s if waiting.promise_s is None else waiting.promise_s)
        waiting.promise_s = stored.promise_s
        waiting.displaced = _misfit(board, waiting.request, slot)
        (standing if waiting.displaced is None else lost).append(stored)
    lost += _stand(board, standing)
    _place_anew(board, lost)


@dataclass(frozen=True, slots=True)
class _Stored:
    waiting: Waiting
    slot: Slot
    promise_s: int

    @property
    def by_start(self) -> tuple[int, int, int, int, str]:
        turn = self.waiting.turn
        return self.slot.start_s, turn.minus_priority, self.promise_s, turn.rank, turn.id

    @property
    def by_promise(self) -> tuple[int, int, int, str]:
        turn = self.waiting.turn
        return turn.minus_priority, self.promise_s, turn.rank, turn.id


def _misfit(board: Board, request: Request, slot: Slot) -> tuple[Cause, str] | None:
    """Why the slot is no place for the request, whoever else is there."""
    changed = (Cause.CHANGED, request.id)
    if not len(slot.nodes) == len(set(slot.nodes)) == request.node_count:
        return changed
    # A pool whose last node is gone is gone from the request's pools as well: that is no edit.
    members = board.members.get(slot.pool, frozenset())
    if slot.pool not in request.pools and members:
        return changed
    for node_id in slot.nodes:
        if node_id not in members:
            return Cause.NODE_FAILURE, node_id
        if not 0 < board.witness.level(node_id, request.gpus_per_node) <= board.witness.nodes[node_id].gpu_count:
            return changed
    return changed if slot.start_s < request.earliest_start_s else None


def _stand(board: Board, standing: list[_Stored]) -> list[_Stored]:
    """Place these where they were stored, or shove them back; answers those that are lost."""
    late_s = max((board.now_s - stored.slot.start_s for stored in standing), default=0)
    shove_s = max(late_s, board.policy.overrun_grace_s if board.overdue else 0)
    obstacles = _Obstacles(board)
    in_order = sorted(standing, key=lambda stored: stored.by_start)
    return [stored for stored in in_order if not _stand_one(board, stored, shove_s, obstacles)]


def _stand_one(board: Board, stored: _Stored, shove_s: int, obstacles: _Obstacles) -> bool:
    """False when it could not be placed."""
    waiting, slot = stored.waiting, stored.slot
    if slot.start_s < board.now_s:
        slot = replace(slot, start_s=board.now_s)
        waiting.displaced = Cause.LATE_TICK, waiting.request.id
    box = box_of(waiting.request, slot)
    start_s: int | None = slot.start_s
    if not board.witness.has_room(box):
        waiting.displaced = obstacles.cause(box)
        board.freed.add(box)
        start_s = board.witness.earliest_there(box, latest_s=slot.start_s + shove_s) if shove_s > 0 else None
    if start_s is None:
        return False
    board.place(waiting, replace(slot, start_s=start_s))
    obstacles.add(waiting)
    return True


def _place_anew(board: Board, lost: list[_Stored]) -> None:
    for stored in sorted(lost, key=lambda stored: stored.by_promise):
        waiting = stored.waiting
        board.freed.add(box_of(waiting.request, stored.slot))
        slot = board.witness.earliest(waiting.request, board.soonest_s(waiting.request))
        if slot is not None:
            board.place(waiting, slot)


OVERDUE = 0


@dataclass(frozen=True, slots=True)
class _Rival:
    """A box on the board. `weight` ranks whom to blame: overdue, displaced, running, any other."""

    box: Box
    weight: int
    cause: tuple[Cause, str]

    @property
    def blame(self) -> tuple[int, int, str]:
        return self.weight, -self.box.end_s, self.box.id


class _Obstacles:
    """Who stands in the way of a slot, to be named as the cause. The index is made when first asked for: mostly nobody does."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._rivals: dict[str, list[_Rival]] | None = None

    def cause(self, box: Box) -> tuple[Cause, str]:
        if self._rivals is None:
            self._rivals = self._index()
        near = [rival for key in _places(box) for rival in self._rivals[key]]
        in_way = [rival for rival in near if rival.box.start_s < box.end_s and rival.box.end_s > box.start_s]
        worst = min(in_way, key=lambda rival: rival.blame, default=None)
        # A box that is overdue holds the node, open or closed.
        if worst is not None and worst.weight == OVERDUE:
            return worst.cause
        for node in box.nodes:
            for window in self._board.closed[node]:
                if window.start_s < box.end_s and window.end_s > box.start_s:
                    return Cause.NODE_FAILURE, node
        return worst.cause if worst is not None else (Cause.CHANGED, box.id)

    def add(self, waiting: Waiting) -> None:
        """A slot that was placed since."""
        if self._rivals is not None:
            self._enter(self._rivals, self._of_waiting(waiting))

    def _index(self) -> dict[str, list[_Rival]]:
        rivals: dict[str, list[_Rival]] = defaultdict(list)
        for box in self._board.running.values():
            is_overdue = box.id in self._board.overdue
            self._enter(rivals, _Rival(box, OVERDUE if is_overdue else 2, (Cause.OVERRUN, box.id)))
        for waiting in self._board.order:
            if waiting.slot is not None:
                self._enter(rivals, self._of_waiting(waiting))
        return rivals

    def _of_waiting(self, waiting: Waiting) -> _Rival:
        if waiting.displaced is not None:
            return _Rival(waiting.box, 1, waiting.displaced)
        return _Rival(waiting.box, 3, (Cause.CHANGED, waiting.request.id))

    def _enter(self, rivals: dict[str, list[_Rival]], rival: _Rival) -> None:
        for key in _places(rival.box):
            rivals[key].append(rival)


def _places(box: Box) -> list[str]:
    """Where a box can be in the way. Slices and nodes have their own names."""
    return [*(f"node {node}" for node in box.nodes), f"slice {box.slice}"]
