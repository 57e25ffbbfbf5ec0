"""Keeps a board from plan to plan and applies what changed between two snapshots.

It must plan as `board_of` does. When slots are lost, late or at risk, `board_of` makes the board anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import is_
from threading import Lock
from typing import Final, NamedTuple, TypeVar

from planner.board.board import Board
from planner.board.course_cache import CourseCache
from planner.board.waiting import Waiting
from planner.capacity.profile import NONE, Profiles
from planner.promises.proof import is_overcommitted
from planner.promises.reference_queues import BoxPair, ReferenceQueues, box_of_board, last_strict_s, remembered_box
from planner.promises.repair import board_of, cause_of_lost_slot, slot_problem
from planner.snapshot import Request, Running, Shadow, Snapshot

# After so many changes the board is made anew, since unused limits and demands stay on it.
CHANGES_MOST: Final = 20_000
Part = TypeVar("Part", Request, Running, Shadow)


class Restored(NamedTuple):
    board: Board
    newcomers: list[Waiting]  # they have no stored slot
    courses: CourseCache  # of the board without newcomers
    queues: ReferenceQueues | None = None  # None: not known


Restore = Callable[[Snapshot], Restored]


def restore_anew(snapshot: Snapshot) -> Restored:
    return Restored(*board_of(snapshot), CourseCache())


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
                if not _is_calm(board):
                    return Restored(board, newcomers, CourseCache())
                kept = _Kept(board, snapshot)
            self._kept = kept
            return kept.restored(snapshot)


def _is_calm(board: Board) -> bool:
    """Tells whether each slot is where it was stored, and every cluster is heard."""
    return board.is_heard and not any(waiting.displaced and waiting.request.slot for waiting in board.order)


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
        self._queue, self._running = snapshot.queue, snapshot.running
        self._queues: ReferenceQueues | None = None
        self._courses = CourseCache()
        self._shadows: tuple[Shadow, ...] = ()  # those that are in the reference queues
        self._shadow_of: dict[str, Shadow] = {}
        self._last_strict_s = 0  # of these
        self._changed = {*board.queue, *board.running}  # ids of what the reference queues have not heard of
        self._change_count = 0

    def restored(self, snapshot: Snapshot) -> Restored:
        restored = self._with_newcomers(self._board.copy(), snapshot)
        return restored._replace(queues=None if restored.queues is None else restored.queues.copy())

    @contextmanager
    def trial(self, snapshot: Snapshot) -> Iterator[Restored]:
        restored = self._with_newcomers(self._board, snapshot)
        promised = [waiting.promise_s for waiting in restored.newcomers]
        yield restored
        for waiting, promise_s in zip(restored.newcomers, promised, strict=True):
            waiting.promise_s = promise_s
            if restored.board.has_slot(waiting):
                restored.board.remove_slot(waiting)
            if restored.queues is not None and waiting.request.id in restored.queues.boxes:
                restored.queues.remove([waiting.request.id])

    def _with_newcomers(self, board: Board, snapshot: Snapshot) -> Restored:
        board.keep_as_stored()
        return Restored(board, board.without_slots(), self._courses, self._queues_for(snapshot) if snapshot.memory.shadows else None)

    def follow(self, snapshot: Snapshot) -> bool:
        """Return False if the board must be made anew; then it is no longer valid."""
        board, is_same = self._board, self._pools is snapshot.pools and self._quotas == snapshot.quotas
        if not is_same or board.policy != snapshot.policy or snapshot.now_s < board.now_s or self._change_count > CHANGES_MOST:
            return False
        board.advance(snapshot.now_s)
        overrun = {box.id for box in board.running.values() if box.end_s <= board.now_s}  # now they end a grace later
        (old, requests), (over, new) = _differing(self._queue, snapshot.queue), _differing(self._running, snapshot.running)
        left, ended = {request.id for request in old}, overrun.union(box.id for box in over)
        stays = not ended and not any(board.has_slot(board.queue[id_]) for id_ in left)
        for id_ in left:
            board.dequeue(board.queue[id_])
        for id_ in ended:
            board.release(id_)
        boxes = [box for box in snapshot.running if box.id not in board.running] if ended or new else []
        self._queue, self._running = snapshot.queue, snapshot.running
        self._changed |= left.union(ended, (request.id for request in requests), (box.id for box in boxes))
        self._change_count += len(left) + len(ended) + len(requests) + len(boxes)
        stays = stays and not boxes
        if not (self._add_boxes(boxes) and self._add_requests(requests)):
            return False
        if not stays:
            self._courses = CourseCache()
        elif added := [waiting for request in requests if board.has_slot(waiting := board.queue[request.id])]:
            self._courses = self._courses.with_slots(board, added)
        return True

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
        queues = self._queues = self._queues or ReferenceQueues(self._board)
        known, shadows = self._shadow_of, snapshot.memory.shadows
        over, new = ({shadow.id: shadow for shadow in some} for some in _differing(self._shadows, shadows))
        last_went = any(shadow.strict.start_s == self._last_strict_s for shadow in over.values())
        self._last_strict_s = last_strict_s(shadows) if last_went else max(self._last_strict_s, last_strict_s(new.values()))
        self._shadows = shadows
        for id_ in over:
            del known[id_]
        known.update(new)
        changed, self._changed = self._changed.union(over, new), set()
        queues.remove(id_ for id_ in changed if id_ in queues.boxes)
        queues.add({id_: boxes for id_ in changed if (boxes := self._boxes_in_queues(id_)) is not None})
        queues.advance(snapshot.now_s, self._last_strict_s)
        return queues

    def _boxes_in_queues(self, id_: str) -> BoxPair | None:
        board = self._board
        if id_ in self._shadow_of:
            return remembered_box(board, self._shadow_of[id_])
        if id_ in board.running:
            return box_of_board(board.running[id_])
        waiting = board.queue.get(id_)
        return box_of_board(board.box(waiting)) if waiting is not None and board.has_slot(waiting) else None


def _differing(before: tuple[Part, ...], now: tuple[Part, ...]) -> tuple[list[Part], list[Part]]:
    """Returns the parts of each that are no objects of the other: a part that changed is another object."""
    if before is now:
        return [], []
    first = [*map(is_, before, now), False].index(False)  # mostly only the last ones differ
    old, new = before[first:], now[first:]
    was, there = set(map(id, old)), set(map(id, new))
    return [part for part in old if id(part) not in there], [part for part in new if id(part) not in was]
