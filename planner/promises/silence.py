"""Contact lost is not capacity lost: slots in a cluster that is not heard are at risk, and nobody else gets their places.

While it is silent nothing starts there, and a newcomer gets a place there no sooner than the cluster is expected back. Slots and promises
stay as they were stored, even if their time passes; whoever fits in another cluster starts there. Once the cluster is heard, repair.py puts
the slots back where they were, before anything new is planned, and shoves those back whose time has passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.board.board import Board, Box
from planner.board.waiting import Waiting
from planner.capacity.profile import FOREVER_S
from planner.plan import Cause
from planner.snapshot import Request, Slot


def risk_of(board: Board, request: Request, slot: Slot) -> tuple[Cause, str] | None:
    """Why nobody knows whether this slot can be kept; None where that is known. All its nodes are on the board."""
    cause = unheard_on(board, slot.nodes)
    if cause is not None:
        return cause, ""
    # A slice holds one box at a time, and nobody hears whether its last one has ended.
    for id_ in sorted(board.overdue) if request.slice else ():
        box = board.running[id_]
        if box.slice == request.slice and slot.start_s < box.end_s and (cause := unheard_box(board, box)) is not None:
            return cause, id_
    return None


def unheard_on(board: Board, nodes: Iterable[str]) -> Cause | None:
    """Why one of these nodes is not heard; None where all are."""
    return next((Cause(window.unheard) for node in nodes for window in board.closed[node] if window.unheard), None)


def unheard_box(board: Board, box: Box) -> Cause | None:
    """Why nobody could hear that this box has ended; None where one could."""
    return unheard_on(board, (board.node_ids[node] for node in box.places))


def was_at_risk(request: Request) -> tuple[Cause, str] | None:
    """By the last plan, while its slot stands."""
    return (Cause(request.lost[0]), request.lost[1]) if request.lost is not None and request.slot is not None else None


def hold(board: Board, at_risk: Sequence[Waiting]) -> None:
    """Keep the places of those whose time has not passed. Others have room beside them, as when they were stored."""
    for waiting in at_risk:
        slot = waiting.request.slot
        if slot is not None and slot.start_s > board.now_s:
            board.place(waiting, slot.start_s, board.places(slot.nodes))


def hold_late(board: Board, at_risk: Sequence[Waiting]) -> None:
    """Keep room for those whose time has passed, on their nodes, from when these are expected back. Nothing of that is stored."""
    late = [(slot, waiting) for waiting in at_risk if (slot := waiting.request.slot) is not None and slot.start_s <= board.now_s]
    for slot, waiting in sorted(late, key=lambda pair: (pair[0].start_s, pair[1].turn)):
        waiting.displaced = waiting.risk
        places, back_s = board.places(slot.nodes), _back_s(board, slot.nodes)
        found_s = board.earliest_there(places, board.kind(waiting.request), back_s, FOREVER_S)
        board.place(waiting, back_s if found_s is None else found_s, places)


def silence_s(board: Board, cluster: str) -> int:
    """By how much slots in this cluster shift at most, if it is heard when it is expected back, and all nodes are as they were."""
    slots = [w.request.slot for w in board.order if w.risk is not None and w.request.slot is not None]
    here = [slot for slot in slots if board.pools[board.pool_numbers[slot.pool]].cluster == cluster]
    return max((max(_back_s(board, slot.nodes) - slot.start_s, 0) for slot in here), default=0)


def _back_s(board: Board, nodes: Sequence[str]) -> int:
    return max((window.end_s for node in nodes for window in board.closed[node] if window.unheard), default=board.now_s + 1)
