"""Keeps slots in clusters that the hub cannot hear: lost contact is not lost capacity.

Nothing starts there, and slots and promises stay as stored even past their time, until the cluster is heard and repair.py restores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.board.board import Board, Box
from planner.board.waiting import Waiting
from planner.capacity.profile import FOREVER_S
from planner.causes import Cause
from planner.snapshot import Request, Slot


def risk_of(board: Board, request: Request, slot: Slot) -> tuple[Cause, str] | None:
    """Return why it is unknown whether this slot can be kept. All its nodes must be on the board."""
    cause = silence_cause(board, slot.nodes)
    if cause is not None:
        return cause, ""
    # A slice runs one box at a time, and a silent cluster cannot report that the last one has ended.
    for id_ in sorted(board.overdue) if request.slice else ():
        box = board.running[id_]
        if box.slice == request.slice and slot.start_s < box.end_s and (cause := silence_cause_of(board, box)) is not None:
            return cause, id_
    return None


def silence_cause(board: Board, nodes: Iterable[str]) -> Cause | None:
    return next((Cause(window.unheard) for node in nodes for window in board.closed[node] if window.unheard), None)


def silence_cause_of(board: Board, box: Box) -> Cause | None:
    return silence_cause(board, (board.node_ids[node] for node in box.places))


def was_at_risk(request: Request) -> tuple[Cause, str] | None:
    return (Cause(request.lost[0]), request.lost[1]) if request.lost is not None and request.slot is not None else None


def hold_slots(board: Board, at_risk: Sequence[Waiting]) -> None:
    for waiting in at_risk:
        slot = waiting.request.slot
        if slot is not None and slot.start_s > board.now_s:
            board.place(waiting, slot.start_s, board.places(slot.nodes))


def hold_late_slots(board: Board, at_risk: Sequence[Waiting]) -> None:
    """Reserve room for overdue slots from the expected return on. These places are not stored."""
    late = [(slot, waiting) for waiting in at_risk if (slot := waiting.request.slot) is not None and slot.start_s <= board.now_s]
    for slot, waiting in sorted(late, key=lambda pair: (pair[0].start_s, pair[1].turn)):
        waiting.displaced = waiting.risk
        places, back_s = board.places(slot.nodes), _back_s(board, slot.nodes)
        found_s = board.earliest_on(places, board.demand(waiting.request), back_s, FOREVER_S)
        board.place(waiting, back_s if found_s is None else found_s, places)


def silence_s(board: Board, cluster: str) -> int:
    if board.is_heard:
        return 0
    slots = [w.request.slot for w in board.order if w.risk is not None and w.request.slot is not None]
    here = [slot for slot in slots if board.pools[board.pool_numbers[slot.pool]].cluster == cluster]
    return max((max(_back_s(board, slot.nodes) - slot.start_s, 0) for slot in here), default=0)


def _back_s(board: Board, nodes: Sequence[str]) -> int:
    return max((window.end_s for node in nodes for window in board.closed[node] if window.unheard), default=board.now_s + 1)
