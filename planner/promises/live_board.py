"""Keeps a board from plan to plan and applies what changed between two snapshots.

It must plan as `board_of` does. When slots are lost, late or at risk, `board_of` makes the board anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final, NamedTuple, TypeVar

from planner.board.board import Board, Box
from planner.board.waiting import Waiting
from planner.capacity.profile import NONE, Profiles
from planner.promises.proof import is_overcommitted
from planner.promises.reference_queues import BoxPair, ReferenceQueues, box_of_board, remembered_box
from planner.promises.repair import board_of, cause_of_lost_slot, slot_problem
from planner.snapshot import Request, Running, Shadow, Snapshot

# After so many changes the board is made anew, since unused limits and demands stay on it.
CHANGES_MOST: Final = 20_000
Part = TypeVar("Part")


class Restored(NamedTuple):
    board: Board
    newcomers: list[Waiting]  # they have no stored slot
    queues: ReferenceQueues | None = None  # None: not known


Restore = Callable[[Snapshot], Restored]


def restore_anew(snapshot: Snapshot) -> Restored:
    return Restored(*board_of(snapshot))


class LiveBoard:
    """Several threads may use it. The snapshots must reuse the objects of requests, boxes, shadows and pools that did not change."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: _Kept | None = None

    @contextmanager
    def trial(self, snapshot: Snapshot) -> Iterator[Restored | None]:
        """Gives the board itself, to place newcomers beside all slots: afterwards it is as before. None: it has to be made anew."""
        with self._lock:
            kept, self._kept = self._kept, None  # if this fails, nothing is kept
            if snapshot.edited is not None or kept is None or not kept.follow(snapshot):
                yield None
                return
            with kept.trial(snapshot) as restored:
                yield restored
            self._kept = kept

    def restore(self, snapshot: Snapshot) -> Restored:
        """Return the same as `restore_anew`. The caller owns the result."""
        if snapshot.edited is not None:
            return restore_anew(snapshot)
        with self._lock:
            kept, self._kept = self._kept, None  # if this fails, nothing is kept
            if kept is None or not kept.follow(snapshot):
                board, newcomers = board_of(snapshot)
                if not _is_calm(board, snapshot):
                    return Restored(board, newcomers)
                kept = _Kept(board, snapshot)
            self._kept = kept
            return kept.restored(snapshot)


def _is_calm(board: Board, snapshot: Snapshot) -> bool:
    """Tells whether each slot is where it was stored, and every cluster is heard."""
    if any(waiting.risk or (waiting.displaced and waiting.request.slot) for waiting in board.order):
        return False
    return not any(window.unheard for pool in snapshot.pools for node in pool.nodes for window in node.closed)


def contents_of(board: Board) -> tuple[object, ...]:
    nodes = board.capacity.nodes
    free = {id_: _steps_of(nodes, number) for number, id_ in enumerate(board.node_ids)}
    promises = {id_: waiting.promise_s for id_, waiting in board.queue.items()}
    return board.now_s, board.slots(), promises, {id_: box.end_s for id_, box in board.running.items()}, free


def _steps_of(profiles: Profiles, index: int) -> list[tuple[int, int]]:
    step, found = profiles.head.item(index), []
    while step != NONE:
        at_s, free, after = profiles.steps[step].tolist()
        found.append((at_s, free))
        step = after
    return found


class _Kept:
    def __init__(self, board: Board, snapshot: Snapshot) -> None:
        self._board = board
        self._pools, self._quotas = snapshot.pools, snapshot.quotas
        self._requests = {request.id: request for request in snapshot.queue}
        self._boxes = {box.id: box for box in snapshot.running}
        self._queues: ReferenceQueues | None = None
        self._in_queues: dict[str, Request | Box | Shadow] = {}
        self._change_count = 0

    def restored(self, snapshot: Snapshot) -> Restored:
        return self._with_newcomers(self._board.copy(), snapshot)

    @contextmanager
    def trial(self, snapshot: Snapshot) -> Iterator[Restored]:
        restored = self._with_newcomers(self._board, snapshot)
        promised = [waiting.promise_s for waiting in restored.newcomers]
        yield restored
        for waiting, promise_s in zip(restored.newcomers, promised, strict=True):
            waiting.promise_s = promise_s
            if restored.board.has_slot(waiting):
                restored.board.remove_slot(waiting)

    def _with_newcomers(self, board: Board, snapshot: Snapshot) -> Restored:
        board.keep_as_stored()
        newcomers = [board.queue[request.id] for request in snapshot.queue if request.slot is None]
        return Restored(board, newcomers, self._queues_for(snapshot) if snapshot.memory.shadows else None)

    def follow(self, snapshot: Snapshot) -> bool:
        """Return False if the board must be made anew; then it is no longer valid."""
        board, is_same = self._board, self._pools is snapshot.pools and self._quotas == snapshot.quotas
        if not is_same or board.policy != snapshot.policy or snapshot.now_s < board.now_s or self._change_count > CHANGES_MOST:
            return False
        board.advance(snapshot.now_s)
        requests, boxes = {request.id: request for request in snapshot.queue}, {box.id: box for box in snapshot.running}
        other_requests, other_boxes = _changed(self._requests, requests), set(_changed(self._boxes, boxes))
        other_boxes.update(box.id for box in board.running.values() if box.end_s <= board.now_s)  # now they end a grace later
        for id_ in other_requests:
            if id_ in self._requests:
                board.dequeue(board.queue[id_])
        for id_ in other_boxes:
            if id_ in self._boxes:
                board.release(id_)
        self._requests, self._boxes = requests, boxes
        self._change_count += len(other_requests) + len(other_boxes)
        added = [boxes[id_] for id_ in other_boxes if id_ in boxes]
        return self._add_boxes(added) and self._add_requests([requests[id_] for id_ in other_requests if id_ in requests])

    def _add_boxes(self, boxes: list[Running]) -> bool:
        board = self._board
        board.add_all_running(boxes)
        made = (board.running[box.id] for box in boxes)
        return not any(is_overcommitted(board.capacity, box.places, box.demand.limits[0], box.start_s, box.end_s) for box in made)

    def _add_requests(self, requests: list[Request]) -> bool:
        board, slotted = self._board, []
        for waiting in board.enqueue_all(requests):
            slot = waiting.request.slot
            if slot is None:
                waiting.displaced = cause_of_lost_slot(waiting)
                continue
            if slot.start_s < board.now_s or slot_problem(board, waiting.request, slot) is not None:
                return False
            if waiting.promise_s is None:
                waiting.promise_s = slot.start_s
            slotted.append((waiting, slot))
        if slotted and any(True for _ in board.restore_slots([waiting for waiting, _ in slotted], [slot for _, slot in slotted])):
            return False
        next_s = board.next_start_s()
        return next_s is None or next_s >= board.now_s

    def _queues_for(self, snapshot: Snapshot) -> ReferenceQueues:
        queues = self._queues or ReferenceQueues(self._board)
        slotted = {id_: request for id_, request in self._requests.items() if request.slot is not None}
        now_in: dict[str, Request | Box | Shadow] = {
            **slotted,
            **self._board.running,
            **{shadow.id: shadow for shadow in snapshot.memory.shadows},
        }
        others = _changed(self._in_queues, now_in)
        queues.remove(id_ for id_ in others if id_ in self._in_queues)
        queues.add({id_: self._boxes_in_queues(now_in[id_]) for id_ in others if id_ in now_in})
        queues.advance(snapshot.now_s, snapshot.memory.shadows)
        self._queues, self._in_queues = queues, now_in
        return queues.copy()

    def _boxes_in_queues(self, part: Request | Box | Shadow) -> BoxPair:
        board = self._board
        if isinstance(part, Shadow):
            return remembered_box(board, part)
        return box_of_board(part if isinstance(part, Box) else board.box(board.queue[part.id]))


def _changed(before: Mapping[str, Part], now: Mapping[str, Part]) -> list[str]:
    return [*(id_ for id_, part in now.items() if before.get(id_) is not part), *(id_ for id_ in before if id_ not in now)]
