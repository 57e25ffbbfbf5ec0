"""Places a request anew after its owner edited it; all other slots stay.

It gets a new request's place if that is sooner. Otherwise it keeps its slot, or gets the latest place that keeps its promise, or a later
one. The promise only improves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.board.board import Board
from planner.board.waiting import Waiting
from planner.causes import Cause
from planner.promises.failure_reserve import FailureReserve
from planner.promises.repair import place_again, slot_problem
from planner.promises.slack import SlackTracker, find_new_place
from planner.snapshot import Memory, PolicyName, Request, Slot, Snapshot


@dataclass(frozen=True, slots=True)
class BeforeEdit:
    request: Request
    slot: Slot | None
    promise_s: int | None
    displaced: tuple[Cause, str] | None
    risk: tuple[Cause, str] | None


def apply_edit(board: Board, snapshot: Snapshot, request_id: str, reserve: FailureReserve) -> None:
    request, before = next(each for each in snapshot.queue if each.id == request_id), take_out(board, request_id)
    put_back(board, request, before, slack_without(board, snapshot.memory, request_id), reserve)


def take_out(board: Board, request_id: str) -> BeforeEdit:
    waiting = board.queue[request_id]
    before = BeforeEdit(waiting.request, board.slot(waiting), waiting.promise_s, waiting.displaced, waiting.risk)
    board.dequeue(waiting)
    return before


def slack_without(board: Board, memory: Memory, request_id: str) -> SlackTracker | None:
    if board.policy.name != PolicyName.GUARDED:
        return None
    return SlackTracker(board, replace(memory, shadows=tuple(shadow for shadow in memory.shadows if shadow.id != request_id)))


def put_back(board: Board, request: Request, before: BeforeEdit, slack: SlackTracker | None, reserve: FailureReserve) -> Waiting:
    waiting, kept = board.enqueue(request), _kept(board, request, before)
    waiting.promise_s, waiting.displaced = before.promise_s, before.displaced
    best = _best(board, request, before, slack)
    if best is not None and _is_better(board, request, best, kept, before):
        board.place_at(waiting, board.demand(request), best)
    elif kept is not None:
        board.place(waiting, kept.start_s, board.places(kept.nodes))
        waiting.risk = before.risk
    else:
        place_again(board, waiting)
    if best is not None:
        waiting.promise_by(max(reserve.promise_s(request, _slot_of(board, best)), board.start_s(waiting)))
    if before.slot is not None and (not board.has_slot(waiting) or board.start_s(waiting) > before.slot.start_s):
        waiting.displaced = Cause.CHANGED, request.id
    return waiting


def _best(board: Board, request: Request, before: BeforeEdit, slack: SlackTracker | None) -> tuple[int, int] | None:
    """Return (start, pool) that a new request would get; None if nothing changed or the time is fixed."""
    asked = replace(request, rank=before.request.rank, place=before.request.place)
    if request.is_fixed or asked == before.request:
        return None
    found, _ = find_new_place(board, slack, request)
    return found


def _is_better(board: Board, request: Request, best: tuple[int, int], kept: Slot | None, before: BeforeEdit) -> bool:
    slot = _slot_of(board, best)
    if kept is None:
        return before.promise_s is None or slot.start_s <= before.promise_s
    sooner_s = kept.start_s - slot.start_s
    return sooner_s > 0 and sooner_s > request.handicap_s(slot.pool) - request.handicap_s(kept.pool)


def _slot_of(board: Board, found: tuple[int, int]) -> Slot:
    start_s, pool = found
    return Slot(board.pools[pool].id, start_s, ())


def _kept(board: Board, request: Request, before: BeforeEdit) -> Slot | None:
    """A slot at risk must not grow."""
    slot = before.slot
    if slot is None or slot_problem(board, request, slot) is not None:
        return None
    if before.risk is not None:
        is_within = request.gpus_per_node == before.request.gpus_per_node and request.length_s <= before.request.length_s
        return slot if is_within else None
    return slot if board.has_room(board.places(slot.nodes), board.demand(request), slot.start_s) else None
